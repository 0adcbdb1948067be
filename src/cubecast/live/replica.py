"""A replicated application: it joins a group once, applies the group's events, and transfers its state.

A subclass has the state: `snapshot` and `restore` of `cubecast.join`, `_take` for each event, and what it does when
more is causally stable (`_stable`) or when the group continued without this member (`_lost`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from cubecast.errors import CubecastError, LocalProtocolError, RemoteProtocolError
from cubecast.live.group import Group, join
from cubecast.live.inbox import Event
from cubecast.live.loop import require_running_in


class Replica:
    """The application of one member. Enter it once, with `join`."""

    log: ClassVar[logging.Logger]
    not_joined: ClassVar[str]
    """Why it cannot be used yet …"""
    joined_before: ClassVar[str]
    """… why it cannot join again …"""
    is_the_state: ClassVar[str]
    """… and why a program cannot give a snapshot of its own."""

    def __init__(self) -> None:
        """It has not joined a group."""
        self._group: Group | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def group(self) -> Group:
        """The group, once this member joins it."""
        if self._group is None:
            raise LocalProtocolError(self.not_joined)
        return self._group

    def require_own_loop(self) -> None:
        """LocalProtocolError in another event loop than that of the group."""
        require_running_in(self._loop)

    @asynccontextmanager
    async def join(self, name: str, **options: Any) -> AsyncIterator[Group]:
        """Join a group as `cubecast.join` does, and stay up to date until the end of the block.

        A block that ends with an exception leaves without waiting for the others.
        """
        if self._group is not None:
            raise LocalProtocolError(self.joined_before)
        for taken in ("snapshot", "restore"):
            if taken in options:
                raise LocalProtocolError(f"{taken}=: {self.is_the_state}")
        self._loop = asyncio.get_running_loop()
        self._group = group = join(name, snapshot=self.snapshot, restore=self.restore, **options)
        group.on_causally_stable(lambda _frontier: self._stable())
        group.on_excluded(lambda _excluded: self._lost())
        try:
            async with group:
                applying = asyncio.create_task(self._apply_all())
                self._entered()
                try:
                    yield group
                except BaseException:
                    await group.leave(drain=False)  # as `async with group` does
                    raise
                finally:
                    await group.leave()
                    try:
                        await asyncio.wait({applying})
                    finally:
                        applying.cancel()
                    if not applying.cancelled():
                        applying.result()
        finally:
            for task in list(self._tasks):
                task.cancel()
            self._ended()

    async def _apply_all(self) -> None:
        try:
            async for event in self.group.events():
                try:
                    self._take(event)
                except RemoteProtocolError as error:
                    self.log.error("message skipped reason=%s", error)
                self._took()
        except Exception as error:
            is_bug = not isinstance(error, CubecastError)
            self.log.error("replica ended member=%s error=%s", self.group.address, error, exc_info=is_bug)
            raise
        finally:
            self._ended()

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something in the background; it fails silently when this member leaves or is excluded."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), CubecastError):
            self.log.error("background work failed", exc_info=task.exception())

    # For subclasses.

    def snapshot(self) -> bytes:
        """The state for newcomers."""
        raise NotImplementedError

    def restore(self, state: bytes) -> None:
        """Continue with the state of another member."""
        raise NotImplementedError

    def _take(self, event: Event) -> None:
        """Apply an event."""
        raise NotImplementedError

    def _stable(self) -> None:
        """More is causally stable."""

    def _lost(self) -> None:
        """The group continued without this member."""

    def _entered(self) -> None:
        """This member is in the group."""

    def _took(self) -> None:
        """An event was applied."""

    def _ended(self) -> None:
        """No event follows, or this member never entered the group. It may be called again."""

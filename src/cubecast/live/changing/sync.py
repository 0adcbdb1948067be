"""A group that changes, for programs without asyncio: its loop in a thread of its own.

with cubecast.found_sync("orders", listen=..., plaintext=True) as group:
    message = group.multicast(b"hello")
    message.stable(timeout=5)
    for event in group.events(timeout=1):
        print(event)

`snapshot` and `restore` are called in the loop's thread while the program waits for the next event, so they see the
state that comes of all events before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from cubecast.core.membership import MemberId, View
from cubecast.live.changing.events import Event
from cubecast.live.changing.group import Buffer, ChangingGroup, found, join_changing
from cubecast.live.changing.looking import ChangingLaggard
from cubecast.live.changing.window import ChangingMessage
from cubecast.live.loop import LoopThread


class SyncChangingMessage:
    """A message that this member multicast."""

    def __init__(self, loop: LoopThread, message: ChangingMessage) -> None:
        """Made by `multicast`."""
        self._loop = loop
        self._message = message

    @property
    def is_stable(self) -> bool:
        """Does every member of the view have it?"""
        return self._message.is_stable

    def stable(self, timeout: float | None = None) -> None:
        """Wait until every member of the view has it."""
        self._loop.run(self._message.stable(timeout))


class SyncChangingGroup:
    """A member's place in a changing group, for threads. Make one with `found_sync` or `join_sync`."""

    def __init__(self, group: ChangingGroup) -> None:
        """Nothing is opened before `with`."""
        self._group = group
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        """Found the group, or wait until this member is taken in and has the state."""
        self._loop.start()
        try:
            self._loop.run(self._group.__aenter__())
        except BaseException:
            self._loop.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group."""
        try:
            self._loop.run(self._group.leave())
        finally:
            self._loop.end()

    def multicast(self, payload: Buffer) -> SyncChangingMessage:
        """Send to every member; waits while the window of own messages is full."""
        return SyncChangingMessage(self._loop, self._loop.run(self._group.multicast(payload)))

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Deliveries and view changes; ends when none came for `timeout` seconds, or when this member has left."""
        while True:
            try:
                event = self._loop.run(self._group.next_event(timeout))
            except TimeoutError:
                return
            if event is None:
                return
            yield event

    @property
    def me(self) -> MemberId:
        """This member: its address and its life."""
        return self._group.me

    @property
    def view(self) -> View:
        """The members by rank."""
        return self._group.view

    @property
    def is_blocked(self) -> bool:
        """Are too few members within reach?"""
        return self._group.is_blocked

    @property
    def frontier(self) -> dict[MemberId, int]:
        """How many messages of each member, in the present view, every member of the view has."""
        return self._group.frontier

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member."""
        return self._group.stats

    def laggards(self) -> list[ChangingLaggard]:
        """Who keeps messages from becoming stable."""
        return self._group.laggards()


def found_sync(name: str, **options: Any) -> SyncChangingGroup:
    """Found a group from a program without asyncio; the options are those of `found`."""
    return SyncChangingGroup(found(name, **options))


def join_founded_sync(name: str, **options: Any) -> SyncChangingGroup:
    """Join a founded group from a program without asyncio; the options are those of `join` with a contact."""
    return SyncChangingGroup(join_changing(name, **options))

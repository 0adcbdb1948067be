"""The group for programs without asyncio: the same interface, its loop in a thread of its own.

with cubecast.join_sync("orders", listen=..., peers=[...], plaintext=True) as group:
    message = group.multicast(b"hello")
    message.stable(timeout=5)
    for delivery in group.deliveries(timeout=1):
        print(delivery.payload)
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from cubecast.errors import CubecastError
from cubecast.live.group import Buffer, Laggard, LiveGroup, Message, View, join
from cubecast.live.loop import LoopThread
from cubecast.live.traffic import Delivery

_Result = TypeVar("_Result")
_QUEUE_MESSAGES = 1024


class SyncMessage:
    """One multicast message of this member."""

    def __init__(self, group: SyncGroup, message: Message) -> None:
        """Made by `multicast`."""
        self._group = group
        self._message = message
        self.sequence = message.sequence

    @property
    def is_stable(self) -> bool:
        """Does every current member have it?"""
        return self._message.is_stable

    def stable(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Wait until every current member has the message."""
        self._group._run(self._message.stable(timeout, hurry=hurry))


class SyncGroup:
    """A member's place in a group, for threads. Make one with `join_sync`, and use it in a `with` block."""

    def __init__(self, group: LiveGroup) -> None:
        """Nothing is opened before `with`."""
        self._group = group
        self._loop = LoopThread()
        self._queue: queue.Queue[Delivery | CubecastError | None] = queue.Queue(_QUEUE_MESSAGES)

    def __enter__(self) -> Self:
        """Open the links and wait for the neighbours."""
        self._loop.start()
        try:
            self._run(self._group.__aenter__())
        except BaseException:
            self._loop.end()
            raise
        self._reading = self._loop.begin(self._read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group."""
        try:
            self._run(self._group.leave(drain=kind is None))
        finally:
            self._reading.cancel()
            self._loop.end()

    def multicast(self, payload: Buffer) -> SyncMessage:
        """Send to every member; waits while too many own messages are not stable."""
        return SyncMessage(self, self._run(self._group.multicast(payload)))

    def deliveries(self, timeout: float | None = None) -> Iterator[Delivery]:
        """Deliveries in causal order; ends when none came for `timeout` seconds, or when this member leaves."""
        while True:
            try:
                delivery = self._queue.get(timeout=timeout)
            except queue.Empty:
                return
            if delivery is None:
                return
            if isinstance(delivery, CubecastError):
                raise delivery
            yield delivery

    @property
    def rank(self) -> int:
        """This member's rank."""
        return self._group.rank

    @property
    def view(self) -> View:
        """The current members."""
        return self._group.view

    @property
    def frontier(self) -> list[int]:
        """The stability array S."""
        return list(self._group.frontier)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member."""
        return self._group.stats

    def laggards(self) -> list[Laggard]:
        """Who holds stability back, and by how much."""
        return self._group.laggards()

    async def _read(self) -> None:
        end: CubecastError | None = None
        try:
            async for delivery in self._group:
                while self._queue.full():
                    await asyncio.sleep(0.001)
                self._queue.put_nowait(delivery)
        except CubecastError as error:
            end = error
        while self._queue.full():
            await asyncio.sleep(0.01)
        self._queue.put_nowait(end)

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._loop.run(work)


def join_sync(name: str, **options: Any) -> SyncGroup:
    """Be a member of a group from a program without asyncio; the options are those of `join`."""
    return SyncGroup(join(name, **options))

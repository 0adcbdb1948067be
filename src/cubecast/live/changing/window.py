"""The own messages that are not stable: a budget of bytes, and who waits for room or for stability.

A message is *waiting* until the view allows it to be sent, then *sent* with a view and a number, then stable or
returned. They are sent in the order of the calls, so the oldest waiting one is always the next one sent, and what an
exclusion returns are the last ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from cubecast.errors import CubecastError, ExcludedError


class Outgoing:
    """One message that this member multicast."""

    __slots__ = ("failure", "is_stable", "number", "payload", "serial", "view", "waiters", "was_sent")

    def __init__(self, serial: int, payload: bytes) -> None:
        """Not sent yet."""
        self.serial = serial
        self.payload = payload
        self.view = 0
        self.number = 0
        self.was_sent = False
        self.is_stable = False
        self.failure: CubecastError | None = None
        self.waiters: list[asyncio.Future[None]] = []

    def settle(self, failure: CubecastError | None = None) -> None:
        """It is stable, or it never will be."""
        self.is_stable = failure is None
        self.failure = failure
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class Window:
    """All of them, oldest first."""

    def __init__(self, bytes_max: int) -> None:
        """Empty."""
        self.bytes = 0
        self.count = 0
        self.base = 0
        self._bytes_max = bytes_max
        self._sent: deque[Outgoing] = deque()
        self.waiting: deque[Outgoing] = deque()
        self._room: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Messages that are not stable."""
        return len(self._sent) + len(self.waiting)

    def add(self, payload: bytes) -> Outgoing:
        """One more."""
        outgoing = self._new(payload)
        self.waiting.append(outgoing)
        self._make_room()
        return outgoing

    def _new(self, payload: bytes) -> Outgoing:
        self.count += 1
        self.bytes += len(payload)
        return Outgoing(self.base + self.count, payload)

    def sent(self, view: int, number: int) -> Outgoing:
        """The oldest waiting message was sent."""
        outgoing = self.waiting.popleft()
        outgoing.view, outgoing.number, outgoing.was_sent = view, number, True
        self._sent.append(outgoing)
        return outgoing

    def stable(self, view: int, number: int) -> None:
        """What was sent in this view up to this number, and all that was sent in earlier views, is stable."""
        while self._sent and (self._sent[0].view < view or self._sent[0].number <= number):
            self._settle(self._sent.popleft())
        self._make_room()

    def returned(self, payloads: Sequence[bytes]) -> list[Outgoing]:
        """This life is over and these, the last ones, came back; the others were delivered."""
        everything = [*self._sent, *self.waiting]
        for payload in reversed(payloads[: max(0, len(payloads) - len(everything))]):
            everything.insert(0, self._new(payload))  # of the time before a restart
            everything[0].was_sent = True
        self._sent.clear()
        self.waiting.clear()
        kept = len(everything) - len(payloads)
        for outgoing in everything[:kept]:
            self._settle(outgoing)
        return everything[kept:]

    def again(self, outgoing: Outgoing) -> None:
        """A message that came back waits to be sent in the next life."""
        outgoing.view = outgoing.number = 0
        outgoing.was_sent = False
        self.waiting.append(outgoing)

    def lose(self, outgoing: Outgoing, reason: str) -> None:
        """A message that came back is not sent again."""
        self._settle(outgoing, ExcludedError(reason))

    def end(self, failure: CubecastError) -> None:
        """Nothing more will be stable, and there will be no more room."""
        for outgoing in (*self._sent, *self.waiting):
            self._settle(outgoing, failure)
        self._sent.clear()
        self.waiting.clear()
        for room in self._room:
            if not room.done():
                room.set_exception(failure)
        self._room.clear()

    async def wait_for_room(self) -> None:
        """Wait until the budget allows one more; in the order of the calls."""
        if not self._room and self.bytes < self._bytes_max:
            return
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(room)
        try:
            await room
        except asyncio.CancelledError:
            if room in self._room:
                self._room.remove(room)
            elif not room.cancelled():
                self._make_room()  # it was this one's turn, and is the next one's now
            raise

    def _settle(self, outgoing: Outgoing, failure: CubecastError | None = None) -> None:
        self.bytes -= len(outgoing.payload)
        outgoing.settle(failure)

    def _make_room(self) -> None:
        """Let the first who waits go on; what it adds lets the next one go on, if there is room."""
        while self._room and self.bytes < self._bytes_max:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)
                return


class ChangingMessage:
    """A message that this member multicast."""

    __slots__ = ("_outgoing",)

    def __init__(self, outgoing: Outgoing) -> None:
        """Made by `multicast`."""
        self._outgoing = outgoing

    @property
    def view(self) -> int:
        """The view in which it was sent; 0 while it waits for the view to allow it."""
        return self._outgoing.view

    @property
    def sequence(self) -> int:
        """Its number in that view; 0 while it waits."""
        return self._outgoing.number

    @property
    def is_stable(self) -> bool:
        """Does every member of the view have it?"""
        return self._outgoing.is_stable

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until every member of the view has it."""
        outgoing = self._outgoing
        if not outgoing.is_stable and outgoing.failure is None:
            waiter = asyncio.get_running_loop().create_future()
            outgoing.waiters.append(waiter)
            try:
                async with asyncio.timeout(timeout):
                    await waiter
            except TimeoutError:
                raise TimeoutError(f"message {outgoing.serial} is not stable after {timeout} s") from None
        if outgoing.failure is not None:
            raise outgoing.failure

"""One subscriber: its topics, and the queue between the bus and its consumer.

| `when_full`   | what happens when the queue holds `capacity` events                                          |
|---------------|----------------------------------------------------------------------------------------------|
| `drop_oldest` | the oldest event is dropped and counted in `dropped`: the newest state wins                  |
| `drop_newest` | the new event is dropped and counted                                                         |
| `end`         | the subscription ends; its consumer gets the queued events, then `SlowSubscriberError`       |
| `wait`        | the bus delivers nothing more to this process until there is room: nothing is lost, and in   |
|               | the end the publishers of the whole group wait for this consumer                             |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, get_args

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.protocols.membership.views import MemberId

WhenFull = Literal["drop_oldest", "drop_newest", "end", "wait"]


class SlowSubscriberError(CubecastError):
    """The queue of a subscriber with `when_full="end"` was full."""


class BusEvent(NamedTuple):
    """A published value."""

    topic: str
    value: Any
    sender: MemberId
    sequence: int
    """The number of the message among all messages of its sender."""


class Subscription:
    """The events of some topics; returned by `Bus.subscribe`, and used as an async context manager."""

    def __init__(
        self,
        topics: frozenset[str],
        *,
        capacity: int,
        when_full: WhenFull,
        own: bool,
        close: Callable[[Subscription], None],
        require_own_loop: Callable[[], None],
    ) -> None:
        """The subscription is open; events may arrive immediately."""
        if when_full not in get_args(WhenFull):
            raise LocalProtocolError(f"when_full={when_full!r}: choose one of {', '.join(get_args(WhenFull))}")
        if type(capacity) is not int or capacity < 1:
            raise LocalProtocolError(f"capacity={capacity!r}: give a whole number from 1")
        self.topics = topics
        self.own = own
        """Does it receive what this member publishes?"""
        self.dropped = 0
        """Events lost because the queue was full."""
        self._capacity = capacity
        self._when_full = when_full
        self._close = close
        self._require_own_loop = require_own_loop
        self._queue: deque[BusEvent] = deque()
        self._failure: CubecastError | None = None
        self._is_closed = False
        self._consumers: deque[asyncio.Future[None]] = deque()
        self._room: asyncio.Future[None] | None = None

    # For the bus.

    def put(self, event: BusEvent) -> asyncio.Future[None] | None:
        """Add an event. A future: the queue is full, wait for it and put the event again."""
        if self._is_closed:
            return None
        if len(self._queue) >= self._capacity:
            if self._when_full == "wait":
                if self._room is None:
                    self._room = asyncio.get_running_loop().create_future()
                return self._room
            if self._when_full == "end":
                self.end(SlowSubscriberError(f"capacity={self._capacity}: the queue was full, read faster or raise it"))
                return None
            self.dropped += 1
            if self._when_full == "drop_newest":
                return None
            self._queue.popleft()
        self._queue.append(event)
        self._wake()
        return None

    def end(self, failure: CubecastError | None = None) -> None:
        """Nothing more will come."""
        if not self._is_closed:
            self._is_closed = True
            self._failure = failure
            self._close(self)
            self._make_room()
            while self._consumers:
                self._wake()

    def _wake(self) -> None:
        while self._consumers:
            consumer = self._consumers.popleft()
            if not consumer.done():
                consumer.set_result(None)
                return

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # For the consumer.

    async def get(self, timeout: float | None = None) -> BusEvent:
        """The next event. TimeoutError after `timeout` seconds; LocalProtocolError when the subscription has ended."""
        async with asyncio.timeout(timeout):
            event = await self._next()
        if event is None:
            raise LocalProtocolError("this subscription has ended")
        return event

    async def _next(self) -> BusEvent | None:
        while not self._queue:
            if self._is_closed:
                if self._failure is not None:
                    raise type(self._failure)(*self._failure.args)
                return None
            self._require_own_loop()
            consumer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._consumers.append(consumer)
            try:
                await consumer
            except asyncio.CancelledError:
                if consumer in self._consumers:
                    self._consumers.remove(consumer)
                else:
                    self._wake()  # it was woken for an event that another consumer must take now
                raise
        event = self._queue.popleft()
        if self._room is not None:
            self._make_room()
        return event

    def __aiter__(self) -> Self:
        """Events as they come; ends when the subscription does."""
        return self

    async def __anext__(self) -> BusEvent:
        """The next event."""
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    def __len__(self) -> int:
        """How many events wait in the queue."""
        return len(self._queue)

    async def __aenter__(self) -> Self:
        """The subscription is already open."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Unsubscribe."""
        self.end()

"""The inbox of the application: deliveries, views, and requests for its state, in one order.

| field         | meaning                                                                                    |
|---------------|--------------------------------------------------------------------------------------------|
| `queue`       | entries that the application has not taken, the oldest first                               |
| `held_bytes`  | bytes of deliveries that it has taken, and may still be processing                         |
| `taken_bytes` | bytes that it has processed since the last report to the member, which then accepts more   |

A consumer (`receive`, `async for`, `events`) takes entries from the left. An entry is popped in the same step of
the event loop in which the consumer gets it, and bytes are counted then: a consumer that is cancelled, times out or
stops loses nothing, and another one continues where it ended. The application has *processed* a delivery when it asks
for the next one, or calls `acknowledge`. A request for the state stays at the head of the queue
until it is served, so a consumer that is cancelled in the middle of an asynchronous `snapshot` leaves it to the next.

A history counts as taken when its last message is: `on_history_taken`.

A consumer yields to other tasks when it has run for `RUN_S`. A fixed number of messages would be wrong: the turns of an
event loop that is busy with multicasts and sockets are long, and a consumer that takes less in a turn than arrives in
it falls behind, until the whole group waits for it.

The path of a delivery is short because it runs for every message: pop, compare the class, add the size.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Generic, TypeVar

from cubecast.errors import CubecastError
from cubecast.member.effects import Delivery, Entry, SnapshotWanted, StateArrived, ViewChange
from cubecast.protocols.membership.views import MemberId

Event = Delivery | ViewChange
"""What the application receives."""
REPORT_BYTES = 1 << 16
"""Taken bytes are reported to the member in units of this size, and the rest when the queue is empty."""
RUN_S = 0.005
"""A consumer that never has to wait lets other tasks run after this time."""
HISTORY_BATCH = 256
"""Transferred messages that are decoded in one turn of the event loop."""

_Taken = TypeVar("_Taken", bound=Event)


class TransferredMessages:
    """The messages of a state transfer as one entry: they are decoded when the application takes them."""

    __slots__ = ("ahead", "deliveries")

    def __init__(self, deliveries: Iterator[Delivery]) -> None:
        """Nothing is decoded yet."""
        self.deliveries = deliveries
        self.ahead: list[Delivery] = []
        """Decoded and not in the queue: as long as there is one, those in the queue are not the last."""


class EndOfTransferredMessages:
    """Follows the last transferred message."""

    __slots__ = ()


Request = SnapshotWanted | StateArrived


class Inbox:
    """The entries of one member, and the consumers that wait for them."""

    def __init__(
        self,
        *,
        report_taken: Callable[[int], None],
        serve: Callable[[Request], Awaitable[None]],
        on_empty: Callable[[], Awaitable[None] | None],
        on_history_taken: Callable[[], None],
        backlog_bytes: int,
        is_tracked: bool,
    ) -> None:
        """`serve` handles a request for the state; `on_empty` is called when everything is taken.

        `is_tracked`: the state is a history of messages. After an exclusion it comes again, and the application gets
        only what it has not taken before.
        """
        self.queue: deque[Entry | TransferredMessages | EndOfTransferredMessages] = deque()
        self.held_bytes = 0
        self.taken_bytes = 0
        self.report_bytes = min(REPORT_BYTES, backlog_bytes // 4)
        self.failure: CubecastError | None = None
        self.is_tracked = is_tracked
        self._seen: dict[MemberId, int] = {}
        """By sender: the last sequence that was taken, where it is tracked."""
        self._report_taken = report_taken
        self._serve = serve
        self._on_empty = on_empty
        self._on_history_taken = on_history_taken
        self.yields = False
        """Have other tasks waited so long that the consumer must yield before it takes more?"""
        self._run_until_s = 0.0
        self._reader: asyncio.Task[Any] | None = None
        """The task that takes the history."""
        self._sleepers: list[asyncio.Future[None]] = []
        self._is_serving = False
        self._is_ended = False

    # From the driver.

    def extend(self, entries: Iterable[Entry | TransferredMessages]) -> None:
        """Add entries for the application."""
        self.queue.extend(entries)
        if self._sleepers:
            self.wake()

    def end(self, failure: CubecastError | None = None) -> None:
        """Nothing more will come: this member left, or failed."""
        self._is_ended = True
        self.failure = self.failure or failure
        self.wake()

    def wake(self) -> None:
        """Wake all waiting consumers."""
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    # For the application.

    def acknowledge(self) -> None:
        """The application has processed all that it has taken: report it to the member."""
        self.taken_bytes += self.held_bytes
        self.held_bytes = 0
        self._report()

    def _report(self) -> None:
        if self.taken_bytes:
            size, self.taken_bytes = self.taken_bytes, 0
            self._report_taken(size)

    def _next(self) -> None:
        """The application asks for more: it has processed what it took before."""
        self.taken_bytes += self.held_bytes
        self.held_bytes = 0
        if self.taken_bytes > self.report_bytes:
            self._report()

    def end_batch(self) -> None:
        """A batch is taken, or everything: report what the application has processed, and yield if it is time."""
        self._report()
        self.yields = not self.queue or monotonic() >= self._run_until_s

    async def take(self, wanted: tuple[type[Any], ...]) -> Any:
        """The next entry of these classes; None at the end. Other entries before it are skipped."""
        self._next()
        while await self._wait():
            entry = self.queue.popleft()
            if type(entry) is Delivery:
                self.held_bytes += 0 if entry.is_history else len(entry.record)
                if self.is_tracked:
                    self._seen[entry.sender] = entry.sequence
                    if self.queue and type(self.queue[0]) is EndOfTransferredMessages:
                        self._end_history()
            if self.taken_bytes + self.held_bytes > self.report_bytes or not self.queue:
                self.end_batch()
            if isinstance(entry, wanted):
                return entry
        return None

    def take_more(self, into: deque[Event], limit: int) -> None:
        """Take further deliveries that are available, all of them before the application processes the first."""
        queue = self.queue
        while queue and len(into) < limit and type(first := queue[0]) is Delivery:
            if self.is_next_last_of_history:  # it counts as taken: the application must have those before it
                return
            queue.popleft()
            self.held_bytes += 0 if first.is_history else len(first.record)
            if self.is_tracked:
                self._seen[first.sender] = first.sequence
            into.append(first)

    def reads_history(self, task: asyncio.Task[Any] | None) -> bool:
        """Does this task take the history, and is there more of it?"""
        return task is self._reader and any(
            isinstance(one, TransferredMessages | EndOfTransferredMessages) for one in islice(self.queue, 1024)
        )

    @property
    def is_next_last_of_history(self) -> bool:
        """Does a history end with the next delivery?"""
        return len(self.queue) > 1 and type(self.queue[1]) is EndOfTransferredMessages

    async def serve_request(self) -> bool:
        """Serve the request at the head of the queue, if there is one; returns whether there was."""
        if self._is_serving or not self.queue or not isinstance(self.queue[0], SnapshotWanted | StateArrived):
            return False
        await self._serve_first(self.queue[0])
        return True

    async def _wait(self) -> bool:
        """Wait until the first entry is for the application; False at the end."""
        if self.yields:
            self.yields = False
            if self.queue:
                await asyncio.sleep(0)
                self._run_until_s = monotonic() + RUN_S
        while True:
            if self._is_serving:
                await self._sleep()
            elif not self.queue:
                if self._is_ended:
                    if self.failure is not None:
                        raise type(self.failure)(*self.failure.args) from self.failure
                    return False
                await self._pause()
                self._run_until_s = monotonic() + RUN_S
            elif isinstance(first := self.queue[0], Delivery | ViewChange):
                return True
            elif isinstance(first, TransferredMessages):
                await self._decode(first)
            elif isinstance(first, EndOfTransferredMessages):
                self._end_history()
            else:
                await self._serve_first(first)

    async def _pause(self) -> None:
        """Everything is taken: report it, offer a checkpoint, then wait."""
        self._report()
        work = self._on_empty()
        if work is None:
            await self._sleep()
            return
        self._is_serving = True
        try:
            await work
        finally:
            self._is_serving = False
            self.wake()

    async def _serve_first(self, request: Request) -> None:
        self._is_serving = True
        try:
            await self._serve(request)
            self.queue.popleft()
        finally:
            self._is_serving = False
            self.wake()

    async def _decode(self, history: TransferredMessages) -> None:
        """Decode the next messages of the history to the head of the queue; let others run before."""
        self._is_serving = True
        self._reader = asyncio.current_task()
        ahead, seen = history.ahead, self._seen
        is_all = False
        try:
            while not is_all and len(ahead) <= HISTORY_BATCH:
                await asyncio.sleep(0)
                some = list(islice(history.deliveries, HISTORY_BATCH))
                is_all = len(some) < HISTORY_BATCH
                ahead += [one for one in some if one.sequence > seen.get(one.sender, 0)]
            if is_all:
                self.queue[0] = EndOfTransferredMessages()
                self.queue.extendleft(reversed(ahead))
            else:
                self.queue.extendleft(reversed(ahead[:-1]))
                del ahead[:-1]
        finally:
            self._is_serving = False
            self.wake()

    def _end_history(self) -> None:
        """The application has taken the last message of a history."""
        self.queue.popleft()
        self._on_history_taken()

    async def _sleep(self) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            await sleeper
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)


class Entries(Generic[_Taken]):
    """An iterator over the application's entries; it may be cancelled, left and continued at any time."""

    __slots__ = ("_fast", "_inbox", "_wanted")

    def __init__(self, inbox: Inbox, wanted: tuple[type[_Taken], ...]) -> None:
        """Entries of these classes, from the first that no consumer took."""
        self._inbox = inbox
        self._wanted = wanted
        self._fast: deque[Any] | tuple[()] = () if inbox.is_tracked else inbox.queue
        """The queue, unless taken entries must be tracked, or others must run first."""

    def __aiter__(self) -> Entries[_Taken]:
        """Itself."""
        return self

    async def __anext__(self) -> _Taken:
        """The next entry."""
        queue, inbox = self._fast, self._inbox
        if queue and not inbox._is_serving:  # an entry taken during a snapshot would be in neither state nor journal
            entry = queue.popleft()
            if type(entry) is Delivery:
                inbox.taken_bytes = size = inbox.taken_bytes + inbox.held_bytes
                inbox.held_bytes = len(entry.record)
                if size > inbox.report_bytes or not queue:
                    inbox.end_batch()
                    if inbox.yields:
                        self._fast = ()
                return entry  # type: ignore[return-value]
            queue.appendleft(entry)
        taken = await self._inbox.take(self._wanted)
        if not self._inbox.is_tracked:
            self._fast = self._inbox.queue
        if taken is None:
            raise StopAsyncIteration
        return taken  # type: ignore[no-any-return]

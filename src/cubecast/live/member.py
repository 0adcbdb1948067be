"""One live member: frames and timers into its cores, the cores' actions out to links, timers and the application.

| from            | to                                                                                       |
|-----------------|------------------------------------------------------------------------------------------|
| application     | `publish` → data core, once for all messages of a turn of the loop → links               |
| DATA frame      | decoded as a batch → data core → deliveries to the application, forwards to links        |
| CONTROL frame   | stability core → answers; at the end of a round the frontier moves and buffers are freed |
| FAILURE frame   | failure core → gossip; whoever it suspects is taken out of the group                     |

Back-pressure: a sender's own unstable messages are bounded by its window. When the application does not take its
deliveries, incoming batches are parked, unread by the core: they stay unstable, the senders' windows fill, and the
senders wait. So everything a member holds is bounded by the windows of all senders.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cubecast.core import mail
from cubecast.core.causal.overlay import DATA as DATA_RECORD
from cubecast.core.drive import EVERYONE
from cubecast.errors import CubecastError, ExcludedError
from cubecast.live.cores import ControlCore, Cores
from cubecast.live.credentials import Credentials
from cubecast.live.data_core import Asked
from cubecast.live.link import Link
from cubecast.live.rounds import Rounds
from cubecast.live.settings import Settings
from cubecast.live.store import Store
from cubecast.live.transport import Transport
from cubecast.wire import data, frame
from cubecast.wire.control import decode_control, encode_control
from cubecast.wire.frame import Frame
from cubecast.wire.greeting import terms_digest

if TYPE_CHECKING:
    from cubecast.live.recorder import Recorder

log = logging.getLogger("cubecast.live")

GOODBYE_S = 1.0
"""How long a member that leaves waits for a neighbour that does not answer: it may have crashed."""
_SEQUENCE = 0xFFFFFFFF


class Delivery(msgspec.Struct, gc=False):
    """A message as the application gets it."""

    sender: int
    sequence: int
    record: bytes

    @property
    def payload(self) -> bytes:
        """What the sender multicast."""
        return data.payload_of(self.record)


class Member:
    """Drives the cores of one member."""

    def __init__(
        self,
        *,
        group: str,
        addresses: list[str],
        rank: int,
        settings: Settings,
        credentials: Credentials | None,
        recorder: Recorder | None,
    ) -> None:
        """Nothing is opened before `start`."""
        self.rank = rank
        self.addresses = addresses
        self.settings = settings
        self.cores = Cores(settings, len(addresses), rank)
        self.store = Store(len(addresses))
        self.queue: deque[Delivery] = deque()
        self.backlog_bytes = 0
        self.published = 0
        self.own_bytes = 0
        self.delivered = 0
        self.view_id = 1
        self.failure: CubecastError | None = None
        self.on_delivery: Callable[[], None] = lambda: None
        """Called when the queue has more."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after progress of stability, a change of members, or the end."""
        self.transport = Transport(
            group=group,
            addresses=addresses,
            rank=rank,
            settings=settings,
            terms=terms_digest(group, addresses, *settings.agreed),
            credentials=credentials,
            on_frame=self._arrived,
            on_excluded=self._excluded,
        )
        self.rounds = Rounds(self)
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._table = data.new_table()
        self._form = data.Form(
            members=len(addresses),
            stamp_numbers=self.cores.data.stamp_numbers,
            own_numbers=self.cores.data.own_numbers,
            payload_bytes_max=settings.payload_bytes_max,
        )
        self._record_bytes = data.HEAD_BYTES + 4 * self.cores.data.stamp_numbers
        """Of a message besides its payload."""
        self._outgoing: list[bytes] = []
        self._parked: deque[tuple[int, bytes]] = deque()
        self._flush_asked = False
        self._is_calm = True
        """Did the application multicast at most one message in the last turn of the loop?"""
        self._to_all: list[Link] = []
        """The links to all other members, once they were asked for."""
        self._timers: set[asyncio.TimerHandle] = set()
        self._leaving = False
        self._stopped = False

    async def start(self) -> None:
        """Open the links and wait for the neighbours."""
        self._load()
        await self.transport.listen()
        for rank in sorted(self.cores.neighbours):
            self.transport.open_link(rank)
        self._carry_out(self.cores.failure, self.cores.failure.start(time.monotonic_ns()), frame.FAILURE)
        missing = await self.transport.wait_for(self.cores.neighbours, self.settings.join_timeout_s)
        if missing:
            named = ", ".join(f"{rank} ({self.addresses[rank]})" for rank in sorted(missing))
            log.warning("no link to rank %s after %g s; going on without", named, self.settings.join_timeout_s)
        self.cores.data.start(time.monotonic_ns())
        self._hand_over([], self.cores.data.results())
        self.rounds.start()

    def _load(self) -> None:
        """Have the compiled code loaded: neither the first message nor the group's clock should wait for that."""
        self._take_in(self.rank, b"")
        self.cores.data.receive(0, self.rank, b"", self._table, 0, 0)
        self.cores.data.publish(0, 0)

    async def stop(self) -> None:
        """Close everything; nothing is called back afterwards."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        self._end_record()
        await self.transport.close()

    async def say_goodbye(self) -> None:
        """Tell the neighbours that this member leaves, and stay until they know.

        Whoever hears a goodbye tells its own neighbours and ends the link. A neighbour that leaves at the same time
        tells nobody any more; whoever takes its place is told instead.
        """
        self._leaving = True
        self._end_record()
        self._carry_out(self.cores.failure, self.cores.failure.publish(time.monotonic_ns()), frame.FAILURE)
        missing = await self.transport.wait_for_ends(self.cores.listeners, GOODBYE_S)
        if missing:
            named = ", ".join(map(str, sorted(missing)))
            log.warning("leaving although rank %s did not hear the goodbye in %g s", named, GOODBYE_S)

    def _end_record(self) -> None:
        """What a member does once it has left is not held against the group: the others do not count it any more."""
        if self._recorder is not None:
            self._recorder.leave()
            self._recorder.close()
            self._recorder = None

    # From the application.

    @property
    def is_full(self) -> bool:
        """Are there as many own unstable messages as the window allows?"""
        unstable = self.published - self.store.freed[self.rank]
        return unstable >= self.cores.window or self.own_bytes >= self.settings.window_bytes

    def publish(self, payload: bytes) -> int:
        """Multicast a message; gives its sequence number.

        It goes at once when messages come one by one; of many in one turn of the loop, all go at the end of the turn.
        """
        self.published += 1
        self.own_bytes += self._record_bytes + len(payload)
        self._outgoing.append(payload)
        if not self._flush_asked:
            self._ask_flush()
            if self._is_calm:
                self._send_out()
        return self.published

    def taken(self, size: int) -> None:
        """The application took messages of that many bytes out of the queue."""
        self.backlog_bytes -= size
        while self._parked and 2 * self.backlog_bytes <= self.settings.backlog_bytes:
            self._take_in(*self._parked.popleft())

    # Turns of the loop.

    def _ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """The end of a turn: publish what the application gave, and send what waits on the links."""
        self._flush_asked = False
        if not self._stopped:
            self._is_calm = len(self._outgoing) <= 1
            self._send_out()
            self.rounds.watch()

    def _send_out(self) -> None:
        while self._outgoing:
            count = self.cores.data.publish(time.monotonic_ns(), len(self._outgoing))
            asked = self.cores.data.results()
            payloads, self._outgoing = self._outgoing[:count], self._outgoing[count:]
            self._hand_over([self._own(*one) for one in zip(asked.deliveries, payloads, strict=True)], asked)
        if self._recorder is not None:
            self._recorder.flush()
        self.transport.flush()

    def _own(self, published: list[int], payload: bytes) -> tuple[int, bytes]:
        """The record of a message that this member publishes, with the numbers that the core gave it."""
        key, row, _ = published
        numbers = self.cores.data.numbers(row) if row >= 0 else b""
        return key, data.encode_record(DATA_RECORD, self.rank, key & _SEQUENCE, payload, numbers)

    # Frames.

    def _arrived(self, peer: int, arrived: Frame) -> None:
        if self._stopped or self.failure is not None:
            return
        if arrived.kind == frame.DATA:
            if self._parked or self.backlog_bytes > self.settings.backlog_bytes:
                self._parked.append((peer, arrived.body))
            else:
                self._take_in(peer, arrived.body)
        else:
            core = self.cores.stability if arrived.kind == frame.CONTROL else self.cores.failure
            message = decode_control(arrived.body, numbers=core.width, words=core.words)
            self._carry_out(core, core.receive(time.monotonic_ns(), peer, message), arrived.kind)

    def _take_in(self, peer: int, body: bytes) -> None:
        """A batch of data messages. What is forwarded leaves before the application wakes up."""
        self._ask_flush()
        count = data.decode_batch(body, self._table, self._form)
        first = 0
        while first < count:
            first = self.cores.data.receive(time.monotonic_ns(), peer, body, self._table, first, count)
            asked = self.cores.data.results()
            for key, start, end in asked.kept:
                self.store.wait(key, body[start:end])
            delivered = [
                (key, body[start:end] if start >= 0 else self.store.end_wait(key))
                for key, start, end in asked.deliveries
            ]
            self._hand_over(delivered, asked)

    def _hand_over(self, delivered: list[tuple[int, bytes]], asked: Asked) -> None:
        """Carry out what the data core asked for: messages and their records to the application, sends to links."""
        add, append = self.store.add, self.queue.append
        size = 0
        for key, record in delivered:
            add(key >> 32, record)
            append(Delivery(key >> 32, key & _SEQUENCE, record))
            size += len(record)
        self.backlog_bytes += size
        self.delivered += len(delivered)
        if self._recorder is not None:
            self._recorder.deliveries([key for key, _ in delivered])
        for rank, kind, key, row in asked.sends:
            self._send(rank, kind, key, row)
        for timer, tag, delay_ns in asked.timers:
            self.later(delay_ns / 1e9, self._wake_data, timer, tag)
        if delivered:
            self.on_delivery()

    def _send(self, rank: int, kind: int, key: int, row: int) -> None:
        if key & _SEQUENCE == 0:
            record = data.encode_record(kind, key >> 32, 0, b"", self.cores.data.numbers(row))
        else:
            record = self.store.get(key >> 32, key & _SEQUENCE)
            if row >= 0:
                record = data.with_numbers(record, self.cores.data.numbers(row))
        if rank != EVERYONE:
            self._link(rank).add_record(record)
            return
        for link in self._links_to_all():
            link.add_record(record)

    def _wake_data(self, timer: int, tag: int) -> None:
        """A timer of the data core is due."""
        if self.failure is None:
            self.cores.data.on_timer(time.monotonic_ns(), timer, tag)
            self._hand_over([], self.cores.data.results())
            self._ask_flush()

    def _links_to_all(self) -> list[Link]:
        if not self._to_all:
            self._to_all = [self._link(rank) for rank in self.cores.members() if rank != self.rank]
        return self._to_all

    def _link(self, rank: int) -> Link:
        link = self.transport.links.get(rank)
        return link if link is not None else self.transport.open_link(rank, dial=True)

    # Control cores.

    def _carry_out(self, core: ControlCore, actions: list[Any], kind: int) -> None:
        """Do what a control core asked for; suspects go last, because the cores are then called again."""
        suspects = []
        for what, slot, a, b, delay_ns in actions:
            if what == mail.SEND:
                self._send_control(core, kind, slot, [a])
            elif what == mail.MULTICAST:
                self._send_control(core, kind, slot, [r for r in self.cores.members() if r != self.rank])
            elif what == mail.TIMER:
                self.later(delay_ns / 1e9, self.fire, core, kind, a, b)
            elif what == mail.NEXT_ROUND:
                self.rounds.rest(a, b, delay_ns)
            elif what == mail.SUSPECT:
                suspects.append(a)
            elif what in (mail.ROUND_BEGUN, mail.ROUND_DONE):
                self._note_round(a, done=what == mail.ROUND_DONE)
        for rank in suspects:
            self._exclude(rank)

    def _send_control(self, core: ControlCore, kind: int, slot: int, ranks: list[int]) -> None:
        body = encode_control(core.drafted(slot))
        if self._recorder is not None:
            self._recorder.flush()
        for rank in ranks:
            if not self.cores.is_member(rank):
                continue
            if kind == frame.FAILURE:
                self._link(rank).send_loose(kind, body)
            else:
                self._link(rank).add_control(body)

    def later(self, delay_s: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a while, unless the member stops before."""

        def due() -> None:
            self._timers.discard(handle)
            function(*arguments)

        handle = self._loop.call_later(delay_s, due)
        self._timers.add(handle)

    def fire(self, core: ControlCore, kind: int, timer: int, tag: int) -> None:
        """A timer of a core is due."""
        if self.failure is None:
            if core is self.cores.failure:
                self._note_signs_of_life()
            self._carry_out(core, core.on_timer(time.monotonic_ns(), timer, tag), kind)

    def _note_signs_of_life(self) -> None:
        """Tell the failure detector from whom anything came since its last step."""
        for rank, link in self.transport.links.items():
            if link.heard:
                link.heard = False
                self.cores.failure.heard(time.monotonic_ns(), rank)

    def start_rounds(self) -> None:
        """Let the stability core begin."""
        self._carry_out(self.cores.stability, self.cores.stability.start(time.monotonic_ns()), frame.CONTROL)

    def _note_round(self, number: int, *, done: bool) -> None:
        if self._recorder is not None:
            self._recorder.round(number, done=done)
        self.rounds.note(done=done)
        if done:
            self._free_stable(number)

    def _free_stable(self, number: int) -> None:
        """Stability moved: forget what everybody has."""
        moved = False
        for sender, stable in enumerate(self.cores.group.stable[0].tolist()):
            if stable > self.store.freed[sender]:
                freed = self.store.free(sender, stable)
                moved = True
                if sender == self.rank:
                    self.own_bytes -= freed
                if self._recorder is not None:
                    self._recorder.stable(sender, stable, number)
        if moved:
            self.on_change()

    # Membership.

    def _exclude(self, rank: int) -> None:
        if rank == self.rank:
            self._excluded("the other members suspect this one")
            return
        if not self.cores.is_member(rank):
            return
        level = logging.INFO if self._leaving else logging.WARNING
        log.log(level, "rank %d (%s) is excluded from the group", rank, self.addresses[rank])
        self.cores.remove(rank)
        self._to_all.clear()
        self.view_id += 1
        if self._recorder is not None:
            self._recorder.exclude(rank)
        self.transport.bar(rank)
        now = time.monotonic_ns()
        self.cores.data.leave(now, rank)
        self._hand_over([], self.cores.data.results())
        self._ask_flush()
        self._carry_out(self.cores.stability, self.cores.stability.leave(now, rank), frame.CONTROL)
        self._carry_out(self.cores.failure, self.cores.failure.leave(now, rank), frame.FAILURE)
        self.on_change()

    def _excluded(self, reason: str) -> None:
        if self.failure is None and not self._leaving:
            self.failure = ExcludedError(f"rank {self.rank} ({self.addresses[self.rank]}) was excluded: {reason}")
            log.error("%s", self.failure)
            self.on_change()

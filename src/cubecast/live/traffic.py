"""The application's messages: from it through the data core to links, and from links through the data core to it.

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
from typing import TYPE_CHECKING

import msgspec

from cubecast.core.broadcast.reliability import Heartbeats
from cubecast.core.causal.overlay import DATA as DATA_RECORD
from cubecast.core.drive import EVERYONE
from cubecast.live.data_core import Asked
from cubecast.live.link import Link
from cubecast.live.store import Store
from cubecast.wire import data

if TYPE_CHECKING:
    from cubecast.live.member import Member

log = logging.getLogger("cubecast.live")

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


class Traffic:
    """Drives the data core of one member."""

    def __init__(self, member: Member) -> None:
        """Nothing sent, nothing received."""
        self.store = Store(len(member.addresses))
        self.queue: deque[Delivery] = deque()
        self.backlog_bytes = 0
        self.published = 0
        self.own_bytes = 0
        self.delivered = 0
        self.on_delivery: Callable[[], None] = lambda: None
        """Called when the queue has more."""
        self._member = member
        self._core = member.cores.data
        self._settings = member.settings
        self._loop = asyncio.get_running_loop()
        self._table = data.new_table()
        self._form = data.Form(
            members=len(member.addresses),
            stamp_numbers=self._core.stamp_numbers,
            own_numbers=self._core.own_numbers,
            payload_bytes_max=member.settings.payload_bytes_max,
        )
        self._record_bytes = data.HEAD_BYTES + 4 * self._core.stamp_numbers
        """Of a message besides its payload."""
        self._outgoing: list[bytes] = []
        self._parked: deque[tuple[int, bytes]] = deque()
        self._flush_asked = False
        self._is_calm = True
        """Did the application multicast at most one message in the last turn of the loop?"""
        self._heartbeats = Heartbeats(len(member.addresses))
        self._to_all: list[Link] = []
        """The links to all other members, once they were asked for."""

    def load(self) -> None:
        """Have the compiled code loaded: neither the first message nor the group's clock should wait for that."""
        self._take_in(self._member.rank, b"")
        self._core.receive(0, self._member.rank, b"", self._table, 0, 0)
        self._core.publish(0, 0)

    # From the application.

    @property
    def is_full(self) -> bool:
        """Are there as many own unstable messages as the window allows?"""
        unstable = self.published - self.store.freed[self._member.rank]
        return unstable >= self._member.cores.window or self.own_bytes >= self._settings.window_bytes

    def publish(self, payload: bytes) -> int:
        """Multicast a message; gives its sequence number.

        It goes at once when messages come one by one; of many in one turn of the loop, all go at the end of the turn.
        """
        self.published += 1
        self.own_bytes += self._record_bytes + len(payload)
        self._outgoing.append(payload)
        if not self._flush_asked:
            self.ask_flush()
            if self._is_calm:
                self._send_out()
        return self.published

    def taken(self, size: int) -> None:
        """The application took messages of that many bytes out of the queue."""
        self.backlog_bytes -= size
        while self._parked and 2 * self.backlog_bytes <= self._settings.backlog_bytes:
            self._take_in(*self._parked.popleft())

    # Turns of the loop.

    def ask_flush(self) -> None:
        """Have `flush` called at the end of this turn of the loop."""
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """The end of a turn: publish what the application gave, and send what waits on the links."""
        self._flush_asked = False
        if not self._member.stopped:
            self._is_calm = len(self._outgoing) <= 1
            self._send_out()
            self._member.rounds.watch()

    def _send_out(self) -> None:
        while self._outgoing:
            count = self._core.publish(time.monotonic_ns(), len(self._outgoing))
            asked = self._core.results()
            payloads, self._outgoing = self._outgoing[:count], self._outgoing[count:]
            self._hand_over([self._own(*one) for one in zip(asked.deliveries, payloads, strict=True)], asked)
        if self._member.recorder is not None:
            self._member.recorder.flush()
        self._member.transport.flush()

    def _own(self, published: list[int], payload: bytes) -> tuple[int, bytes]:
        """The record of a message that this member publishes, with the numbers that the core gave it."""
        key, row, _ = published
        numbers = self._core.numbers(row) if row >= 0 else b""
        return key, data.encode_record(DATA_RECORD, self._member.rank, key & _SEQUENCE, payload, numbers)

    # From links.

    def arrived(self, peer: int, body: bytes) -> None:
        """A batch came; it is read at once unless the application has too much to take already."""
        if self._parked or self.backlog_bytes > self._settings.backlog_bytes:
            self._parked.append((peer, body))
        else:
            self._take_in(peer, body)

    def _take_in(self, peer: int, body: bytes) -> None:
        """What is forwarded leaves before the application wakes up."""
        self.ask_flush()
        count = data.decode_batch(body, self._table, self._form)
        first = 0
        while first < count:
            first = self._core.receive(time.monotonic_ns(), peer, body, self._table, first, count)
            asked = self._core.results()
            for key, start, end in asked.kept:
                self.store.wait(key, body[start:end])
            delivered = [
                (key, body[start:end] if start >= 0 else self.store.end_wait(key))
                for key, start, end in asked.deliveries
            ]
            self._hand_over(delivered, asked)

    # What else befalls the core.

    def start(self) -> None:
        """The member begins."""
        self._core.start(time.monotonic_ns())
        self._hand_over([], self._core.results())

    def leave(self, rank: int) -> None:
        """A rank was taken out of the membership."""
        self._to_all.clear()
        self._core.leave(time.monotonic_ns(), rank)
        self._hand_over([], self._core.results())
        self.ask_flush()

    def note_heartbeat(self, rank: int, *, heard: bool) -> None:
        """A step of the failure detector is over, in which something came over a link, or did not."""
        if not self._core.judges_links:
            return
        before = self._heartbeats.believed[rank]
        if not self._heartbeats.note(rank, heard=heard):
            return
        failure = float(self._heartbeats.believed[rank])
        log.info("the link to rank %d fails with a probability of about %.2f", rank, failure)
        self._core.believe(rank, failure)
        self._core.compare_paths(time.monotonic_ns(), rank, better=failure < before)
        self._hand_over([], self._core.results())
        self.ask_flush()

    def _on_timer(self, timer: int, tag: int) -> None:
        if self._member.failure is None:
            self._core.on_timer(time.monotonic_ns(), timer, tag)
            self._hand_over([], self._core.results())
            self.ask_flush()

    # What the core asks for.

    def _hand_over(self, delivered: list[tuple[int, bytes]], asked: Asked) -> None:
        """Messages and their records go to the application, sends to links."""
        add, append = self.store.add, self.queue.append
        size = 0
        for key, record in delivered:
            add(key >> 32, record)
            append(Delivery(key >> 32, key & _SEQUENCE, record))
            size += len(record)
        self.backlog_bytes += size
        self.delivered += len(delivered)
        if self._member.recorder is not None:
            self._member.recorder.deliveries([key for key, _ in delivered])
        for rank, kind, key, row in asked.sends:
            self._send(rank, kind, key, row)
        for timer, tag, delay_ns in asked.timers:
            self._member.later(delay_ns / 1e9, self._on_timer, timer, tag)
        if delivered:
            self.on_delivery()

    def _send(self, rank: int, kind: int, key: int, row: int) -> None:
        if key & _SEQUENCE == 0:
            record = data.encode_record(kind, key >> 32, 0, b"", self._core.numbers(row))
        else:
            record = self.store.get(key >> 32, key & _SEQUENCE)
            if row >= 0:
                record = data.with_last_number(record, self._core.numbers(row))
        if rank != EVERYONE:
            self._member.link(rank).add_record(record)
            return
        for link in self._links_to_all():
            link.add_record(record)

    def _links_to_all(self) -> list[Link]:
        if not self._to_all:
            ranks = self._member.cores.members()
            self._to_all = [self._member.link(rank) for rank in ranks if rank != self._member.rank]
        return self._to_all

    # Stability.

    def free(self, sender: int, stable: int) -> None:
        """Forget what everybody has."""
        freed = self.store.free(sender, stable)
        if sender == self._member.rank:
            self.own_bytes -= freed

"""Byte streams between processes, as TCP presents them to a program, and network faults.

A connection has two streams, one for each direction. A stream holds what was written and not read yet, with the time at
which each part arrives. Bytes arrive in order and in pieces of any size.

| fault   | effect                                                                                              |
|---------|-----------------------------------------------------------------------------------------------------|
| cut     | one direction between two machines is dead: bytes wait; later they flow or the connection is reset  |
| slow    | every piece between two machines takes long                                                         |
| reset   | any suffix of what is in flight is lost, each way; each end learns of it at its own time            |
| refused | no process listens there; a machine that is down or cut off does not answer: the dial times out     |
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cubecast.fuzz.agenda import MS, Agenda

if TYPE_CHECKING:
    from cubecast.fuzz.impostor import Impostor
    from cubecast.fuzz.process import Process

Link = tuple[str, str]


class Stream:
    """One direction of a connection."""

    __slots__ = ("arrives_ns", "is_broken", "is_ended", "is_paused", "reader", "size", "waiting", "writer")

    def __init__(self) -> None:
        """The stream is empty."""
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.arrives_ns = 0
        """When the last part arrives."""
        self.size = 0
        """Bytes that the reader has not handled."""
        self.is_paused = False
        self.is_broken = False
        """Are written bytes lost?"""
        self.is_ended = False
        """Will the reader be notified of the end after the waiting bytes?"""
        self.writer: End
        self.reader: End


class End:
    """One end of a connection: what a process holds."""

    __slots__ = ("connection", "incoming", "is_gone", "number", "outgoing", "process")

    def __init__(self, process: Process | Impostor, number: int, incoming: Stream, outgoing: Stream) -> None:
        """The end is open."""
        self.process = process
        self.number = number
        self.incoming = incoming
        self.outgoing = outgoing
        self.connection: Connection
        self.is_gone = False
        """Was the process notified that the connection is lost, or did it never know of it?"""
        incoming.reader = self
        outgoing.writer = self


class Connection:
    """Two processes and the two streams between them."""

    def __init__(self, dialler: Process, acceptor: Process | Impostor, numbers: tuple[int, int]) -> None:
        """Both ends are yet to be notified."""
        there, back = Stream(), Stream()
        self.dialler = End(dialler, numbers[0], back, there)
        self.acceptor = End(acceptor, numbers[1], there, back)
        self.dialler.connection = self.acceptor.connection = self
        self.is_reset = False

    @property
    def ends(self) -> tuple[End, End]:
        """Both ends."""
        return self.dialler, self.acceptor

    @property
    def names(self) -> tuple[str, str]:
        """The names of both machines."""
        return self.dialler.process.name, self.acceptor.process.name


class FuzzNetwork:
    """All connections of a history."""

    def __init__(self, draw: random.Random, agenda: Agenda, find: Callable[[str], Process | Impostor | None]) -> None:
        """`find` returns the process that listens under a name."""
        self.draw = draw
        self.agenda = agenda
        self.latency_ms: tuple[float, float] = (0.1, 2.0)
        self.rechunk = 0.2
        self.late = 0.0
        """How often an end learns much later that its connection is lost."""
        self.buffer_bytes = 1 << 16
        self.connections: dict[Connection, None] = {}
        self.cuts: set[Link] = set()
        self._is_calm = False
        self.silent: set[str] = set()
        """Machines that are down: they do not even refuse connections."""
        self.slow: dict[Link, float] = {}
        self.on_write: Callable[[Stream, bytes], bytes] | None = None
        self.on_read: Callable[[Stream, bytes], bytes] | None = None
        """Called with bytes that are written or arrive; returns those that are not lost. For `fault_points`."""
        self._find = find
        self._numbers = 0

    def _latency_ns(self, source: str, to: str) -> int:
        low, high = self.latency_ms
        return round((low + self.draw.random() * (high - low) + self.slow.get((source, to), 0.0)) * MS)

    # Connections.

    def dial(self, process: Process, name: str) -> None:
        """A process connects to a name."""
        self.agenda.after(self._latency_ns(process.name, name), self._arrive, process, name)

    def _arrive(self, process: Process, name: str) -> None:
        target = self._find(name)
        if self.is_cut(process.name, name) or self.is_cut(name, process.name) or name in self.silent:
            delay_ns = round((50 + self.draw.random() * 250) * MS)
            self.agenda.after(delay_ns, process.dial_failed, name, "timed out")
            return
        delay_ns = self._latency_ns(name, process.name)
        if target is None or not target.is_listening or target is process:
            self.agenda.after(delay_ns, process.dial_failed, name, "connection refused")
            return
        self._numbers += 2
        connection = Connection(process, target, (self._numbers, self._numbers + 1))
        self.connections[connection] = None
        connection.dialler.incoming.arrives_ns = self.agenda.now_ns + delay_ns
        target.connection_made(connection.acceptor, "", process.name)
        self.agenda.after(delay_ns, process.connection_made, connection.dialler, name, name)

    def write(self, end: End, data: bytes) -> bool:
        """Send bytes; returns whether the writer must pause."""
        stream = end.outgoing
        if self.on_write is not None:
            data = self.on_write(stream, data)
        if stream.is_broken or not data:
            return False
        source, to = end.process.name, stream.reader.process.name
        stream.arrives_ns = max(stream.arrives_ns, self.agenda.now_ns + self._latency_ns(source, to))
        stream.waiting.append((stream.arrives_ns, data))
        stream.size += len(data)
        self.agenda.at(stream.arrives_ns, self._flow, stream)
        if stream.size > self.buffer_bytes and not stream.is_paused:
            stream.is_paused = True
            return True
        return False

    def _flow(self, stream: Stream) -> None:
        """Bytes that have arrived go to the reader."""
        source, to = stream.writer.process.name, stream.reader.process.name
        if (self.cuts and (source, to) in self.cuts) or not stream.waiting or stream.reader.is_gone:
            return
        now_ns = self.agenda.now_ns
        parts = []
        while stream.waiting and stream.waiting[0][0] <= now_ns:
            parts.append(stream.waiting.popleft()[1])
        if not parts:
            return
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        if self.rechunk and self.draw.random() < self.rechunk and len(data) > 1:
            place = self.draw.randrange(1, len(data))
            rest_ns = now_ns + self.draw.randrange(MS)
            stream.waiting.appendleft((rest_ns, data[place:]))
            self.agenda.at(rest_ns, self._flow, stream)
            data = data[:place]
        stream.reader.process.post(self._hand_over, stream, data)

    def _hand_over(self, stream: Stream, data: bytes) -> None:
        """The process reads it."""
        stream.size -= len(data)
        reader = stream.reader
        if stream.is_paused and stream.size <= self.buffer_bytes // 4:
            stream.is_paused = False
            if not stream.writer.is_gone:
                self.agenda.at(self.agenda.now_ns, stream.writer.process.resume_writing, stream.writer)
        if reader.is_gone:
            return
        if self.on_read is not None:
            arrived = self.on_read(stream, data)
            if len(arrived) < len(data):  # nothing that was sent later arrives either
                stream.size -= sum(len(later) for _, later in stream.waiting)
                stream.waiting.clear()
                stream.is_broken = True
            data = arrived
        if data and reader.process.is_alive and not reader.is_gone:
            reader.process.data_received(reader, data)

    # Ends.

    def close(self, end: End, at_once: bool) -> None:
        """A process ends a connection: after what it wrote, or immediately."""
        stream = end.outgoing
        is_clean = not at_once and (not end.incoming.size or self.draw.random() < 0.5)
        if not is_clean:  # unread bytes make TCP reset the connection
            self._cut_off(stream)
        end.incoming.is_broken = True
        end.incoming.waiting.clear()
        stream.is_broken = True
        self._notify_after(stream, is_late=False)
        self._notify_writer(end)

    def _notify_writer(self, end: End) -> None:
        self.agenda.after(self.draw.randrange(MS), end.process.connection_lost, end, "closed here")

    def reset(self, connection: Connection, is_late: bool | None = None) -> None:
        """A suffix of the bytes in flight is lost each way; each end learns of it at its own time."""
        if connection.is_reset:
            return
        connection.is_reset = True
        for end in connection.ends:
            stream = end.incoming
            stream.is_broken = True
            self._cut_off(stream)
            self._notify_after(stream, self.draw.random() < self.late if is_late is None else is_late)

    def _cut_off(self, stream: Stream) -> None:
        """Lose a random suffix of the waiting bytes."""
        size = sum(len(data) for _, data in stream.waiting)
        if size == 0:
            return
        kept = self.draw.choice([0, size, self.draw.randint(0, size), self.draw.randint(0, size)])
        lost = size - kept
        stream.size -= lost
        while lost > 0:
            when_ns, data = stream.waiting.pop()
            if len(data) > lost:
                stream.waiting.append((when_ns, data[:-lost]))
            lost -= len(data)

    def _notify_after(self, stream: Stream, is_late: bool) -> None:
        """Schedule the notification of the reader, after the bytes it still gets."""
        if stream.is_ended:
            return
        stream.is_ended = True
        now_ns = self.agenda.now_ns
        delay_ns = self._latency_ns(stream.writer.process.name, stream.reader.process.name)
        if is_late:
            delay_ns += round(self.draw.choice([100, 1500]) * self.draw.random() * MS)
        self.agenda.at(max(now_ns + delay_ns, stream.arrives_ns), self._notify, stream)

    def _notify(self, stream: Stream) -> None:
        """Notify the reader, only when everything before it was read, and not across a cut."""
        end = stream.reader
        if end.is_gone:
            return
        if (stream.writer.process.name, end.process.name) in self.cuts:
            self.agenda.after(round((20 + 200 * self.draw.random()) * MS), self._notify, stream)
        elif stream.waiting:
            self.agenda.at(max(self.agenda.now_ns + MS, stream.waiting[-1][0]), self._notify, stream)
            self._flow(stream)
        else:
            end.process.connection_lost(end, "connection reset")

    def forget(self, end: End) -> None:
        """A process knows that this connection is over."""
        end.is_gone = True
        end.incoming.waiting.clear()
        end.outgoing.is_broken = True
        if all(one.is_gone for one in end.connection.ends):
            self.connections.pop(end.connection, None)

    def process_died(self, process: Process | Impostor, is_power: bool) -> None:
        """The system closes the connections of a process; for a machine without power, peers learn late or never."""
        for connection in list(self.connections):
            for end in connection.ends:
                if end.process is process and not end.is_gone:
                    stream = end.outgoing
                    self.forget(end)
                    self._cut_off(stream)
                    if not is_power:
                        self._notify_after(stream, is_late=False)
                    elif not stream.is_ended:
                        stream.is_ended = True
                        delay_ns = round(self.draw.choice([50, 500, 1500]) * self.draw.random() * MS)
                        self.agenda.at(max(self.agenda.now_ns + delay_ns, stream.arrives_ns), self._notify, stream)

    # Faults.

    def is_cut(self, source: str, to: str) -> bool:
        """Is this direction dead?"""
        return bool(self.cuts) and (source, to) in self.cuts

    def cut(self, links: Iterable[Link]) -> None:
        """Cut links: bytes sent there wait. Ignored once all faults have ended."""
        if not self._is_calm:
            self.cuts.update(links)

    def mend(self, links: Iterable[Link]) -> None:
        """Mend links: bytes flow again, or the connection proves dead."""
        mended = self.cuts.intersection(links)
        self.cuts -= mended
        for connection in list(self.connections):
            one, other = connection.names
            if (one, other) in mended or (other, one) in mended:
                if self.draw.random() < 0.3:
                    self.reset(connection)
                for end in connection.ends:
                    self.agenda.after(self._latency_ns(one, other), self._flow, end.incoming)

    def calm(self) -> None:
        """All faults end."""
        self._is_calm = True
        self.slow.clear()
        self.silent.clear()
        self.late = 0.0
        self.latency_ms = (0.1, 1.0)
        self.on_write = self.on_read = None
        self.mend(set(self.cuts))

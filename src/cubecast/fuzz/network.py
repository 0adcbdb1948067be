"""Byte streams between processes, as TCP gives them to a program, and what a network does to them.

A connection has two pipes, one for each direction. A pipe holds what was written and not read yet, with the time at
which each part arrives. Bytes arrive in order and in pieces of any size.

| fault   | effect                                                                                              |
|---------|-----------------------------------------------------------------------------------------------------|
| cut     | one direction between two machines is dead: bytes wait; later they go on or the connection is reset |
| slow    | every piece between two machines takes long                                                         |
| reset   | any suffix of what is in flight is lost, each way; each end learns of it at its own time            |
| refused | nobody listens there; a machine that is down or cut off does not answer, and the dial times out     |
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


class Pipe:
    """One direction of a connection."""

    __slots__ = ("arrives_ns", "is_broken", "is_ended", "is_paused", "reader", "size", "waiting", "writer")

    def __init__(self) -> None:
        """Empty."""
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.arrives_ns = 0
        """When the last part arrives."""
        self.size = 0
        """Bytes that the reader has not handled."""
        self.is_paused = False
        self.is_broken = False
        """What is written vanishes."""
        self.is_ended = False
        """Is the reader told of the end after what waits?"""
        self.writer: End
        self.reader: End


class End:
    """One end of a connection: what a process holds."""

    __slots__ = ("connection", "incoming", "is_gone", "number", "outgoing", "process")

    def __init__(self, process: Process | Impostor, number: int, incoming: Pipe, outgoing: Pipe) -> None:
        """Open."""
        self.process = process
        self.number = number
        self.incoming = incoming
        self.outgoing = outgoing
        self.connection: Connection
        self.is_gone = False
        """Was the process told that the connection is lost, or did it never know of it?"""
        incoming.reader = self
        outgoing.writer = self


class Connection:
    """Two processes and the two pipes between them."""

    def __init__(self, dialler: Process, acceptor: Process | Impostor, numbers: tuple[int, int]) -> None:
        """Both ends are to be told."""
        there, back = Pipe(), Pipe()
        self.dialler = End(dialler, numbers[0], back, there)
        self.acceptor = End(acceptor, numbers[1], there, back)
        self.dialler.connection = self.acceptor.connection = self
        self.is_reset = False

    @property
    def ends(self) -> tuple[End, End]:
        """Both."""
        return self.dialler, self.acceptor

    @property
    def names(self) -> tuple[str, str]:
        """Of both machines."""
        return self.dialler.process.name, self.acceptor.process.name


class Network:
    """All connections of a history."""

    def __init__(self, draw: random.Random, agenda: Agenda, find: Callable[[str], Process | Impostor | None]) -> None:
        """`find` gives the process that listens under a name."""
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
        """Machines that are down: they do not even refuse."""
        self.slow: dict[Link, float] = {}
        self.on_write: Callable[[Pipe, bytes], bytes] | None = None
        self.on_read: Callable[[Pipe, bytes], bytes] | None = None
        """Called with bytes that are written or arrive; give those that are not lost. For `fault_points`."""
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
        """Send bytes; gives whether the writer must pause."""
        pipe = end.outgoing
        if self.on_write is not None:
            data = self.on_write(pipe, data)
        if pipe.is_broken or not data:
            return False
        source, to = end.process.name, pipe.reader.process.name
        pipe.arrives_ns = max(pipe.arrives_ns, self.agenda.now_ns + self._latency_ns(source, to))
        pipe.waiting.append((pipe.arrives_ns, data))
        pipe.size += len(data)
        self.agenda.at(pipe.arrives_ns, self._flow, pipe)
        if pipe.size > self.buffer_bytes and not pipe.is_paused:
            pipe.is_paused = True
            return True
        return False

    def _flow(self, pipe: Pipe) -> None:
        """What has arrived goes to the reader."""
        source, to = pipe.writer.process.name, pipe.reader.process.name
        if (self.cuts and (source, to) in self.cuts) or not pipe.waiting or pipe.reader.is_gone:
            return
        now_ns = self.agenda.now_ns
        parts = []
        while pipe.waiting and pipe.waiting[0][0] <= now_ns:
            parts.append(pipe.waiting.popleft()[1])
        if not parts:
            return
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        if self.rechunk and self.draw.random() < self.rechunk and len(data) > 1:
            place = self.draw.randrange(1, len(data))
            rest_ns = now_ns + self.draw.randrange(MS)
            pipe.waiting.appendleft((rest_ns, data[place:]))
            self.agenda.at(rest_ns, self._flow, pipe)
            data = data[:place]
        pipe.reader.process.post(self._hand_over, pipe, data)

    def _hand_over(self, pipe: Pipe, data: bytes) -> None:
        """The process reads it."""
        pipe.size -= len(data)
        reader = pipe.reader
        if pipe.is_paused and pipe.size <= self.buffer_bytes // 4:
            pipe.is_paused = False
            if not pipe.writer.is_gone:
                self.agenda.at(self.agenda.now_ns, pipe.writer.process.resume_writing, pipe.writer)
        if reader.is_gone:
            return
        if self.on_read is not None:
            data = self.on_read(pipe, data)
        if data and reader.process.is_alive and not reader.is_gone:
            reader.process.data_received(reader, data)

    # Ends.

    def close(self, end: End, at_once: bool) -> None:
        """A process ends a connection: after what it wrote, or at once."""
        pipe = end.outgoing
        is_clean = not at_once and (not end.incoming.size or self.draw.random() < 0.5)
        if not is_clean:  # bytes that nobody reads any more make TCP reset the connection
            self._cut_off(pipe)
        end.incoming.is_broken = True
        end.incoming.waiting.clear()
        pipe.is_broken = True
        self._tell_after(pipe, is_late=False)
        self._tell_writer(end)

    def _tell_writer(self, end: End) -> None:
        self.agenda.after(self.draw.randrange(MS), end.process.connection_lost, end, "closed here")

    def reset(self, connection: Connection, is_late: bool | None = None) -> None:
        """A suffix of what is in flight is lost each way; the ends learn of it, each at its time."""
        if connection.is_reset:
            return
        connection.is_reset = True
        for end in connection.ends:
            pipe = end.incoming
            pipe.is_broken = True
            self._cut_off(pipe)
            self._tell_after(pipe, self.draw.random() < self.late if is_late is None else is_late)

    def _cut_off(self, pipe: Pipe) -> None:
        """Lose any suffix of what waits."""
        size = sum(len(data) for _, data in pipe.waiting)
        if size == 0:
            return
        kept = self.draw.choice([0, size, self.draw.randint(0, size), self.draw.randint(0, size)])
        lost = size - kept
        pipe.size -= lost
        while lost > 0:
            when_ns, data = pipe.waiting.pop()
            if len(data) > lost:
                pipe.waiting.append((when_ns, data[:-lost]))
            lost -= len(data)

    def _tell_after(self, pipe: Pipe, is_late: bool) -> None:
        """The reader learns of the end after what it still gets."""
        if pipe.is_ended:
            return
        pipe.is_ended = True
        now_ns = self.agenda.now_ns
        delay_ns = self._latency_ns(pipe.writer.process.name, pipe.reader.process.name)
        if is_late:
            delay_ns += round(self.draw.choice([100, 1500]) * self.draw.random() * MS)
        self.agenda.at(max(now_ns + delay_ns, pipe.arrives_ns), self._tell, pipe)

    def _tell(self, pipe: Pipe) -> None:
        """Only when everything before it was read, and not across a cut."""
        end = pipe.reader
        if end.is_gone:
            return
        if (pipe.writer.process.name, end.process.name) in self.cuts:
            self.agenda.after(round((20 + 200 * self.draw.random()) * MS), self._tell, pipe)
        elif pipe.waiting:
            self.agenda.at(max(self.agenda.now_ns + MS, pipe.waiting[-1][0]), self._tell, pipe)
            self._flow(pipe)
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
        """The system closes the connections of a process; a machine without power says nothing, or much later."""
        for connection in list(self.connections):
            for end in connection.ends:
                if end.process is process and not end.is_gone:
                    pipe = end.outgoing
                    self.forget(end)
                    self._cut_off(pipe)
                    if not is_power:
                        self._tell_after(pipe, is_late=False)
                    elif not pipe.is_ended:
                        pipe.is_ended = True
                        delay_ns = round(self.draw.choice([50, 500, 1500]) * self.draw.random() * MS)
                        self.agenda.at(max(self.agenda.now_ns + delay_ns, pipe.arrives_ns), self._tell, pipe)

    # Faults.

    def is_cut(self, source: str, to: str) -> bool:
        """Is this direction dead?"""
        return bool(self.cuts) and (source, to) in self.cuts

    def cut(self, links: Iterable[Link]) -> None:
        """What is sent there waits; not once all faults have ended."""
        if not self._is_calm:
            self.cuts.update(links)

    def mend(self, links: Iterable[Link]) -> None:
        """Bytes flow again, or the connection is found to be dead."""
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

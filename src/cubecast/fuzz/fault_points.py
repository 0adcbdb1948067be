"""Faults injected at a step of the protocol, not at a random time.

A *fault point* waits for the k-th frame or membership message of a kind that is written or arrives, or for the k-th
record of a kind that is written to a journal. Then it hits a target (the writer or the receiver), the connection, the
other members, or several of these. Some fault points of a history count from its beginning, others from the moment
another one has fired. The history's theme (`themes`) determines the kinds from which they are drawn.

| hit            | effect                                                                                       |
|----------------|----------------------------------------------------------------------------------------------|
| the target     | is killed; loses power; stops for a while; is mute, deaf or isolated for a while; leaves;    |
|                | now, or a while later                                                                        |
| the connection | is reset just before this frame, or stands still from this frame on                          |
| the others     | are killed, one or more, stopped, partitioned at random, multicast, or leave                 |
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cubecast.fuzz.agenda import MS
from cubecast.fuzz.impostor import Impostor
from cubecast.fuzz.network import Link, Stream
from cubecast.fuzz.process import Process
from cubecast.fuzz.themes import ARRIVES, JOURNALLED, WRITTEN, Theme
from cubecast.fuzz.world import FuzzWorld
from cubecast.wire import frame, membership, records

_FRAME = struct.Struct("<IBB")
_RECORD = struct.Struct("<IB")
_FRAME_NAMES = {
    frame.HELLO: "HELLO",
    frame.WELCOME: "WELCOME",
    frame.REFUSE: "REFUSE",
    frame.DATA: "DATA",
    frame.CONTROL: "CONTROL",
    frame.FAILURE: "FAILURE",
    frame.ACK: "ACK",
}
_MESSAGE_NAMES = [kind.__name__ for kind in membership.KINDS]
_RECORD_NAMES = [kind.__name__ for kind in records.KINDS]


class FaultPoint(NamedTuple):
    """When it fires, and what it does."""

    where: str
    kind: str
    nth: int
    hits_source: bool
    target: str
    connection: str
    others: str
    for_ms: int
    """How long a network fault or a stop lasts; 0: until all faults end."""
    after_ms: float = 0.0
    """How much later the target is hit."""


@dataclass
class Chain:
    """Fault points that fire one after another, and how many matching events the first one has counted."""

    points: deque[FaultPoint]
    count: int = 0


def draw_chains(draw: random.Random, theme: Theme, is_durable: bool, takeover_ms: int) -> list[Chain]:
    """A few chains of a few fault points."""
    lengths = draw.choice(theme.chains)
    chains = []
    for length in lengths:
        themes = [theme.first or theme, *[theme] * (length - 1)]
        chains.append(Chain(deque(_draw_point(draw, one, is_durable, takeover_ms) for one in themes)))
    return chains


def _draw_point(draw: random.Random, theme: Theme, is_durable: bool, takeover_ms: int) -> FaultPoint:
    """Draw a fault point; its duration is until the end, a moment, a while, or about that of a takeover."""
    where = draw.choice([where for where in theme.where if is_durable or where != JOURNALLED])
    kinds = theme.records if where == JOURNALLED else theme.messages
    for_ms = draw.choice([0, draw.randint(1, 30), draw.randint(30, 200), round(takeover_ms * draw.uniform(0.5, 4))])
    return FaultPoint(
        where=where,
        kind=draw.choices(list(kinds), list(kinds.values()))[0],
        nth=draw.choice([*theme.nth, draw.randint(1, theme.nth_max), draw.randint(1, theme.nth_max)]),
        hits_source=where == JOURNALLED or draw.random() < theme.source,
        target=draw.choice(theme.target),
        connection=draw.choice(theme.connection),
        others=draw.choice(theme.others),
        for_ms=for_ms,
        after_ms=draw.random() * (for_ms or 60) if draw.random() < theme.later else 0.0,
    )


class _Scanner:
    """Finds the frames in a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[str, int]]:
        """The kind of each frame that is complete now, and where in `data` it begins."""
        before = len(self._rest)
        whole = self._rest + data
        at = 0
        while len(whole) - at >= frame.HEADER_BYTES:
            length, _, kind = _FRAME.unpack_from(whole, at)
            end = at + frame.HEADER_BYTES + length
            if end > len(whole):
                break
            yield _name_of(kind, whole[at + frame.HEADER_BYTES : at + frame.HEADER_BYTES + 1]), max(at - before, 0)
            at = end
        self._rest = whole[at:]


def _name_of(kind: int, body: bytes) -> str:
    if kind == frame.MEMBERSHIP and body and body[0] < len(_MESSAGE_NAMES):
        return _MESSAGE_NAMES[body[0]]
    return _FRAME_NAMES.get(kind, "?")


class FaultPoints:
    """The fault points of a world."""

    def __init__(self, world: FuzzWorld, chains: list[Chain]) -> None:
        """They start to count immediately, or when the group exists."""
        self.world = world
        self.chains = chains
        self._scanners: dict[tuple[str, Stream], _Scanner] = {}
        wait_ms = world.draw.choice([0, 0, 60, 100]) * world.draw.random()
        world.agenda.after(round(wait_ms * MS), self._begin)

    def _begin(self) -> None:
        world = self.world
        if world.is_calm:
            return
        points = [point for chain in self.chains for point in chain.points]
        if any(point.where == WRITTEN for point in points):
            world.network.on_write = self.on_write
        if any(point.where == ARRIVES for point in points):
            world.network.on_read = self.on_read
        world.on_persist = self.on_persist

    def _due(self, where: str, kind: str) -> FaultPoint | None:
        """The fault point that fires at this event, if any."""
        for chain in self.chains:
            point = chain.points[0]
            if point.kind == kind and point.where == where:
                chain.count += 1
                if chain.count == point.nth:
                    chain.count = 0
                    chain.points.popleft()
                    self.chains = [chain for chain in self.chains if chain.points]
                    if not self.chains:
                        self._rest()
                    return point
        return None

    def _rest(self) -> None:
        """All fault points have fired."""
        network = self.world.network
        network.on_write = network.on_read = None
        self.world.on_persist = lambda *_: None

    def on_write(self, stream: Stream, data: bytes) -> bytes:
        """Bytes are written; returns those that are not lost."""
        return self._scan(WRITTEN, stream, data)

    def on_read(self, stream: Stream, data: bytes) -> bytes:
        """Bytes arrive; returns those that are not lost."""
        return self._scan(ARRIVES, stream, data)

    def _scan(self, where: str, stream: Stream, data: bytes) -> bytes:
        scanner = self._scanners.setdefault((where, stream), _Scanner())
        for kind, begin in scanner.feed(data):
            point = self._due(where, kind)
            if point is None:
                continue
            self._fire(point, stream.writer.process, stream.reader.process)
            network = self.world.network
            if point.connection == "reset":
                network.reset(stream.writer.connection)
                return data[:begin]
            if point.connection == "hold" and where == WRITTEN:
                lasts_ms = point.for_ms or self.world.draw.randint(1, 400)
                stream.arrives_ns = max(stream.arrives_ns, self.world.agenda.now_ns + lasts_ms * MS)
        return data

    def on_persist(self, process: Process, pieces: list[bytes]) -> None:
        """Records are written to a journal."""
        data = b"".join(pieces)
        at = 0
        while at + _RECORD.size <= len(data):
            length, code = _RECORD.unpack_from(data, at)
            at += 4 + length
            point = self._due(JOURNALLED, _RECORD_NAMES[code]) if code < len(_RECORD_NAMES) else None
            if point is not None:
                self._fire(point, process, process)

    # Injection.

    def _fire(self, point: FaultPoint, source: Process | Impostor, to: Process | Impostor) -> None:
        one = source if point.hits_source else to
        if isinstance(one, Impostor):
            return
        self.world.note(one, "fault", str(point))
        if point.others:
            self._hit_others(point, [process for process in self.world.living() if process is not one])
        if point.after_ms:
            self.world.agenda.after(round(point.after_ms * MS), self._hit_target, point, one)
        else:
            self._hit_target(point, one)

    def _hit_target(self, point: FaultPoint, one: Process) -> None:
        world, draw = self.world, self.world.draw
        if not point.target or not one.is_alive or world.is_calm:
            return
        if point.target in ("kill", "power"):
            self._kill(one, point.target == "power")
        elif point.target == "stop":
            world.agenda.at(world.agenda.now_ns, one.stop, (point.for_ms or draw.randint(10, 400)) * MS)
        elif point.target == "leave":
            world.agenda.at(world.agenda.now_ns, one.post, one.leave)
        elif point.target == "reset all":
            for connection in list(world.network.connections):
                if one.name in connection.names:
                    world.network.reset(connection)
        else:
            others = [name for name in world.machines if name != one.name]
            mute = [(one.name, other) for other in others] if point.target in ("alone", "mute") else []
            deaf = [(other, one.name) for other in others] if point.target in ("alone", "deaf") else []
            self._cut(mute + deaf, point.for_ms)

    def _cut(self, links: list[Link], for_ms: int) -> None:
        self.world.network.cut(links)
        if for_ms:
            self.world.agenda.after(for_ms * MS, self.world.network.mend, links)

    def _hit_others(self, point: FaultPoint, others: list[Process]) -> None:
        world, draw = self.world, self.world.draw
        if point.others == "divide":
            sides: list[list[str]] = [[], []]
            for name in world.machines:
                sides[draw.randrange(2)].append(name)
            links = [(one, two) for one in sides[0] for two in sides[1]]
            self._cut([*links, *((two, one) for one, two in links)], point.for_ms)
        if point.others == "kill one" and others:
            self._kill(draw.choice(others), draw.random() < 0.2)
        share = draw.choice([0.4, 0.9]) if world.plan.is_durable else 0.3
        for process in others:
            if point.others == "kill" and draw.random() < share:
                self._kill(process, draw.random() < 0.3)
            elif point.others == "stop":
                world.agenda.at(world.agenda.now_ns, process.stop, draw.randint(10, 300) * MS)
            elif point.others == "multicast":
                world.agenda.at(world.agenda.now_ns, process.post, process.multicast, draw.randint(1, 3))
            elif point.others == "leave" and draw.random() < 0.5:
                world.agenda.at(world.agenda.now_ns, process.post, process.leave)

    def _kill(self, process: Process, is_power: bool) -> None:
        """Kill now, at the end of the current event, or some steps later; most processes restart after a while."""
        draw = self.world.draw
        how = draw.randrange(3)
        if how == 0:
            process.fuse = draw.choice([1, 1, 2, draw.randint(1, 10)])
            process.fuse_is_power = is_power
        elif how == 1:
            self.world.agenda.at(self.world.agenda.now_ns, process.die, "fault", is_power)
        else:
            process.die("fault", is_power)
        if draw.random() < 0.9:
            wait_ms = draw.choice([1, 20, 60, 200]) * draw.random()
            self.world.agenda.after(round(wait_ms * MS), self.world.restart, process)

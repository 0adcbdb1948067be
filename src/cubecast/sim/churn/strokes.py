"""Faults that strike at a moment of the protocol, not of the clock.

A *stroke* waits for the k-th message of a kind that is sent or arrives, or for the k-th record of a kind that is
written. Then it strikes one of those concerned, the message itself, the others, or several of these. Some strokes of a
history count from its beginning, others when another one has struck. A message that is held back comes late, or with
the next stroke, whatever is cut off then: it was on its way before.

| struck      | how                                                                                                 |
|-------------|-----------------------------------------------------------------------------------------------------|
| one         | crashes; stops, and goes on after a while; is mute, deaf or alone for a while; is told to leave     |
| the message | is lost or held back; a record is torn, and the process stops                                       |
| the others  | stop; are divided by the toss of a coin; hear no message of this kind for a while; multicast; leave |
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from cubecast.core.membership import Member, MemberId, MembershipSettings
from cubecast.core.membership import messages as m
from cubecast.core.membership import records as r
from cubecast.sim.churn.changes import MEMBERS_MAX, contacts_of, restart
from cubecast.sim.churn.world import MS, Weather, World

SENT, ARRIVES, WRITTEN = "sent", "arrives", "written"
MESSAGES: dict[type, int] = {
    m.Prepare: 2,
    m.Promise: 3,
    m.Refusal: 1,
    m.Flush: 2,
    m.Pull: 1,
    m.Flushed: 2,
    m.Accept: 4,
    m.Accepted: 4,
    m.Decide: 5,
    m.Gone: 1,
    m.Join: 1,
    m.AskState: 1,
    m.State: 4,
    m.NoState: 1,
    m.Data: 1,
    m.Status: 1,
}
RECORDS: dict[type, int] = {
    r.Entered: 3,
    r.Promised: 3,
    r.Adopted: 3,
    r.Delivered: 1,
    r.Settled: 1,
    r.Waiting: 1,
    r.Leaving: 1,
    m.Restore: 1,
    r.Kept: 1,
    r.Over: 2,
}
"""How often a moment is of this kind."""
ONE = ("stop", "stop", "alone", "mute", "mute", "deaf", "crash", "leave", "")
MESSAGE = ("", "lost", "held")
OTHERS = ("", "", "", "stop", "stop", "divided", "hear none", "multicast", "leave")
LINKS: dict[str, tuple[bool, bool]] = {"mute": (True, False), "deaf": (False, True), "alone": (True, True)}
"""Does nothing come from it, does nothing come to it?"""


class Stroke(NamedTuple):
    """When it strikes, and what it does."""

    where: str
    kind: type
    nth: int
    hits_source: bool
    one: str
    message: str
    others: str
    for_ms: int
    """How long whatever it does to the network lasts; 0: until all faults end."""

    def __str__(self) -> str:
        """One line, for whoever reads a history."""
        who = "source" if self.hits_source else "receiver"
        done = {f"the {who}": self.one, "this": self.message, "others": self.others}
        what = "; ".join(f"{name}: {blow}" for name, blow in done.items() if blow)
        lasts = f" for {self.for_ms} ms" if self.for_ms else ""
        return f"{self.kind.__name__} {self.nth} {self.where} ({what}){lasts}"


@dataclass
class Row:
    """Strokes that wait one for another, and how often the moment of the first one was nearly there."""

    strokes: deque[Stroke]
    count: int = 0


def draw_rows(draw: random.Random, is_durable: bool) -> list[Row]:
    """A few rows of a few strokes."""
    lengths = draw.choice([(1,), (2,), (3,), (1, 1), (2, 1), (2, 2), (1, 1, 1)])
    return [Row(deque(_draw_stroke(draw, is_durable) for _ in range(length))) for length in lengths]


def _draw_stroke(draw: random.Random, is_durable: bool) -> Stroke:
    where = draw.choice([SENT, SENT, ARRIVES, *([WRITTEN] if is_durable else [])])
    kinds = RECORDS if where == WRITTEN else MESSAGES
    kind = draw.choices(list(kinds), list(kinds.values()))[0]
    return Stroke(
        where=where,
        kind=kind,
        nth=draw.choice([1, 1, 1, 2, 2, 3, draw.randint(1, 12)]),
        hits_source=where == WRITTEN or draw.random() < 0.6,
        one=draw.choice(ONE),
        message=draw.choice(MESSAGE),
        others=draw.choice(OTHERS),
        for_ms=draw.choice([0, 0, 0, draw.randint(1, 30), draw.randint(30, 300)]),
    )


class Struck(World):
    """A world with strokes."""

    def __init__(
        self, seed: int, settings: MembershipSettings, weather: Weather, make: Callable[..., Member] = Member
    ) -> None:
        """No strokes yet: `rows` is to be set."""
        super().__init__(seed, settings, weather, make)
        self.rows: list[Row] = []
        self._held: list[tuple[MemberId, MemberId, Any]] = []
        self._unheard: dict[type, int] = {}

    def calm(self) -> None:
        """All faults end, and what is held back comes."""
        super().calm()
        self.rows.clear()
        self._unheard.clear()
        self._let_go()

    # Moments.

    def _due(self, where: str, kind: type) -> Stroke | None:
        """The stroke that waited for this moment."""
        for row in self.rows:
            stroke = row.strokes[0]
            if stroke.kind is kind and stroke.where == where:
                row.count += 1
                if row.count == stroke.nth:
                    row.count = 0
                    row.strokes.popleft()
                    self.rows = [row for row in self.rows if row.strokes]
                    return stroke
        return None

    def _send(self, source: MemberId, action: m.Send, late_ms: float = 0.0) -> None:
        kind = type(action.message)
        stroke = self._due(SENT, kind)
        fate = self._strike(stroke, source, source.name, action.to.name) if stroke else ""
        if fate == "held":
            self._hold(source, action.to, action.message)
        elif fate == "lost" or self._unheard.get(kind, -1) >= self.now_ns:
            self.lost_ns[source, action.to] = self.now_ns
        elif self.processes[source].is_alive:
            super()._send(source, action, late_ms)

    def _arrive(self, source: MemberId, to: MemberId, message: Any) -> None:
        receiver = self.living.get(to.name)
        stroke = self._due(ARRIVES, type(message)) if receiver and self._passes(source, to) else None
        fate = self._strike(stroke, receiver, source.name, to.name) if stroke and receiver else ""
        if fate == "held":
            self._hold(source, to, message)
        elif fate == "lost":
            self.lost_ns[source, to] = self.now_ns
        else:
            super()._arrive(source, to, message)

    def _write(self, name: int, records: tuple[r.Record, ...]) -> bool:
        stroke = next(filter(None, (self._due(WRITTEN, type(record)) for record in records)), None)
        fate = self._strike(stroke, self.living[name], name, name) if stroke else ""
        if fate == "lost":
            self._stop(name)
        is_gone = name not in self.living and not self._disks[name]
        return fate != "lost" and not is_gone and super()._write(name, records)

    # Strokes.

    def _strike(self, stroke: Stroke, seen_by: MemberId, source: int, to: int) -> str:
        """Strike all but the message; gives its fate."""
        self._note(seen_by, "stroke", str(stroke))
        self._let_go()
        one = source if stroke.hits_source else to
        if stroke.others:
            self._strike_others(stroke, [name for name in sorted(self.living) if name != one])
        if one in self.living:
            self._strike_one(stroke, one)
        return stroke.message

    def _strike_one(self, stroke: Stroke, name: int) -> None:
        if stroke.one == "stop":
            self._stop(name)
        elif stroke.one == "crash":
            self.crash(name)
        elif stroke.one == "leave":
            self.at(self.now_ns, partial(self._leave, name))
        elif stroke.one:
            self._cut_off(name, *LINKS[stroke.one], stroke.for_ms)

    def _strike_others(self, stroke: Stroke, names: list[int]) -> None:
        if stroke.others == "hear none":
            self._unheard[stroke.kind] = self.now_ns + stroke.for_ms * MS if stroke.for_ms else 1 << 62
        elif stroke.others == "divided":
            sides = [self.random.random() < 0.5 for _ in range(MEMBERS_MAX)]
            self.divide([[name for name, side in enumerate(sides) if side is here] for here in (True, False)])
            if stroke.for_ms:
                self.at(self.now_ns + stroke.for_ms * MS, partial(self.divide, []))
        for name in names:
            if stroke.others == "stop":
                if self.settings.is_durable or self.random.random() < 0.3:  # a crash of all would only end the group
                    self._stop(name)
            elif stroke.others == "multicast":
                self.at(self.now_ns, partial(self.multicast, name))
            elif stroke.others == "leave":
                self.at(self.now_ns, partial(self._leave, name))

    def _stop(self, name: int) -> None:
        """Most go on after a while: from the disk, or in a new life where there is none."""
        if name not in self.living:
            return
        if self.settings.is_durable:
            self.stop(name)
        else:
            self.crash(name)
        if self.random.random() < 0.9:
            wait_ms = self.random.choice([1, 20, 100, 300]) * self.random.random()
            self.at(self.now_ns + round(wait_ms * MS), partial(self._go_on, name))

    def _go_on(self, name: int) -> None:
        if self.settings.is_durable:
            restart(self, name)
        elif name not in self.living and self.living:
            self.join(name, contacts_of(self.random, sorted(self.living)))

    def _leave(self, name: int) -> None:
        if name in self.living:
            self.leave(name)

    def _cut_off(self, name: int, is_mute: bool, is_deaf: bool, for_ms: int) -> None:
        others = [other for other in range(MEMBERS_MAX) if other != name]
        links = [(name, other) for other in others if is_mute] + [(other, name) for other in others if is_deaf]
        self._cut.update(links)
        if for_ms:
            self.at(self.now_ns + for_ms * MS, partial(self.mend, links))

    # What is held back.

    def _hold(self, source: MemberId, to: MemberId, message: Any) -> None:
        """Until the next stroke, or for a while."""
        self.lost_ns[source, to] = self.now_ns
        if self.random.random() < 0.5:
            self._held.append((source, to, message))
        else:
            late_ms = self.random.choice([10, 100, 600]) * self.random.random()
            self.at(self.now_ns + round(late_ms * MS), partial(self._hand_over, source, to, message))

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for one in held:
            self.at(self.now_ns, partial(self._hand_over, *one))

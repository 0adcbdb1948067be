"""A group under steady churn, measured: pauses, work lost, control bytes, time to stable, links that change.

The group keeps its size: whoever crashes or leaves is replaced by a newcomer with the next change. Changes come at
random, `churn` a second for the whole group; so do messages. Then nothing happens any more, and the group settles.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from cubecast.core.membership import MemberId, MembershipSettings, View
from cubecast.core.membership.messages import Data, Send, State
from cubecast.core.membership.neighbours import neighbours
from cubecast.errors import LocalProtocolError
from cubecast.sim.churn.figures import quantile, stable_times_ns, waits_ns
from cubecast.sim.churn.octets import octets_of
from cubecast.sim.churn.promises import Judge
from cubecast.sim.churn.world import MS, Weather, World

SETTLE_TICKS = 150


@dataclass(frozen=True, kw_only=True)
class ChurnScenario:
    """One run: one seed, one result."""

    members: int
    churn: float
    """Changes a second: a crash, a leave or a join, at random."""
    seconds: float = 20.0
    messages_per_second: float = 5.0
    """Of the whole group."""
    tick_ms: float = 100.0
    """A silent member is suspected after five ticks, a change waits ten for an answer."""
    loss: float = 0.0
    delay_ms: tuple[float, float] = (1.0, 20.0)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 2 <= self.members <= 4000:
            raise LocalProtocolError(f"members = {self.members}: give 2 to 4000")
        if not 0 <= self.loss < 1:
            raise LocalProtocolError(f"loss = {self.loss}: give at least 0 and less than 1")
        for name in ("churn", "messages_per_second"):
            if not 0 <= getattr(self, name) <= 1000:
                raise LocalProtocolError(f"{name} = {getattr(self, name)}: give 0 to 1000 a second")
        for name in ("seconds", "tick_ms"):
            if not 0 < getattr(self, name) < 1e6:
                raise LocalProtocolError(f"{name} = {getattr(self, name)}: give more than 0")

    def settings(self) -> MembershipSettings:
        """What the members are told."""
        tick_ns = round(self.tick_ms * MS)
        return MembershipSettings(
            tick_ns=tick_ns,
            suspect_ns=5 * tick_ns,
            batch_ns=tick_ns,
            patience_ns=10 * tick_ns,
            takeover_ns=15 * tick_ns,
        )


@dataclass(frozen=True, kw_only=True)
class ChurnResult:
    """What one run showed. A pause is how long one member delivered nothing because of one change of the view."""

    scenario: ChurnScenario
    changes: int
    views: int
    pause_median_ms: float
    pause_p99_ms: float
    paused_share: float
    """Of the time of all members."""
    wait_p99_ms: float
    """Until a message that was multicast was sent."""
    returned: int
    """Messages that an excluded member got back."""
    excluded_living: int
    stable_median_ms: float
    stable_p99_ms: float
    control_bytes_per_member_s: float
    control_messages_per_member_s: float
    links_changed_per_view: float
    links_changed_share: float
    settled: bool
    broken: tuple[str, ...]


class Measured(World):
    """A world that counts what is said."""

    control_bytes = 0
    control_messages = 0
    _last: Send | None = None
    _last_bytes = 0

    def _send(self, source: MemberId, action: Send, late_ms: float = 0.0) -> None:
        message = action.message
        if not isinstance(message, Data | State):
            if self._last is None or self._last.message is not message:
                self._last, self._last_bytes = action, octets_of(message)
            self.control_bytes += self._last_bytes
            self.control_messages += 1
        super()._send(source, action, late_ms)


def run_churn(scenario: ChurnScenario, progress: Callable[[float], None] = lambda _: None) -> ChurnResult:
    """Run it; `progress` is told the share that is done."""
    draw = random.Random(scenario.seed)
    world = Measured(scenario.seed, scenario.settings(), Weather(loss=scenario.loss, delay_ms=scenario.delay_ms))
    world.rejoin_ms = scenario.tick_ms
    world.found(range(scenario.members))
    end_ns = round(scenario.seconds * 1000 * MS)
    changes = _plan(world, draw, scenario, end_ns)
    while world.now_ns < end_ns:
        world.run_until(min(end_ns, world.now_ns + world.settings.tick_ns))
        progress(world.now_ns / end_ns)
    counted = Counted(world.control_bytes, world.control_messages, _paused_ns(world))
    for _ in range(SETTLE_TICKS):
        world.run_until(world.now_ns + world.settings.tick_ns)
        if world.is_settled():
            break
    return _result(scenario, world, len(changes), counted)


class Counted(NamedTuple):
    """What had come together when the last change was made."""

    control_bytes: int
    control_messages: int
    paused_ns: int


def _paused_ns(world: World) -> int:
    """All pauses until now, those that still last among them."""
    frozen = [process.core for process in world.in_group() if process.core.acceptor.is_frozen]
    return sum(world.pauses_ns) + sum(world.now_ns - core.frozen_ns for core in frozen)


def _plan(world: World, draw: random.Random, scenario: ChurnScenario, end_ns: int) -> list[int]:
    """Moments of changes and of messages, at random; the first tick is left in peace."""
    names = iter(range(scenario.members, 1 << 30))
    changes = _moments(draw, scenario.churn, world.settings.tick_ns, end_ns)
    for at_ns in changes:
        world.at(at_ns, lambda: _change(world, draw, scenario.members, next(names)))
    for at_ns in _moments(draw, scenario.messages_per_second, world.settings.tick_ns, end_ns):
        world.at(at_ns, lambda: world.multicast(draw.choice(sorted(world.living))))
    return changes


def _moments(draw: random.Random, rate: float, begin_ns: int, end_ns: int) -> list[int]:
    moments: list[int] = []
    at_ns = begin_ns
    while rate:
        at_ns += round(draw.expovariate(rate) * 1000 * MS)
        if at_ns >= end_ns:
            break
        moments.append(at_ns)
    return moments


def _change(world: World, draw: random.Random, members: int, name: int) -> None:
    staying = sorted(one.core.me.name for one in world.in_group() if not one.core.leaving)
    if len(staying) < members and staying:
        world.join(name, draw.sample(staying, min(3, len(staying))))
    elif draw.random() < 0.5:
        world.crash(draw.choice(staying))
    else:
        world.leave(draw.choice(staying))


def _result(scenario: ChurnScenario, world: Measured, changes: int, counted: Counted) -> ChurnResult:
    judge = Judge()
    judge.read(world.history)
    settled = world.is_settled()
    if settled:
        judge.judge_end(world.history, [process.core.me for process in world.in_group()])
    pauses = [pause for pause in world.pauses_ns if pause > 0]
    member_s = scenario.members * scenario.seconds
    links = _links_changed([judge.views[number] for number in sorted(judge.views)])
    stable = stable_times_ns(world.history)
    excluded = [row.data for row in world.history if row.event == "excluded"]
    return ChurnResult(
        scenario=scenario,
        changes=changes,
        views=len(judge.views) - 1,
        pause_median_ms=quantile(pauses, 0.5) / MS,
        pause_p99_ms=quantile(pauses, 0.99) / MS,
        paused_share=counted.paused_ns / 1e9 / member_s,
        wait_p99_ms=quantile(waits_ns(world.history), 0.99) / MS,
        returned=sum(len(payloads) for payloads, _ in excluded),
        excluded_living=len(excluded),
        stable_median_ms=quantile(stable, 0.5) / MS,
        stable_p99_ms=quantile(stable, 0.99) / MS,
        control_bytes_per_member_s=counted.control_bytes / member_s,
        control_messages_per_member_s=counted.control_messages / member_s,
        links_changed_per_view=sum(changed for changed, _ in links) / max(1, len(links)),
        links_changed_share=sum(changed / of for changed, of in links) / max(1, len(links)),
        settled=settled,
        broken=tuple(judge.broken),
    )


def _links_changed(views: list[View]) -> list[tuple[int, int]]:
    """For each view after the first: links of the hypercube that are not as before, and links in all."""
    sets = [_links(view) for view in views]
    return [(len(old ^ new), max(1, len(new))) for old, new in pairwise(sets)]


def _links(view: View) -> set[tuple[MemberId, MemberId]]:
    members = view.members
    return {
        (min(who, members[other]), max(who, members[other]))
        for rank, who in enumerate(members)
        for other in neighbours(rank, len(members), 2)
    }

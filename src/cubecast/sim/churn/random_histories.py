"""Random histories of a changing group: everything that can go wrong, several things at once.

`run_history(seed)` draws a group, a network and a plan of joins, leaves, crashes, returns, partitions and bursts of
messages; then all faults end and the group is given time to settle. The promises are judged throughout. In histories of
even seeds all happens by the clock; in those of odd seeds faults strike at moments of the protocol (`strokes`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cubecast.core.membership import Member, MembershipSettings, View, has_quorum
from cubecast.core.membership.member import JOINING, MEMBER
from cubecast.sim.churn.changes import CHANGES, DURABLE, MEMBERS_MAX, STRUCK, burst, happen, restart, talk
from cubecast.sim.churn.promises import Judge
from cubecast.sim.churn.strokes import Struck, draw_rows
from cubecast.sim.churn.world import MS, Weather, World

SETTLE_NS = 12_000 * MS
FOUNDERS = (1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7)
STRUCK_FOUNDERS = (2, 3, 3, 3, 4, 4, 5, 6)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one history showed."""

    seed: int
    broken: tuple[str, ...]
    is_lost: bool
    """Did the group lose its quorum, or everybody who had the state?"""
    views: int
    deliveries: int
    messages: int
    settle_ms: float


def run_history(
    seed: int, make: Callable[..., Member] = Member, settings: MembershipSettings | None = None
) -> tuple[Outcome, World]:
    """Draw a history, run it, judge it."""
    draw = random.Random(seed)
    is_struck = seed % 2 == 1
    drawn = settings or _draw_settings(draw)
    world = Struck(seed, drawn, _draw_mild(draw), make) if is_struck else World(seed, drawn, _draw_weather(draw), make)
    founders = draw.choice(STRUCK_FOUNDERS if is_struck else [*FOUNDERS, draw.randint(8, 12)])
    world.found(range(founders))
    end_ns = draw.randint(150, 900) * MS
    if isinstance(world, Struck):
        _plan_strokes(world, draw, founders, end_ns)
    else:
        _plan(world, draw, founders, end_ns)
    world.run_until(end_ns)
    world.calm()
    _start_again(world, draw)
    settle_ns = _settle(world)
    judge = Judge()
    judge.read(world.history)
    lost = is_lost(world)
    if world.is_settled():
        judge.judge_end(world.history, [process.core.me for process in world.in_group()])
    elif not lost:
        judge.broken.append(f"progress: a group with a quorum has not settled after {settle_ns / 1e9:.1f} s")
    return _outcome(seed, world, judge, lost, settle_ns), world


def _outcome(seed: int, world: World, judge: Judge, lost: bool, settle_ns: int) -> Outcome:
    return Outcome(
        seed=seed,
        broken=tuple(judge.broken),
        is_lost=lost,
        views=len(judge.views),
        deliveries=sum(row.event == "deliver" for row in world.history),
        messages=world.messages,
        settle_ms=settle_ns / MS,
    )


def _start_again(world: World, draw: random.Random) -> None:
    """Most of those who stopped go on from their disks, one after another."""
    stopped = [name for name in world.stopped() if draw.random() < 0.85]
    for name in stopped:
        world.at(world.now_ns + draw.randrange(300) * MS, partial(restart, world, name))
    if stopped:
        world.run_until(world.now_ns + 300 * MS)


def _settle(world: World) -> int:
    """Run until nothing is left to do; gives how long that took."""
    began_ns = world.now_ns
    while not world.is_settled() and world.now_ns - began_ns < SETTLE_NS and world.in_group():
        world.run_until(world.now_ns + world.settings.tick_ns)
        if world.now_ns - began_ns > SETTLE_NS // 4:
            if is_lost(world):
                break
            _rescue(world)
    return world.now_ns - began_ns


def _rescue(world: World) -> None:
    """Who is blocked and knows nobody in the group, or asks only those who are gone, cannot find it by itself.

    Somebody starts it again, with other contacts.
    """
    cores = [process.core for process in world.in_group()]
    members = [core for core in cores if core.phase == MEMBER]
    last = max((core.view.number for core in members), default=0)
    reached = {core.me.name for core in members if core.view.number == last}
    for core in cores:
        is_alone = core.is_blocked and not core.acquaintances & reached
        if is_alone or (core.phase == JOINING and not reached.intersection(core._contacts)):
            world.come_back(core.me)


def _draw_settings(draw: random.Random) -> MembershipSettings:
    """Every third group is hasty: it suspects and takes over early, so that coordinators get in each other's way."""
    suspect_ms, patience_ms, takeover_ms = draw.choice([(100, 200, 300), (100, 60, 120), (40, 10, 15)])
    return MembershipSettings(
        suspect_ns=suspect_ms * MS,
        patience_ns=patience_ms * MS,
        takeover_ns=takeover_ms * MS,
        observers=draw.choice([1, 2, 2, 3]),
        batch_ns=draw.choice([0, 20, 60]) * MS,
        chunk_bytes=draw.choice([8, 64, 1 << 16]),
        behind_max=draw.choice([0, 0, 0, 10]),
        cube_from=draw.choice([2, 33]),
        is_durable=draw.random() < 0.5,
    )


def _draw_weather(draw: random.Random) -> Weather:
    return Weather(
        loss=draw.choice([0, 0, 0.02, 0.1, 0.3]),
        double=draw.choice([0, 0, 0.1]),
        stale=draw.choice([0, 0, 0.02, 0.1]),
        delay_ms=draw.choice([(0.2, 3.0), (0.1, 25.0), (1.0, 1.0)]),
    )


def _draw_mild(draw: random.Random) -> Weather:
    return Weather(
        loss=draw.choice([0, 0, 0, 0.02, 0.1]),
        double=draw.choice([0, 0, 0.1]),
        stale=draw.choice([0, 0, 0, 0.05]),
        delay_ms=draw.choice([(0.2, 3.0), (0.1, 25.0), (1.0, 1.0)]),
    )


def _plan(world: World, draw: random.Random, founders: int, end_ns: int) -> None:
    """Things to happen at random times; whom they hit is drawn when they happen."""
    names = iter(range(founders, MEMBERS_MAX))
    for _ in range(draw.randint(0, 25)):
        at_ns = draw.randrange(end_ns)
        world.at(at_ns, lambda: burst(world, draw))
    for _ in range(draw.choice([0, 1, 2, 4, 8])):
        what = draw.choice(DURABLE if world.settings.is_durable else CHANGES)
        moments = 2 if draw.random() < 0.2 else 1  # several at once
        at_ns = draw.randrange(end_ns)
        for _ in range(moments):
            then_ns = min(at_ns + draw.randint(0, 5) * MS, end_ns - 1)
            world.at(then_ns, partial(happen, world, draw, what, names))


def _plan_strokes(world: Struck, draw: random.Random, founders: int, end_ns: int) -> None:
    """A change or two early on, so that there are moments to strike at."""
    names = iter(range(founders, MEMBERS_MAX))
    world.rows.extend(draw_rows(draw, world.settings.is_durable))
    for _ in range(draw.randint(0, 15)):
        world.at(draw.randrange(end_ns), lambda: talk(world, draw))
    for _ in range(draw.choice([1, 2, 2, 3])):
        world.at(draw.randrange(end_ns // 2), partial(happen, world, draw, draw.choice(STRUCK), names))


def is_lost(world: World) -> bool:
    """Can the group go on no more: are too few left of its last view, or nobody who has the state?"""
    views: dict[int, View] = dict(world.decided)
    for process in world.processes.values():
        if hasattr(process.core, "view"):
            views[process.core.view.number] = process.core.view
        if process.core.last_decision is not None:
            view = process.core.last_decision.proposal.view
            views[view.number] = view
    if not views:
        return True  # the only ones who ever were in it have gone, and those who asked them are left
    last = max(views)
    present = [process.core for process in world.in_group()]
    at = {
        number: {core.me for core in present if core.phase == MEMBER and core.view.number == number}
        for number in (last - 1, last)
    }
    if not at[last] and (last - 1 not in views or not has_quorum(views[last - 1], at[last - 1])):
        return not _was_told(world, last)  # those who know it crashed, and those before it are too few to find out
    near = at[last] | at[last - 1] | {core.me for core in present if core.phase == JOINING}
    has_state = any(core.is_ready for core in present if core.phase == MEMBER and core.me in views[last].members)
    return not has_state or not has_quorum(views[last], near)


def _was_told(world: World, view: int) -> bool:
    """Did somebody who went with this view tell one that is still there?"""
    present = world.in_group()
    return any(
        process in present and world.lost_ns.get((who, process.core.me), -1) < time_ns
        for time_ns, who, before, told in world.goodbyes
        if before == view - 1
        for process in told
    )

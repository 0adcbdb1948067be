"""Random histories of whole members: everything that can go wrong, several things at once.

`run_history(seed)` draws settings, a group, a network and a plan of joins, leaves, kills, restarts, partitions, disk
faults and load; then all faults end and the group is given time to settle. In histories of even seeds all happens by
the clock; in those of odd seeds faults strike at moments of the protocol (`fault_points`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.catalogue import chosen, protocols
from cubecast.protocols.membership.views import has_quorum
from cubecast.sim.fuzz import changes
from cubecast.sim.fuzz.agenda import MS, SECOND
from cubecast.sim.fuzz.fault_points import FaultPoints, draw_chains
from cubecast.sim.fuzz.judge import Judge
from cubecast.sim.fuzz.process import Process
from cubecast.sim.fuzz.world import Event, Plan, World

SETTLE_NS = 20 * SECOND
FOUNDERS = (1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 7)
DATA = tuple(one.name for one in protocols("causal") if one.live is not None)
STABILITY = (chosen("stability").name, *(one.name for one in protocols("stability")))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one history showed."""

    seed: int
    violations: tuple[str, ...]
    is_lost: bool
    """Did the group lose its quorum, or everybody who had the state?"""
    settle_ms: float
    events: list[Event] = field(repr=False)
    world: World = field(repr=False)

    @property
    def replay(self) -> str:
        """The command that shows this history."""
        return f"cubecast fuzz --seed {self.seed} --verbose"


def run_history(
    seed: int,
    *,
    faults: bool = True,
    make_member: Callable[..., Any] = Member,
    settings: Settings | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Draw a history, run it, judge it."""
    draw = random.Random(seed)
    plan = plan or _draw_plan(draw)
    world = World(seed, settings or _draw_settings(draw, plan), plan, make_member)
    _draw_network(draw, world, faults)
    end_ns = world.agenda.now_ns + draw.randint(150, 900) * MS
    _found(draw, world)
    _plan_load(draw, world, end_ns)
    if faults:
        _plan_faults(seed, draw, world, end_ns)
    world.agenda.run_until(end_ns)
    world.calm()
    _start_again(draw, world)
    settle_ns, is_lost = _settle(world)
    return _judge(seed, world, settle_ns, is_lost)


def _judge(seed: int, world: World, settle_ns: int, is_lost: bool) -> Outcome:
    keeps_everything = world.plan.makes_snapshots or world.settings.keep == "all"
    judge = Judge(
        quorum=world.settings.quorum,
        makes_snapshots=world.plan.makes_snapshots,
        keeps_everything=keeps_everything,
    )
    judge.read(world.events)
    if is_settled(world):
        present = wanted(world)
        judge.judge_end([process.name for process in present], present[0].member.view.group_id if present else 0)
    elif not is_lost:
        judge.broken.append(f"progress: not settled after {settle_ns / SECOND:.1f} s: {describe(world)}")
    return Outcome(
        seed=seed,
        violations=(*world.violations, *judge.broken),
        is_lost=is_lost,
        settle_ms=settle_ns / MS,
        events=world.events,
        world=world,
    )


# Drawing.


def _draw_plan(draw: random.Random) -> Plan:
    return Plan(
        is_durable=draw.random() < 0.55,
        makes_snapshots=draw.random() < 0.8,
        has_certificates=draw.random() < 0.3,
        slow_application=draw.choice([0.0, 0.0, 0.3, 1.0]),
        snapshot_fails=draw.choice([0.0, 0.0, 0.3]),
        sync_ms=draw.choice([(0.0, 0.0), (0.0, 0.5), (0.0, 0.5), (1.0, 40.0)]),
        payload_bytes=draw.choice([(4, 60), (4, 4), (4, 400)]),
    )


def _draw_settings(draw: random.Random, plan: Plan) -> Settings:
    """Every third group is hasty: it suspects and takes over early, so that coordinators get in each other's way."""
    suspect_ms, patience_ms, takeover_ms = draw.choice([(100, 200, 300), (100, 60, 120), (60, 10, 15)])
    window_bytes = draw.choice([500, 4000, 1 << 20])
    return Settings(
        data=draw.choice(DATA),
        stability=draw.choice(STABILITY),
        quorum=draw.choice(["majority", "majority", "majority", "majority", "any"]),
        round_every_s=draw.choice([0.005, 0.03]),
        heartbeat_s=0.02,
        suspect_after_s=suspect_ms / 1000,
        observers=draw.choice([1, 2, 2, 3]),
        batch_s=draw.choice([0, 0.02, 0.06]),
        patience_s=patience_ms / 1000,
        takeover_s=takeover_ms / 1000,
        slow=draw.choice(["name", "wait", "exclude"]),
        behind_messages=draw.choice([10, 100_000]),
        rejoin=True,
        resend=draw.choice(["certain", "certain", "never"]),
        keep="none" if plan.makes_snapshots else draw.choice(["none", "all", 5]),
        piece_bytes=draw.choice([8, 64, 1 << 16]),
        window_messages=draw.choice([2, 16, 4096]),
        window_bytes=window_bytes,
        payload_bytes_max=min(window_bytes, 1 << 16),
        backlog_bytes=draw.choice([300, 1 << 20]),
        sync=draw.choice(["always", "always", "always", "interval", "never"]),
        journal_bytes=draw.choice([2000, 1 << 20]),
        handshake_timeout_s=draw.choice([0.1, 1.0]),
        connection_bytes=draw.choice([500, 1 << 16]),
    )


def _draw_network(draw: random.Random, world: World, faults: bool) -> None:
    network = world.network
    network.latency_ms = draw.choice([(0.1, 2.0), (0.1, 2.0), (0.1, 15.0), (1.0, 1.0)])
    network.rechunk = draw.choice([0.0, 0.1, 0.5])
    network.buffer_bytes = draw.choice([600, 1 << 16, 1 << 16])
    network.late = draw.choice([0.0, 0.2]) if faults else 0.0


def _found(draw: random.Random, world: World) -> None:
    """A founder and others that join it, or several founders, some of them late."""
    count = draw.choice(FOUNDERS)
    machines = [world.machine(number) for number in range(count)]
    if count == 1 or draw.random() < 0.4:
        world.start(machines[0], "found")
        for machine in machines[1:]:
            world.agenda.after(draw.randrange(50 * MS), world.start, machine, "join", (machines[0].name,))
        return
    for machine in machines:
        machine.founders = tuple(one.name for one in machines)
    for place, machine in enumerate(machines):
        late_ms = draw.choice([1, 1, 1, 30, 200]) * draw.random()
        if place < count // 2 + 1 or draw.random() < 0.8:
            world.agenda.after(round(late_ms * MS), world.start, machine, "form")


def _plan_load(draw: random.Random, world: World, end_ns: int) -> None:
    span_ns = end_ns - world.agenda.now_ns
    for _ in range(draw.randint(2, 25)):
        world.agenda.after(draw.randrange(span_ns), draw.choice([changes.burst, changes.talk]), world)


def _plan_faults(seed: int, draw: random.Random, world: World, end_ns: int) -> None:
    span_ns = end_ns - world.agenda.now_ns
    if seed % 2:
        FaultPoints(world, draw_chains(draw, world.plan.is_durable))
        table, count = changes.AT_FAULT_POINTS, draw.choice([1, 2, 2, 3])
    else:
        table = changes.DURABLE if world.plan.is_durable else changes.ANY
        count = draw.choice([0, 1, 2, 4, 8])
    for _ in range(count):
        at_ns = draw.randrange(span_ns // 2 if seed % 2 else span_ns)
        for _ in range(2 if draw.random() < 0.2 else 1):
            change = draw.choices(list(table), list(table.values()))[0]
            world.agenda.after(at_ns + draw.randint(0, 5) * MS, change, world)


# The end.


def _start_again(draw: random.Random, world: World) -> None:
    """Most of those who are down start again, one after another; the others are given up."""
    for _, machine in sorted(world.machines.items()):
        if machine.process is None and machine.is_wanted:
            if draw.random() < 0.85:
                world.agenda.after(draw.randrange(300 * MS), world.start, machine)
            else:
                machine.is_wanted = False
    world.agenda.run_until(world.agenda.now_ns + 300 * MS)


def _settle(world: World) -> tuple[int, bool]:
    """Run until nothing is left to do; gives how long that took, and whether the group is lost."""
    began_ns = world.agenda.now_ns
    while world.agenda.now_ns - began_ns < SETTLE_NS:
        for _, machine in sorted(world.machines.items()):
            if machine.process is None and machine.is_wanted:
                world.start(machine)
        if is_settled(world):
            return world.agenda.now_ns - began_ns, False
        if world.violations or (world.agenda.now_ns - began_ns > 3 * SECOND and is_lost(world)):
            return world.agenda.now_ns - began_ns, True
        if world.agenda.now_ns - began_ns > 4 * SECOND:
            _rescue(world)
        world.agenda.run_until(world.agenda.now_ns + 20 * MS)
    return world.agenda.now_ns - began_ns, is_lost(world)


def _rescue(world: World) -> None:
    """Who asks only those who are gone cannot find the group by itself: it is started again with other contacts."""
    members = [process for process in world.living() if process.member.phase == "member"]
    last = max((process.member.view.number for process in members), default=0)
    reached = {process.name for process in members if process.member.view.number == last}
    for process in world.living():
        member = process.member
        known = {*member.names, *member.contacts, *member.founders}
        if process.name not in reached and reached and not known & reached:
            process.die("rescue", False)


def wanted(world: World) -> list[Process]:
    """All processes that are to be in the group."""
    return [process for process in world.living() if process.machine.is_wanted]


def is_settled(world: World) -> bool:
    """Are all who want to be in the group in one view, and is nothing left to do?"""
    processes = world.living()
    members = [process.member for process in processes]
    if any(not process.machine.is_wanted or process.is_busy for process in processes):
        return False
    if any(member.phase != "member" or not member.is_ready or member.is_changing for member in members):
        return False
    if any(member.is_blocked for member in members):
        return False
    views = {member.view for member in members}
    if len(views) > 1:
        return False
    for view in views:
        if set(view.members) != {member.me for member in members}:
            return False
    if any(member.log.unstable or len(member.own) for member in members):
        return False
    frontiers = [member.frontier for member in members]
    return all(frontier == frontiers[0] for frontier in frontiers)


def is_lost(world: World) -> bool:
    """Can the group not continue: are too few left of its last view, or nobody who has the state?"""
    members = [process.member for process in world.living()]
    placed = [member for member in members if member.view is not None and member.me in member.view.members]
    if not placed or len({member.view.group_id for member in placed}) > 1:
        return True  # founders that forgot everything founded another group
    last = max(member.view.number for member in placed)
    views = {member.view for member in placed if member.view.number == last}
    for view in views:
        present = {member.me for member in members if member.me in view.members}
        has_state = any(member.is_ready for member in placed if member.view == view)
        if has_state and has_quorum(view.members, present, world.settings.quorum):
            return False
    return True


def describe(world: World) -> str:
    """Where everybody is, in one line."""
    parts = []
    for process in world.living():
        member = process.member
        number = member.view.number if member.view is not None else 0
        flags = "".join(
            letter
            for letter, is_set in (
                ("B", member.is_blocked),
                ("C", member.is_changing),
                ("r", member.is_ready),
                ("w", process.is_busy),
                ("L", not process.machine.is_wanted),
            )
            if is_set
        )
        parts.append(f"{process.name.split(':')[0].rpartition('.')[2]}:{member.phase}@{number}{flags}")
    return " ".join(parts)

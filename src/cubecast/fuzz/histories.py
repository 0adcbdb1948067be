"""Random histories of whole members, with several faults at once.

`run_history(seed)` draws settings, a group, a network and a plan of joins, leaves, kills, restarts, partitions, disk
faults and load; then all faults end and the group gets time to recover. In histories of even seeds changes come at
random times; in those of odd seeds faults are injected at steps of the protocol (`fault_points`), and most of these
histories concentrate on one part of it (`themes`). A group that cannot recover by itself gets the actions of an
operator (`operator`).
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cubecast.fuzz import changes
from cubecast.fuzz.agenda import MS, SECOND
from cubecast.fuzz.fault_points import FaultPoints, draw_chains
from cubecast.fuzz.judge import Judge
from cubecast.fuzz.operator import Operator, is_lost
from cubecast.fuzz.process import Process
from cubecast.fuzz.themes import ANYTHING, THEMES, Theme
from cubecast.fuzz.world import FuzzWorld, HistoryEvent, HistoryPlan
from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.catalogue import chosen, list_protocols

SETTLE_NS = 20 * SECOND
STEP_NS = 10 * MS
FOUNDERS = (1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 7)
DATA = tuple(one.name for one in list_protocols("causal") if one.live is not None)
STABILITY = (
    chosen("stability").name,
    *(one.name for one in list_protocols("stability") if not one.paper.startswith("own")),
)
"""The protocols of the papers. Another entry would change the histories of all seeds; use `stability=` for others."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one history."""

    seed: int
    stability: str | None
    """The stability protocol, if it was not drawn."""
    violations: tuple[str, ...]
    is_lost: bool
    """Did the group lose its quorum, or all members with the state?"""
    events: list[HistoryEvent] = field(repr=False)
    world: FuzzWorld = field(repr=False)

    @property
    def replay(self) -> str:
        """The command that replays this history."""
        chosen_by_hand = f" --stability {self.stability}" if self.stability is not None else ""
        return f"cubecast fuzz --seed {self.seed}{chosen_by_hand} --verbose"


def run_history(
    seed: int,
    *,
    faults: bool = True,
    make_member: Callable[..., Any] = Member,
    make_world: Callable[..., FuzzWorld] = FuzzWorld,
    settings: Settings | None = None,
    plan: HistoryPlan | None = None,
    stability: str | None = None,
    theme: Theme | None = None,
) -> Outcome:
    """Draw a history, run it, judge it; `stability` and `theme` replace what is drawn."""
    draw = random.Random(seed)
    if theme is None:
        theme = draw.choice(THEMES) if faults and seed % 2 else ANYTHING
    plan = plan or _draw_plan(draw, theme)
    settings = settings or _draw_settings(draw, plan, theme)
    if stability is not None:
        settings = replace(settings, stability=stability)
    with _without_collection():
        world = make_world(seed, settings, plan, make_member)
        _draw_network(draw, world, faults)
        end_ns = world.agenda.now_ns + draw.randint(*draw.choice(theme.spans_ms)) * MS
        _found(draw, world, theme)
        _plan_load(draw, world, end_ns)
        if faults and seed % 2:
            _plan_fault_points(draw, world, theme, end_ns)
        elif faults:
            _plan_faults(draw, world, end_ns)
        world.agenda.run_until(end_ns)
        world.calm()
        _start_again(draw, world)
        settle_ns, is_over = _settle(world)
        return _judge(seed, stability, world, settle_ns, is_over)


@contextmanager
def _without_collection() -> Iterator[None]:
    """A history creates few reference cycles, and all of them end with it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _judge(seed: int, stability: str | None, world: FuzzWorld, settle_ns: int, is_over: bool) -> Outcome:
    keeps_everything = world.plan.makes_snapshots or world.settings.keep == "all"
    judge = Judge(
        quorum=world.settings.quorum,
        makes_snapshots=world.plan.makes_snapshots,
        keeps_everything=keeps_everything,
        may_repeat=world.settings.resend == "always",
    )
    judge.read(world.events)
    if is_settled(world):
        present = wanted(world)
        judge.judge_end([process.name for process in present], present[0].member.view.group_id if present else 0)
    elif not is_over:
        judge.broken.append(f"progress: not settled after {settle_ns / SECOND:.1f} s: {describe(world)}")
    return Outcome(
        seed=seed,
        stability=stability,
        violations=(*world.violations, *judge.broken),
        is_lost=is_over,
        events=world.events,
        world=world,
    )


# Drawing.


def _draw_plan(draw: random.Random, theme: Theme) -> HistoryPlan:
    return HistoryPlan(
        is_durable=draw.random() < theme.durable,
        makes_snapshots=draw.random() < theme.snapshots,
        has_certificates=draw.random() < 0.3,
        slow_application=draw.choice([0.0, 0.0, 0.3, 1.0]),
        snapshot_fails=draw.choice([0.0, 0.0, 0.3]),
        sync_ms=draw.choice([(0.0, 0.0), (0.0, 0.5), (0.0, 0.5), (1.0, 40.0)]),
        payload_bytes=draw.choice([(4, 60), (4, 4), (4, 400)]),
    )


def _draw_settings(draw: random.Random, plan: HistoryPlan, theme: Theme) -> Settings:
    """Some groups have short timeouts: they suspect and take over early, so that coordinators compete."""
    suspect_ms, patience_ms, takeover_ms = draw.choice([(90, 120, 180), (90, 60, 100), (60, 10, 15)])
    window_bytes = draw.choice([500, 4000, 1 << 20])
    drawn = Settings(
        data=draw.choice(DATA),
        stability=draw.choice(STABILITY),
        quorum=draw.choice(["majority", "majority", "majority", "majority", "any"]),
        round_every_s=draw.choice([0.008, 0.04]),
        heartbeat_s=suspect_ms / 3000,
        suspect_after_s=suspect_ms / 1000,
        observers=draw.choice([1, 2, 2, 3]),
        batch_s=draw.choice([0, 0.02, 0.06]),
        patience_s=patience_ms / 1000,
        takeover_s=takeover_ms / 1000,
        slow=draw.choice(["name", "wait", "exclude"]),
        behind_messages=draw.choice([10, 100_000]),
        rejoin=True,
        resend=draw.choice(["certain", "certain", "never", "always"]),
        keep="none" if plan.makes_snapshots else draw.choice(["none", "all", 5]),
        piece_bytes=draw.choice([8, 64, 1 << 16]),
        window_messages=draw.choice([2, 16, 200]),
        window_bytes=window_bytes,
        payload_bytes_max=min(window_bytes, 1 << 16),
        backlog_bytes=draw.choice([300, 1 << 20]),
        sync=draw.choice(["always", "always", "always", "interval", "never"]),
        journal_bytes=draw.choice([2000, 1 << 20]),
        handshake_timeout_s=draw.choice([0.1, 1.0]),
        connection_bytes=draw.choice([500, 1 << 16]),
    )
    return replace(drawn, **theme.settings)


def _draw_network(draw: random.Random, world: FuzzWorld, faults: bool) -> None:
    network = world.network
    network.latency_ms = draw.choice([(0.1, 2.0), (0.1, 2.0), (0.1, 15.0), (1.0, 1.0)])
    network.rechunk = draw.choice([0.0, 0.1, 0.5])
    network.buffer_bytes = draw.choice([600, 1 << 16, 1 << 16])
    network.late = draw.choice([0.0, 0.2]) if faults else 0.0


def _found(draw: random.Random, world: FuzzWorld, theme: Theme) -> None:
    """A founder and others that join it, or several founders, some of them late."""
    count = draw.choice(theme.founders or FOUNDERS)
    machines = [world.machine(number) for number in range(count)]
    if count == 1 or draw.random() < 0.4:
        world.start(machines[0], "found")
        for machine in machines[1:]:
            world.agenda.after(draw.randrange(30 * MS), world.start, machine, "join", (machines[0].name,))
        return
    for machine in machines:
        machine.founders = tuple(one.name for one in machines)
    for place, machine in enumerate(machines):
        late_ms = draw.choice([1, 1, 1, 30, 150]) * draw.random()
        if place < count // 2 + 1 or draw.random() < 0.8:
            world.agenda.after(round(late_ms * MS), world.start, machine, "form")


def _plan_load(draw: random.Random, world: FuzzWorld, end_ns: int) -> None:
    span_ns = end_ns - world.agenda.now_ns
    for _ in range(draw.randint(2, 25)):
        world.agenda.after(draw.randrange(span_ns), draw.choice([changes.burst, changes.talk]), world)


def _plan_fault_points(draw: random.Random, world: FuzzWorld, theme: Theme, end_ns: int) -> None:
    """Plan the changes of a theme at random times, not too late, and its fault points."""
    takeover_ms = round((world.settings.suspect_after_s + world.settings.takeover_s) * 1000)
    FaultPoints(world, draw_chains(draw, theme, world.plan.is_durable, takeover_ms))
    span_ns = end_ns - world.agenda.now_ns
    for _ in range(draw.choice(theme.counts)):
        _plan_change(draw, world, theme.changes, draw.randrange(span_ns * 2 // 3))


def _plan_faults(draw: random.Random, world: FuzzWorld, end_ns: int) -> None:
    table = changes.DURABLE if world.plan.is_durable else changes.ANY
    span_ns = end_ns - world.agenda.now_ns
    for _ in range(draw.choice([0, 1, 2, 4, 8])):
        _plan_change(draw, world, table, draw.randrange(span_ns))


def _plan_change(draw: random.Random, world: FuzzWorld, table: Mapping[changes.Change, int], at_ns: int) -> None:
    """One change, or two at about the same time."""
    for _ in range(2 if draw.random() < 0.2 else 1):
        change = draw.choices(list(table), list(table.values()))[0]
        world.agenda.after(at_ns + draw.randint(0, 5) * MS, _inject, change, world)


def _inject(change: changes.Change, world: FuzzWorld) -> None:
    """Make a change, unless all faults have ended."""
    if not world.is_calm:
        change(world)


# The end.


def _start_again(draw: random.Random, world: FuzzWorld) -> None:
    """Start most processes that are down again, one after another; the others stay down."""
    within_ms = draw.choice([1, 20, 150])
    last_ns = 0
    for _, machine in sorted(world.machines.items()):
        if machine.process is None and machine.is_wanted:
            if draw.random() < 0.85:
                wait_ns = draw.randrange(within_ms * MS)
                last_ns = max(last_ns, wait_ns)
                world.agenda.after(wait_ns, world.start, machine)
            else:
                machine.is_wanted = False
    world.agenda.run_until(world.agenda.now_ns + last_ns)


def _settle(world: FuzzWorld) -> tuple[int, bool]:
    """Run until nothing is left to do; returns how long that took, and whether the group is lost."""
    began_ns = world.agenda.now_ns
    operator = Operator(world)
    while world.agenda.now_ns - began_ns < SETTLE_NS:
        for _, machine in sorted(world.machines.items()):
            if machine.process is None and machine.is_wanted:
                world.start(machine)
        if is_settled(world):
            return world.agenda.now_ns - began_ns, False
        if world.violations or operator.has_given_up:
            return world.agenda.now_ns - began_ns, True
        operator.act()
        world.agenda.run_until(world.agenda.now_ns + STEP_NS)
    return world.agenda.now_ns - began_ns, is_lost(world)


def wanted(world: FuzzWorld) -> list[Process]:
    """All processes that should be in the group."""
    return [process for process in world.living() if process.machine.is_wanted]


def is_settled(world: FuzzWorld) -> bool:
    """Are all processes that should be in the group in one view, with nothing left to do?"""
    processes = world.living()
    members = [process.member for process in processes]
    if any(not process.machine.is_wanted or process.is_busy for process in processes):
        return False
    if any(member.phase != "member" or not member.is_ready or member.is_changing for member in members):
        return False
    if any(member.is_blocked for member in members):
        return False
    views = {member.view.id: member.view for member in members}
    if len(views) > 1:
        return False
    for view in views.values():
        if set(view.members) != {member.me for member in members}:
            return False
    if any(member.log.unstable or len(member.own) for member in members):
        return False
    if any(member.known.view != member.view for member in members):
        return False
    if any(member.known.causal_frontier != member.frontier for member in members):
        return False
    frontiers = [member.frontier for member in members]
    return all(frontier == frontiers[0] for frontier in frontiers)


def describe(world: FuzzWorld) -> str:
    """The state of every process, in one line."""
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

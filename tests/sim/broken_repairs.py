"""Every repair of guo (§3.2, §4.2, §4.3) taken out on purpose: prints which runs then go wrong, and how.

A repair is tried with the crash (or join, or leave) it is for, at several moments of a round. Run with
`CUBECAST_JIT=off`: handlers are then plain functions, and taking one out is an assignment.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from cubecast.errors import SimulationError
from cubecast.jit.backend import COMPILED
from cubecast.protocol import handlers, rank_sets
from cubecast.protocols.stability import (
    coord,
    full_dist,
    gossip,
    s_coord,
    s_gossip,
    s_train,
    train,
)
from cubecast.sim import lifecycle
from cubecast.sim.faults import Fault, parse_fault
from cubecast.sim.metrics import bring_up_to_date
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, RECOVER
from tests.sim.broken_stability import broken
from tests.sim.runs import network_of
from tests.support.scenarios import shared_scenario

NS_PER_MS = 1_000_000
MOMENTS_MS = (0.5, 1.5, 2.5, 4.5, 7.5)
MEMBERS = 8
USUAL: dict[str, Any] = {
    "members": MEMBERS,
    "senders": MEMBERS,
    "network": "flat:delay=1ms",
    "seed": 5,
    "rounds": 2,
    "delta_ms": 3.0,
    "tree_degree": 2,
    "detect_ms": 2.0,
    "detect_spread_ms": 0.5,
    "step_s": 0.001,
    "until_ms": 60.0,
}
Handlers = dict[type, Any]


class Repair(NamedTuple):
    """What is taken out, and the runs that need it."""

    name: str
    without: Callable[[], contextlib.AbstractContextManager[Any]]
    runs: Callable[[], Iterator[Scenario]]


@contextlib.contextmanager
def instead(table: Handlers, state: type, handler: Callable[..., None]) -> Iterator[None]:
    """Another handler for a state."""
    before = table[state]
    table[state] = handler
    try:
        yield
    finally:
        table[state] = before


def crashes(
    protocol: str, *ranks: int, moments_ms: tuple[float, ...] = MOMENTS_MS, **settings: Any
) -> Callable[[], Iterator[Scenario]]:
    def runs() -> Iterator[Scenario]:
        for moment_ms in moments_ms:
            gone = Fault(members=ranks, at_ns=round(moment_ms * NS_PER_MS))
            yield shared_scenario(protocol=protocol, crashes=(gone,), **USUAL | settings)

    return runs


def joins(protocol: str, **settings: Any) -> Callable[[], Iterator[Scenario]]:
    """Under data traffic with losses: if no member waits for a message, it is soon called stable too early."""
    lossy = {"repeat_ms": 4.0, "loss": 0.3, "messages": 10, "rate": 1000.0, "until_ms": 600.0, "senders": 3}

    def runs() -> Iterator[Scenario]:
        for seed, moment_ms in enumerate(MOMENTS_MS):
            newcomer = Fault(members=(MEMBERS - 1,), at_ns=round(moment_ms * NS_PER_MS))
            yield shared_scenario(protocol=protocol, joins=(newcomer,), **USUAL | lossy | {"seed": seed} | settings)

    return runs


def leaves(protocol: str, rank: int) -> Callable[[], Iterator[Scenario]]:
    def runs() -> Iterator[Scenario]:
        for moment_ms in MOMENTS_MS:
            leave = Fault(members=(rank,), at_ns=round(moment_ms * NS_PER_MS))
            yield shared_scenario(protocol=protocol, leaves=(leave,), **USUAL)

    return runs


def nothing(*_: Any) -> None:
    """A handler that is gone."""


def without_on_leave(state: type, handler: Callable[..., None] = nothing) -> Callable[[], Any]:
    return lambda: instead(handlers._ON_LEAVE, state, handler)


def without_on_join(state: type) -> Callable[[], Any]:
    return lambda: instead(handlers._ON_JOIN, state, nothing)


def without(module: Any, name: str, value: Any = nothing) -> Callable[[], Any]:
    return lambda: broken(module, name, value)


# Handlers with one repair less.


def coord_without_successor(state: Any, row: int, now_ns: int, mail: Any, rank: int) -> None:
    if state.phase[row] != coord.IDLE:
        coord.on_leave(state, row, now_ns, mail, rank)


def full_dist_without_leader(state: Any, row: int, now_ns: int, mail: Any, rank: int) -> None:
    full_dist._count_missing(state, row)
    full_dist._finish_if_complete(state, row, mail)


def full_dist_waiting_for_all(state: Any, row: int, now_ns: int, mail: Any, rank: int) -> None:
    if state.joined[row] > 0 and state.joined[row] == state.done[row]:
        full_dist._schedule_next_round(state, row, mail)


def s_train_without_new_root(state: Any, row: int, now_ns: int, mail: Any, rank: int) -> None:
    s_train._see_membership(state, row)
    s_train._start_over(state, row, mail)


def drawn_parent(parents: Any, members: Any, rank: int) -> int:
    return int(parents[rank])


def everybody(module: Any) -> SimpleNamespace:
    """Sets whose cover test asks for all ranks, gone or not."""

    def covers(words: Any, wanted: Any) -> bool:
        full = rank_sets.full(1, MEMBERS)[0]
        return bool(rank_sets.covers(words, full if wanted.shape == full.shape else wanted))

    return SimpleNamespace(**{**vars(module.rank_sets), "covers": covers})


def fixed_controller(state: Any, row: int, which: int, turn: int) -> int:
    place = state.first[which] + turn
    return int(state.order[place]) if place < state.first[which + 1] else -1


def all_groups(state: Any, row: int) -> bool:
    return all(rank_sets.contains(state.groups[row], which) for which in range(s_gossip._group_count(state)))


def only_at_first(handler: Callable[..., None]) -> Callable[..., None]:
    """A late-join handler that is not asked again once the newcomer counts."""
    seen: set[tuple[int, int]] = set()

    def once(world: Any, metrics: Any, group: Any, member: int, now_ns: int) -> None:
        if (id(metrics), member) not in seen:
            seen.add((id(metrics), member))
            handler(world, metrics, group, member, now_ns)

    return once


GROUPS: dict[str, Any] = {"group_size": 3, "controllers": 1}

REPAIRS = (
    Repair(
        "coord: a new coordinator", without_on_leave(coord.CoordState, coord_without_successor), crashes("coord", 0)
    ),
    Repair("coord: not waited for", without_on_leave(coord.CoordState), crashes("coord", 3)),
    Repair(
        "full_dist: a new leader",
        without_on_leave(full_dist.FullDistState, full_dist_without_leader),
        crashes("full_dist", 0),
    ),
    Repair(
        "full_dist: not waited for",
        without_on_leave(full_dist.FullDistState, full_dist_waiting_for_all),
        crashes("full_dist", 3),
    ),
    Repair("train: another route", without(train, "_lies_between", lambda *_: False), crashes("train", 3)),
    # Before the first train, and if no other member is left, no other repair starts one.
    Repair("train: a new trainmaster", without(train, "_take_over"), crashes("train", 0, moments_ms=(0.0, 4.5))),
    Repair(
        "s_coord: a crashed parent", without(s_coord, "live_parent", drawn_parent), crashes("s_coord", 1, relayed=False)
    ),
    Repair("s_coord: a crashed root", without(s_coord, "_lead"), crashes("s_coord", 0)),
    Repair("s_train: a crashed parent", without(s_train, "live_parent", drawn_parent), crashes("s_train", 1)),
    Repair("s_train: a crashed sibling", without(s_train, "_start_over"), crashes("s_train", 3)),
    Repair(
        "s_train: a crashed root",
        without_on_leave(s_train.STrainState, s_train_without_new_root),
        crashes("s_train", 0),
    ),
    Repair("gossip: not waited for", without(gossip, "rank_sets", everybody(gossip)), crashes("gossip", 3)),
    Repair("gossip: the last one left", without_on_leave(gossip.GossipState), crashes("gossip", *range(1, MEMBERS))),
    Repair(
        "s_gossip: other controllers",
        without(s_gossip, "_controller", fixed_controller),
        crashes("s_gossip", 0, 3, **GROUPS),
    ),
    Repair(
        "s_gossip: a group is gone",
        without(s_gossip, "_has_all_groups", all_groups),
        crashes("s_gossip", 3, 4, 5, **GROUPS),
    ),
    Repair(
        "join: the late-join handler",
        without(lifecycle, "bring_up_to_date"),
        joins("coord", loss=0.0, messages=0),
    ),
    Repair(
        "join: up to date before it counts",
        without(lifecycle, "bring_up_to_date", only_at_first(bring_up_to_date)),
        joins("coord", detect_spread_ms=5.0),
    ),
    Repair("join: s_train gives it a place", without_on_join(s_train.STrainState), joins("s_train")),
    Repair("leave: reported to all", without(lifecycle, "_evict"), leaves("coord", 3)),
)


def wrong(scenario: Scenario) -> list[str]:
    """The promises that a run breaks."""
    try:
        trace = trace_scenario(scenario, network_of(scenario))
    except SimulationError:
        return ["the run ends"]
    found = [violation.checker for violation in check_all(trace).violations]
    return found + ["newcomers are up to date when they count"] * is_behind(trace)


def is_behind(trace: Trace) -> bool:
    """Does a newcomer lack anything that another member holds, when it begins to count (guo §3.2)?"""
    held: dict[tuple[int, int], int] = {}
    newcomers = {rank for text in trace.scenario["joins"] for rank in parse_fault(text, what="join").members}
    for row in trace.events:
        member, sender = int(row["member"]), int(row["sender"])
        if row["event"] == DELIVER:
            held[member, sender] = max(held.get((member, sender), 0), int(row["sequence"]))
        elif row["event"] == RECOVER and member in newcomers:
            newcomers.remove(member)
            if any(number > held.get((member, other[1]), 0) for other, number in held.items()):
                return True
    return False


def main() -> None:
    """Print a JSON object: for each repair what went wrong with it, and without it."""
    assert not COMPILED, "run this with CUBECAST_JIT=off"
    found = {}
    for repair in REPAIRS:
        kept = {checker for scenario in repair.runs() for checker in wrong(scenario)}
        with repair.without():
            lost = {checker for scenario in repair.runs() for checker in wrong(scenario)}
        found[repair.name] = {"with": sorted(kept), "without": sorted(lost)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

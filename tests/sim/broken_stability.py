"""Stability protocols, the data layer and links, each broken on purpose; prints which checkers noticed.

Run with `CUBECAST_JIT=off`: handlers are then plain functions, and breaking one is an assignment.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cubecast.jit.backend import COMPILED
from cubecast.protocol import rank_lists, rank_sets
from cubecast.protocol.mail import deliver
from cubecast.protocols.stability import (
    coord,
    cube_full_dist,
    full_dist,
    s_coord,
)
from cubecast.protocols.transport import repair
from cubecast.sim.build import Simulation, build_simulation
from cubecast.sim.runner import runner
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, blank_events
from tests.sim.runs import network_of

SMALL: dict[str, Any] = {"members": 6, "network": "random:degree=3", "seed": 2, "rounds": 2}
FORGOTTEN = 4


@contextlib.contextmanager
def broken(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    """Put something else in a module's place for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def noticed(scenario: Scenario, spoil: Callable[[Simulation], None] | None = None) -> list[str]:
    """The checkers that complain about a run, whether or not it came to its end."""
    simulation = build_simulation(scenario, network_of(scenario), tracing=True)
    held = np.argwhere(simulation.group.received)
    initial = blank_events(len(held))
    initial["event"] = DELIVER
    initial["member"], initial["sender"] = held[:, 0], held[:, 1]
    initial["sequence"] = simulation.group.received[held[:, 0], held[:, 1]]
    if spoil is not None:
        spoil(simulation)
    runner(simulation)(round(scenario.until_ms * NS_PER_MS), 1 << 30)
    size = int(simulation.world.scalars[0].trace_size)
    events = np.concatenate([initial, np.asarray(simulation.world.trace[:size])])
    report = check_all(Trace(events=events, scenario=scenario.to_dict(), metrics={}))
    return sorted({violation.checker for violation in report.violations})


def forgetful_rank_sets() -> SimpleNamespace:
    """Sets of ranks whose cover test forgets one member."""

    def covers(words: Any, wanted: Any) -> bool:
        rest = wanted.copy()
        rank_sets.discard(rest, FORGOTTEN)
        return bool(rank_sets.covers(words, rest))

    return SimpleNamespace(**{**vars(rank_sets), "covers": covers})


def forgetful_rank_lists() -> SimpleNamespace:
    """Lists of ranks whose cover test forgets one member."""

    def covers(lists: Any, wanted: Any, row: int) -> bool:
        entry = wanted.first[row]
        while entry != 0:
            rank = wanted.rank[entry]
            if rank != FORGOTTEN and not rank_lists.contains(lists, row, rank):
                return False
            entry = wanted.after[entry]
        return True

    return SimpleNamespace(**{**vars(rank_lists), "covers": covers})


def without_waiting_for_the_last(state: Any, row: int, mail: Any) -> None:
    if state.missing[row] == 1:
        state.latest[row, FORGOTTEN] = state.sent[row]
        state.matrix[row, FORGOTTEN] = 1_000
        state.missing[row] = 0
    honest_finish(state, row, mail)


honest_finish = full_dist._finish_if_complete


def premature() -> Iterator[tuple[str, list[str]]]:
    """Each protocol forgets one member in its cover test."""
    for module, name in ((coord, "coord"), (cube_full_dist, "cube_full_dist")):
        with broken(module, "rank_sets", forgetful_rank_sets()):
            yield f"premature {name}", noticed(Scenario(protocol=name, **SMALL))
    with broken(s_coord, "rank_lists", forgetful_rank_lists()):
        yield "premature s_coord", noticed(Scenario(protocol="s_coord", **SMALL))
    with broken(full_dist, "_finish_if_complete", without_waiting_for_the_last):
        yield "premature full_dist", noticed(Scenario(protocol="full_dist", **SMALL))


def never_ending() -> Iterator[tuple[str, list[str]]]:
    """Each protocol keeps its last message to itself."""
    info = (coord, "coord", coord.INFO), (s_coord, "s_coord", s_coord.INFO)
    for module, name, kind in info:
        honest = module.multicast

        def multicast(mail: Any, slot: int, kind: int = kind, honest: Any = honest) -> None:
            if mail.heads[slot].kind != kind:
                honest(mail, slot)

        with broken(module, "multicast", multicast):
            parameters = {"relayed": False} if module is s_coord else None
            yield f"never ending {name}", noticed(Scenario(protocol=name, parameters=parameters, **SMALL))
    with broken(full_dist, "multicast", lambda mail, slot: None):
        yield "never ending full_dist", noticed(Scenario(protocol="full_dist", **SMALL))
    send: Any = vars(cube_full_dist)["send"]

    def send_but_to_one(mail: Any, slot: int, rank: int) -> None:
        if rank != FORGOTTEN:
            send(mail, slot, rank)

    with broken(cube_full_dist, "send", send_but_to_one):
        yield "never ending cube_full_dist", noticed(Scenario(protocol="cube_full_dist", **SMALL))


def reordering_links() -> Iterator[tuple[str, list[str]]]:
    """The scenario promises FIFO, the links do not keep it."""

    def reorder(simulation: Simulation) -> None:
        simulation.world.scalars[0].reorder = 0.5
        simulation.world.scalars[0].reorder_ns = 5_000_000

    yield "reordering links", noticed(Scenario(protocol="cube_full_dist", **SMALL), reorder)


def hasty_delivery() -> Iterator[tuple[str, list[str]]]:
    """The data layer hands a message over although the one before is missing."""

    def keep(state: Any, row: int, mail: Any, sender: int, sequence: int) -> None:
        if sequence > state.group.received[row, sender]:
            deliver(mail, sender, sequence)
            state.group.received[row, sender] = sequence

    settings = SMALL | {"messages": 8, "rate": 1_000, "reorder": 0.5, "reorder_ms": 10.0}
    with broken(repair, "keep", keep):
        yield "hasty delivery", noticed(Scenario(protocol="coord", **settings))


def shrinking() -> Iterator[tuple[str, list[str]]]:
    """A member accepts the INFO that it received last, and reports it."""

    def believe(group: Any, row: int, numbers: Any) -> None:
        group.stable[row] = numbers[: group.stable.shape[1]] - (group.stable[row] > 0) * 5

    with broken(coord, "learn_stable", believe):
        yield "shrinking", noticed(Scenario(protocol="coord", **SMALL))


def unbroken() -> Iterator[tuple[str, list[str]]]:
    """The same scenarios with nothing broken."""
    for name in ("coord", "full_dist", "s_coord", "cube_full_dist"):
        yield f"unbroken {name}", noticed(Scenario(protocol=name, **SMALL | {"messages": 8, "rate": 1_000}))


def main() -> None:
    """Print a JSON object: what was broken, and which checkers noticed."""
    assert not COMPILED, "run this with CUBECAST_JIT=off"
    experiments = (premature, never_ending, reordering_links, hasty_delivery, shrinking, unbroken)
    print(json.dumps(dict(found for experiment in experiments for found in experiment())))


if __name__ == "__main__":
    main()

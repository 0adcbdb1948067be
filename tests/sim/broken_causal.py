"""Causal stability without one of its safeguards each; prints which checkers noticed.

Run with `CUBECAST_JIT=off`: the functions of the kernel are then plain, and breaking one is an assignment.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cubecast.jit.backend import COMPILED
from cubecast.jit.tables import held_at
from cubecast.sim import causal_stability, kernel, metrics
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.sim.views import kernel as views_kernel
from cubecast.sim.views.tables import ViewTables
from cubecast.trace.checkers import check_all
from tests.sim.broken_stability import broken
from tests.sim.runs import network_of

SEEDS = 8
Breaking = Callable[[], contextlib.AbstractContextManager[None]]


def _flow(seed: int) -> Scenario:
    """Senders that lose messages, and repair them late."""
    return Scenario.of(
        "coord",
        members=5,
        senders=5,
        network="star",
        loss=0.1,
        messages=6,
        rate=300.0,
        delta_ms=2.0,
        seed=seed,
        packets_max=20_000,
        causal_stability=True,
    )


def _churn(seed: int) -> Scenario:
    """Messages wait for new views."""
    return Scenario.of(
        "tree",
        stability="coord",
        members=5,
        senders=5,
        network="flat:delay=0.2-20ms",
        churn_per_s=8.0,
        churn_mix="join=1,leave=1,crash=0,return=1",
        churn_ms=500.0,
        rate=150.0,
        delta_ms=5.0,
        batch_ms=0.0,
        seed=seed,
        packets_max=20_000,
        causal_stability=True,
    )


def _full_window(seed: int) -> Scenario:
    """Senders that multicast more than a view lets them send before it is stable."""
    return replace(_churn(seed), churn_per_s=0.0, churn_ms=100.0, rate=2000.0, delta_ms=40.0)


def noticed(scenario: Scenario) -> list[str]:
    """The checkers that find fault with a run."""
    report = check_all(trace_scenario(scenario, network_of(scenario)))
    return sorted({violation.checker for violation in report.violations})


def first_noticed(breaking: Breaking, draw: Callable[[int], Scenario]) -> list[str]:
    """What the checkers say of the first run in which they say anything; with the safeguard it is clean."""
    for seed in range(SEEDS):
        scenario = draw(seed)
        with breaking():
            found = noticed(scenario)
        if found:
            assert noticed(scenario) == [], f"not clean with the safeguard: {scenario.command()}"
            return found
    return []


@contextlib.contextmanager
def not_waiting() -> Iterator[None]:
    """What all have delivered counts as causally stable at once: plain stability, even with messages in transit."""

    def next_reached(fold: Any, group: Any, row: int) -> int:
        if fold.waiting[row] > 0:
            fold.sent[row, fold.first[row]] = 0
        return int(causal_stability.next_reached(fold, group, row))

    with broken(metrics, "next_reached", next_reached), broken(views_kernel, "next_reached", next_reached):
        yield


@contextlib.contextmanager
def of_two_moments() -> Iterator[None]:
    """A member contributes what it has delivered now, and what it had multicast when it contributed before."""
    before: dict[int, int] = {}

    def contribute(fold: Any, group: Any, row: int, multicasts: int) -> None:
        causal_stability.contribute(fold, group, row, before.get(row, 0))
        before[row] = multicasts

    with broken(kernel, "contribute", contribute):
        yield


@contextlib.contextmanager
def forgetting_what_waits() -> Iterator[None]:
    """Only messages that were sent count as multicast, not those that wait for the window or the next view."""

    def contribute(tables: Any, call: Any) -> None:
        view = held_at(tables.views[call[views_kernel.PLACE]], ViewTables)
        rank = call[views_kernel.RANK]
        sent = tables.processes[call[views_kernel.PROCESS]].published - view.sent[rank]
        causal_stability.contribute(view.fold, view.group, rank, sent)

    with broken(views_kernel, "_contribute", contribute):
        yield


BROKEN: dict[str, tuple[Breaking, Callable[[int], Scenario]]] = {
    "not waiting": (not_waiting, _flow),
    "of two moments": (of_two_moments, _flow),
    "not waiting, views": (not_waiting, _churn),
    "forgetting what waits": (forgetting_what_waits, _full_window),
}


def main() -> None:
    """Break one safeguard after the other."""
    assert not COMPILED, "run with CUBECAST_JIT=off"
    print(json.dumps({name: first_noticed(*case) for name, case in BROKEN.items()}))


if __name__ == "__main__":
    main()

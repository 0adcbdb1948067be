"""Find the step intervals at which Gossip is fast, by measuring (guo §5.3.2).

The search requests step intervals; runs with separate seeds measure each of them. A run that does not end counts as
infinitely slow, as the paper's bad samples do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from cubecast.errors import LocalProtocolError, SimulationError
from cubecast.models.step_search import SearchPlan, StepSearch, StepWindow
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.resolve_defaults import resolve_defaults
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario

Progress = Callable[[int, float, float], None]
"""Called after each measurement with how many there were, the step interval and its TPR, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The result of the search for a scenario."""

    scenario: Scenario
    plan: SearchPlan
    window: StepWindow
    course: tuple[tuple[float, float], ...]
    """(step interval, mean TPR) of every step interval measured, in order."""


def default_plan(
    scenario: Scenario,
    *,
    seeds: int,
    longest_s: float | None = None,
    resolution_s: float | None = None,
    stride_s: float | None = None,
    tolerance: float | None = None,
) -> SearchPlan:
    """Search up to three times the step that the busiest link suggests, to a tenth of that range."""
    require_steps(scenario)
    if longest_s is None:
        network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
        resolved = resolve_defaults(scenario.with_parameters(step_s=None), network)
        longest_s = 3 * resolved.parameters.step_s
    return SearchPlan(
        shortest_s=0.0,
        longest_s=longest_s,
        resolution_s=longest_s / 10 if resolution_s is None else resolution_s,
        stride_s=longest_s / 20 if stride_s is None else stride_s,
        tolerance=0.1 if tolerance is None else tolerance,
        repeats=seeds,
        repeats_max=2 * seeds,
    )


def tune(scenario: Scenario, plan: SearchPlan, progress: Progress | None = None) -> Tuning:
    """Search; the scenario's own step interval does not matter."""
    require_steps(scenario)
    search = StepSearch(plan)
    networks: dict[int, Network] = {}
    asked: dict[float, int] = {}
    while (step_s := search.next()) is not None:
        seed = scenario.seed + asked.get(step_s, 0)
        asked[step_s] = asked.get(step_s, 0) + 1
        if seed not in networks:
            networks[seed] = build_network(scenario.network, members=scenario.members, seed=seed)
        tpr_s = _measure(replace(scenario.with_parameters(step_s=step_s), seed=seed), networks[seed])
        search.report(step_s, tpr_s)
        if progress is not None:
            progress(len(search.measurements), step_s, tpr_s)
    return Tuning(scenario=scenario, plan=plan, window=search.result(), course=_course(search))


def require_steps(scenario: Scenario) -> None:
    """Require a protocol with a step interval."""
    if scenario.entry().steps is None or "step_s" not in vars(scenario.parameters):
        having = [one.name for one in list_protocols("stability") if one.steps is not None]
        raise LocalProtocolError(f"{scenario.protocol} has no step interval: choose {' or '.join(having)}")


def _measure(scenario: Scenario, network: Network) -> float:
    try:
        return run_scenario(scenario, network).rtt_first_ms / 1e3
    except SimulationError:
        return math.inf


def _course(search: StepSearch) -> tuple[tuple[float, float], ...]:
    values: dict[float, list[float]] = {}
    for one in search.measurements:
        values.setdefault(one.step_s, []).append(one.value)
    return tuple((step_s, math.fsum(found) / len(found)) for step_s, found in sorted(values.items()))

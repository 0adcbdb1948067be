"""The kinds of runs: a simulation, or a formula of the models computed on the same axes.

An experiment takes plain settings (numbers and text, as in a plan) and returns metrics by name. It is pure: the same
settings give the same metrics, on any machine. A new experiment is one function and one entry in `_EXPERIMENTS`.

Besides the fields of `Scenario` a simulation takes settings of a study. `crashed_neighbours = k` crashes k hypercube
neighbours of member 0, drawn by the seed, at time 0 (cube §4.2.5). With `bad_samples = true` a run that is not over by
`until_ms` does not fail but counts as a bad sample, left out of the statistics and counted by the metric `ended` (guo
§5.3.1). `own_metrics` names the user's own metrics that the run measures. Names in braces in `network` stand for
parameters of the plan: "random:degree={degree}" with degrees swept.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from cubecast.errors import LocalProtocolError, NoTreeError, OutOfTimeError, PlanError, blame
from cubecast.lab import data_flow, formulas, processing_load
from cubecast.lab.formulas import Metrics, Settings, check_names, check_numbers
from cubecast.lab.metric_titles import FLOOR
from cubecast.lab.own_metrics import MEASURE, measure_own, needs_trace
from cubecast.lab.tune import require_steps, tune
from cubecast.models.complexity import GroupSize, round_cost
from cubecast.models.step_search import SearchPlan
from cubecast.networks.network import NODES_MAX, Network
from cubecast.networks.spec import build_network
from cubecast.protocol.overlays import hypercube, paper_tree_degree
from cubecast.sim.faults import Fault, parse_fault
from cubecast.sim.lower_bounds import BOUNDED, lower_bounds
from cubecast.sim.result import Result
from cubecast.sim.roles import PARAMETER_FIELDS, split_settings
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_and_trace, run_scenario
from cubecast.sim.trees import GrownTree, grow_tree

NOT_METRICS = {
    "protocol",
    "members",
    "senders",
    "network",
    "seed",
    "per_round",
    "buffer_series",
    "wall_seconds",
    "packet_hops_per_second",
}
"""Fields of a result that repeat the scenario, or that differ between machines."""
_FIELDS = {field.name for field in fields(Scenario)}
_FAULTS = {"crashes": "crash", "suspicions": "suspicion", "partitions": "partition", "joins": "join", "leaves": "leave"}
_NETWORKS_KEPT = 4


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One kind of run."""

    name: str
    metrics: tuple[str, ...]
    check: Callable[[Settings, set[str]], None]
    run: Callable[[Settings], Metrics]
    cost: Callable[[Settings], float]
    """Estimates how many seconds a run takes."""


def experiment_named(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in _EXPERIMENTS:
        raise PlanError(f"unknown experiment {name!r}: choose one of {', '.join(_EXPERIMENTS)}")
    return _EXPERIMENTS[name]


def check_run(experiment: str, settings: Settings, seen: set[str]) -> None:
    """Validate the settings of a run; `seen` holds the networks that were already built."""
    experiment_named(experiment).check(settings, seen)


def scenario_of(settings: Settings) -> Scenario:
    """The scenario of a simulation's settings."""
    values = _with_network(dict(settings))
    values.pop(MEASURE, None)
    crashed = values.pop("crashed_neighbours", 0)
    _check_flag("bad_samples", values.pop("bad_samples", False))
    check_types(values)
    if "protocol" in values:
        values = split_settings(values, _FIELDS, lenient=True)
    if "protocol" not in values or "members" not in values:
        raise LocalProtocolError("a simulation needs protocols and members: name both")
    for name, what in _FAULTS.items():
        if name in values:
            texts = values[name] if isinstance(values[name], list) else [values[name]]
            with blame(name):
                values[name] = tuple(_fault(text, what) for text in texts if text != "")
    if crashed:
        values["crashes"] = (*values.get("crashes", ()), _neighbour_crash(crashed, values["members"], values["seed"]))
    return Scenario(**values)


def _fault(text: Any, what: str) -> Fault:
    if not isinstance(text, str):
        raise LocalProtocolError(f"{what} {text!r}: write text in quotes, for example 3@2ms-50ms")
    return parse_fault(text, what=what)


def network_content(settings: Settings) -> str | None:
    """A hash of the present content of the file that describes the network of a run; None if no file does."""
    return _file_content(str(_with_network(dict(settings)).get("network", "")))


def _file_content(network: str) -> str | None:
    kind, _, path = network.partition(":")
    if kind != "file":
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "unreadable"  # the run reports it


def _with_network(values: dict[str, Any]) -> dict[str, Any]:
    """Replace the braces in the network by the values of parameters, and drop these from the settings."""
    network = values.get("network")
    if not isinstance(network, str) or "{" not in network:
        return values
    names = re.findall(r"\{(\w+)\}", network)
    for name in names:
        if name not in values:
            raise LocalProtocolError(
                f"network = {network!r}: there is no parameter {name!r} to put into it", setting="network"
            )
    spelled = re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), network)
    return {name: value for name, value in values.items() if name not in names} | {"network": spelled}


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise LocalProtocolError(f"{name} = {value!r}: write true or false", setting=name)


def check_types(values: Settings) -> None:
    """Check each value that is a field of a scenario against its type; a whole number is also a number."""
    for name, value in values.items():
        if name not in _FIELDS or name in _FAULTS or name in PARAMETER_FIELDS:
            continue
        kinds = _kinds(name)
        if type(value) not in kinds:
            spoken = " or ".join(sorted(_SPOKEN.get(kind, kind.__name__) for kind in kinds if kind is not type(None)))
            raise LocalProtocolError(f"{name} = {value!r}: write {spoken}", setting=name)


_SPOKEN = {str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false"}


@cache
def _kinds(name: str) -> frozenset[Any]:
    """The types that a field of a scenario takes."""
    hint = get_type_hints(Scenario)[name]
    kinds = {type(one) if isinstance(one, str) else one for one in _flat(getattr(hint, "__args__", (hint,)))}
    return frozenset(kinds | {int} if float in kinds else kinds)


def _flat(kinds: tuple[Any, ...]) -> list[Any]:
    """The members of a union, literals by their values."""
    return [inner for kind in kinds for inner in (_flat(kind.__args__) if hasattr(kind, "__args__") else [kind])]


def _neighbour_crash(count: Any, members: int, seed: int) -> Fault:
    overlay = hypercube(members)
    neighbours = overlay.neighbours[overlay.offsets[0] : overlay.offsets[1]]
    if type(count) is not int or not 0 < count <= len(neighbours):
        raise LocalProtocolError(
            f"crashed_neighbours = {count!r}: member 0 of {members} has {len(neighbours)}", setting="crashed_neighbours"
        )
    stream = np.random.Generator(np.random.Philox(key=[seed, 0x63]))
    return Fault(members=tuple(sorted(int(rank) for rank in stream.choice(neighbours, count, replace=False))), at_ns=0)


def _check_simulation(settings: Settings, seen: set[str]) -> None:
    scenario = scenario_of(settings)
    spec = f"{scenario.network} {min(scenario.members, 100)}"
    if spec not in seen:
        with blame("network"):
            build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    seen.add(spec)


_networks: OrderedDict[tuple[str, int, int, str | None], Network] = OrderedDict()


def _network(scenario: Scenario) -> Network:
    """The network of a scenario; consecutive runs of protocols on one topology share it."""
    key = (scenario.network, scenario.members, scenario.seed, _file_content(scenario.network))
    if key not in _networks:
        _networks[key] = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
        while len(_networks) > _NETWORKS_KEPT:
            _networks.popitem(last=False)
    _networks.move_to_end(key)
    return _networks[key]


def _simulate(settings: Settings) -> Metrics:
    scenario = scenario_of(settings)
    network = _network(scenario)
    own = settings.get(MEASURE, [])
    try:
        if needs_trace(own):
            result, trace = run_and_trace(scenario, network)
        else:
            result, trace = run_scenario(scenario, network), None
    except OutOfTimeError:
        if settings.get("bad_samples"):
            return {"ended": 0.0}
        raise
    values = {name: getattr(result, name) for name in _RESULT_METRICS}
    floors = {FLOOR + name: value for name, value in lower_bounds(scenario, network, result).items()}
    found = {name: float(value) for name, value in values.items() if value is not None}
    return {"ended": 1.0} | floors | found | measure_own(own, result, trace)


_RESULT_METRICS = tuple(field.name for field in fields(Result) if field.name not in NOT_METRICS)


def _simulation_cost(settings: Settings) -> float:
    """Estimate: a route per pair of members, 0.04 µs per message and link; a message crosses about log n links."""
    scenario = scenario_of(settings)
    n, rounds = scenario.members, scenario.rounds
    if scenario.has_views:  # agreement is plain Python: n messages, each with n entries, for every view
        return scenario.churn_ms / 1e3 * (0.03 + 2e-6 * n * n * (1 + (scenario.churn_per_s or 0)))
    hops = n * math.log2(n + 1)
    sends = scenario.entry().sends_per_member(n, scenario.parameters)
    control = 0 if scenario.carries_data else rounds * sends * hops
    data = scenario.messages * scenario.sender_count * hops * (sends if scenario.carries_data else 1)
    routes = n * n if _has_route_table(scenario) else 0
    return 0.0025 + 2e-6 * n + 1e-7 * routes + 4e-8 * (control + data)


def _has_route_table(scenario: Scenario) -> bool:
    """Routes of regular shapes are computed, and larger networks find next hops without a table."""
    return scenario.members <= NODES_MAX and scenario.network.partition(":")[0] not in _WITHOUT_ROUTES


_WITHOUT_ROUTES = ("flat", "chain", "wan-tree", "regular")


ROUND_METRICS = ("steps", "messages", "sent_bytes", "measured_messages", "measured_bytes")


def _check_round_cost(settings: Settings, seen: set[str]) -> None:
    _check_simulation(settings, seen)
    _formula(scenario_of(settings))


def _formula(scenario: Scenario) -> Metrics:
    degree = vars(scenario.parameters).get("tree_degree") or paper_tree_degree(scenario.members)
    group = GroupSize(members=scenario.members, senders=scenario.sender_count, degree=degree)
    cost = round_cost(scenario.entry().name, group)
    return {"steps": float(cost.steps), "messages": float(cost.copies), "sent_bytes": float(cost.copied_bytes)}


def _round_cost(settings: Settings) -> Metrics:
    """The cost of one round by formula (cube Fig 7; exact, or an upper bound) and as the simulator counts it."""
    found = _simulate(settings)
    return _formula(scenario_of(settings)) | {
        "measured_messages": found["messages"],
        "measured_bytes": found["bytes"],
    }


def _check_processing_load(settings: Settings, seen: set[str]) -> None:
    _check_simulation(settings, seen)
    processing_load.check(scenario_of(settings))


def _processing_load(settings: Settings) -> Metrics:
    """Count the messages that members process in a round (guo Table 4.1)."""
    scenario = scenario_of(settings)
    return processing_load.measure(scenario, _network(scenario))


def _check_data_flow(settings: Settings, seen: set[str]) -> None:
    _check_simulation(data_flow.simulation_of(settings), seen)
    data_flow.check(scenario_of(data_flow.simulation_of(settings)), data_flow.level_of(settings))


def _data_flow(settings: Settings) -> Metrics:
    """Rounds while data flows, with the formulas for time to stable, buffers and trigger (guo §2.2, §5.2, ch. 6)."""
    scenario = scenario_of(data_flow.simulation_of(settings))
    return data_flow.measure(scenario, _network(scenario), data_flow.level_of(settings))


SEARCH_SEEDS = 5
SEARCH_METRICS = ("best_s", "best_tpr_s", "low_s", "high_s", "window_s", "golden_iterations", "window_iterations")
_SEARCH_SETTINGS = ("seeds", "longest_s", "resolution_s", "stride_s", "tolerance")


def check_search(settings: Settings, seen: set[str]) -> None:
    """Validate the settings of a search."""
    check_numbers({name: settings[name] for name in _SEARCH_SETTINGS if name in settings})
    scenario, _ = _search(settings)
    require_steps(scenario)
    _check_simulation({name: value for name, value in settings.items() if name not in _SEARCH_SETTINGS}, seen)


def _search(settings: Settings) -> tuple[Scenario, SearchPlan]:
    """The scenario and plan of a search; the paper's example is the default: 0 to 20 s, 2 s, 1 s, 0.1 (guo §5.3.2)."""
    common = {name: value for name, value in settings.items() if name not in _SEARCH_SETTINGS}
    seeds = settings.get("seeds", SEARCH_SEEDS)
    plan = SearchPlan(
        shortest_s=0.0,
        longest_s=settings.get("longest_s", 20.0),
        resolution_s=settings.get("resolution_s", 2.0),
        stride_s=settings.get("stride_s", 1.0),
        tolerance=settings.get("tolerance", 0.1),
        repeats=seeds,
        repeats_max=seeds,
    )
    # Each search averages over seeds of its own.
    return scenario_of(common | {"seed": common["seed"] * seeds}), plan


def step_search(settings: Settings) -> Metrics:
    """The window of good step intervals that the adaptive algorithm finds (guo Figs 5.8 and 5.9)."""
    found = tune(*_search(settings)).window
    return {
        "best_s": found.best_s,
        "best_tpr_s": found.best_value,
        "low_s": found.low_s,
        "high_s": found.high_s,
        "window_s": found.high_s - found.low_s,
        "golden_iterations": float(found.golden_iterations),
        "window_iterations": float(found.window_iterations),
    }


_TREE_WORDS = ("degree", "hubs", "loss", "crash", "spread", "ties", "sampled")
_TREE_SETTINGS = ("protocol", "members", *_TREE_WORDS, "packets", "heartbeats")
_TREE_METRICS = tuple(field.name for field in fields(GrownTree) if field.name != "parents")


def _tree_network(settings: Settings) -> str:
    words = [f"{name}={settings[name]}" for name in _TREE_WORDS if name in settings]
    return f"regular:{','.join(words)}"


def _check_tree(settings: Settings, seen: set[str]) -> None:
    check_names(settings, _TREE_SETTINGS, needed=("protocol",), text=("protocol", *_TREE_WORDS))
    for name in ("members", "packets", "heartbeats"):
        if not isinstance(settings.get(name, 1), int):
            raise LocalProtocolError(f"{name} = {settings[name]!r}: write a whole number", setting=name)
    # One network for each value of each word: their combinations are possible when they are.
    words = {f"{name}={settings[name]}" for name in (*_TREE_WORDS, "members") if name in settings}
    if not words <= seen:
        build_network(_tree_network(settings), members=settings.get("members", 100), seed=0)
    seen |= words


def _grow_tree(settings: Settings) -> Metrics:
    """The tree that Plumtree or RASM has grown, and the cost of growing it (rasm §4)."""
    sizes = {name: settings[name] for name in ("members", "packets", "heartbeats") if name in settings}
    try:
        tree = grow_tree(settings["protocol"], _tree_network(settings), seed=settings["seed"], **sizes)
    except NoTreeError:
        # Two members that name each other as provider reach no member from the source: R(T) = 0.
        return {"attached": 0.0, "reliability": 0.0, "reliability_with_quota": 0.0, "expected_share": 0.0}
    return {"attached": 1.0} | {name: float(getattr(tree, name)) for name in _TREE_METRICS}


_EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment(
            name="simulate",
            metrics=("ended", *_RESULT_METRICS, *(FLOOR + name for name in BOUNDED)),
            check=_check_simulation,
            run=_simulate,
            cost=_simulation_cost,
        ),
        Experiment(
            name="grow_tree",
            metrics=("attached", *_TREE_METRICS),
            check=_check_tree,
            run=_grow_tree,
            cost=lambda settings: 0.015 + 1e-3 * settings.get("degree", 4),
        ),
        Experiment(
            name="step_search",
            metrics=SEARCH_METRICS,
            check=check_search,
            run=step_search,
            cost=lambda settings: 0.1 * settings.get("seeds", SEARCH_SEEDS),
        ),
        Experiment(
            name="round_cost",
            metrics=ROUND_METRICS,
            check=_check_round_cost,
            run=_round_cost,
            cost=_simulation_cost,
        ),
        Experiment(
            name="processing_load",
            metrics=processing_load.METRICS,
            check=_check_processing_load,
            run=_processing_load,
            cost=lambda settings: 3 * _simulation_cost(settings),
        ),
        Experiment(
            name="data_flow",
            metrics=data_flow.METRICS,
            check=_check_data_flow,
            run=_data_flow,
            cost=lambda settings: 2 * _simulation_cost(data_flow.simulation_of(settings)),
        ),
        Experiment(
            name="causal_cost",
            metrics=formulas.CAUSAL_METRICS,
            check=formulas.check_causal,
            run=formulas.causal_cost,
            cost=lambda _: 0.01,
        ),
        Experiment(
            name="overlay_shape",
            metrics=formulas.SHAPE_METRICS,
            check=formulas.check_shape,
            run=formulas.overlay_shape,
            cost=lambda settings: 1e-4 * settings["members"] ** 2,
        ),
        Experiment(
            name="failure_threshold",
            metrics=formulas.DETECTOR_METRICS,
            check=formulas.check_detector,
            run=formulas.failure_threshold,
            cost=lambda settings: 0.01 + 2e-8 * settings["members"] ** 2 * math.log(settings["members"]),
        ),
        Experiment(
            name="gossip_chain",
            metrics=formulas.CHAIN_METRICS,
            check=formulas.check_chain,
            run=formulas.gossip_chain,
            cost=lambda settings: 0.01 + 2e-8 * settings["members"] ** 2 * math.log(settings["members"]),
        ),
        Experiment(
            name="trigger",
            metrics=formulas.TRIGGER_METRICS,
            check=formulas.check_trigger,
            run=formulas.trigger_level,
            cost=lambda _: 0.001,
        ),
    )
}

"""What a run can be: a simulation, or a formula of the models computed on the same axes.

An experiment takes plain settings (numbers and text, as they stand in a plan) and gives metrics by name. It is pure:
the same settings give the same metrics, on any machine. A new experiment is one function and one entry in
`_EXPERIMENTS`.

Besides the fields of `Scenario` a simulation knows one derived setting: `crashed_neighbours = k` crashes k hypercube
neighbours of member 0, drawn by the seed, at time 0 (cube §4.2.5).
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import numpy as np

from cubecast.core.overlays import hypercube
from cubecast.core.registry import protocol_named
from cubecast.errors import LocalProtocolError, PlanError
from cubecast.models.gossip_chain import GossipChain
from cubecast.models.trigger import TriggerCase, trigger
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.sim.faults import Fault, parse_fault
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario
from cubecast.sim.trees import GrownTree, grow_tree

Settings = Mapping[str, Any]
Metrics = dict[str, float]

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
"""Fields of a result that repeat the scenario, or that differ from one machine to another."""
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
    """About how many seconds a run takes."""


def experiment_named(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in _EXPERIMENTS:
        raise PlanError(f"unknown experiment {name!r}: choose one of {', '.join(_EXPERIMENTS)}")
    return _EXPERIMENTS[name]


def check_run(experiment: str, settings: Settings, seen: set[str]) -> None:
    """Refuse settings that cannot be run; `seen` remembers the networks that were tried already."""
    experiment_named(experiment).check(settings, seen)


def at_fault(message: str, settings: Settings) -> str | None:
    """The setting that an error speaks of: the first of its words that is one, or whose value is quoted."""
    words = re.findall(r"[a-z_]+", message)
    named = [word for word in words if word in settings]
    quoted = [name for name, value in settings.items() if isinstance(value, str) and value and value in message]
    return (named[:1] or quoted[:1] or [None])[0]


def scenario_of(settings: Settings) -> Scenario:
    """The scenario that the settings of a simulation spell."""
    values = dict(settings)
    crashed = values.pop("crashed_neighbours", 0)
    known = {field.name for field in fields(Scenario)}
    for name in values:
        if name not in known:
            raise LocalProtocolError(f"unknown parameter {name!r}: choose from {', '.join(sorted(known))}")
    _check_types(values)
    for name, what in _FAULTS.items():
        if name in values:
            texts = values[name] if isinstance(values[name], list) else [values[name]]
            values[name] = tuple(parse_fault(text, what=what) for text in texts if text)
    if crashed:
        values["crashes"] = (*values.get("crashes", ()), _neighbour_crash(crashed, values["members"], values["seed"]))
    if "protocol" not in values or "members" not in values:
        raise LocalProtocolError("a simulation needs protocols and members: name both")
    return Scenario(**values)


def _check_types(values: Settings) -> None:
    """Hold each value to the type of its field; whole numbers are numbers too."""
    hints = get_type_hints(Scenario)
    for name, value in values.items():
        if name in _FAULTS:
            continue
        allowed = getattr(hints[name], "__args__", (hints[name],))
        kinds = {type(one) if isinstance(one, str) else one for one in _flat(allowed)}
        if float in kinds:
            kinds.add(int)
        if type(value) not in kinds:
            spoken = " or ".join(sorted(kind.__name__ for kind in kinds if kind is not type(None)))
            raise LocalProtocolError(f"{name} = {value!r}: write {spoken}")


def _flat(kinds: tuple[Any, ...]) -> list[Any]:
    """The members of a union, literals by their values."""
    return [inner for kind in kinds for inner in (_flat(kind.__args__) if hasattr(kind, "__args__") else [kind])]


def _neighbour_crash(count: Any, members: int, seed: int) -> Fault:
    overlay = hypercube(members)
    neighbours = overlay.neighbours[overlay.offsets[0] : overlay.offsets[1]]
    if type(count) is not int or not 0 < count <= len(neighbours):
        raise LocalProtocolError(f"crashed_neighbours = {count!r}: member 0 of {members} has {len(neighbours)}")
    stream = np.random.Generator(np.random.Philox(key=[seed, 0x63]))
    return Fault(members=tuple(sorted(int(rank) for rank in stream.choice(neighbours, count, replace=False))), at_ns=0)


def _check_simulation(settings: Settings, seen: set[str]) -> None:
    scenario = scenario_of(settings)
    spec = f"{scenario.network} {min(scenario.members, 100)}"
    if spec not in seen and not scenario.network.startswith("file:"):
        build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    seen.add(spec)


_networks: OrderedDict[tuple[str, int, int], Network] = OrderedDict()


def _network(scenario: Scenario) -> Network:
    """The network of a scenario; protocols that follow each other on one topology share it."""
    key = (scenario.network, scenario.members, scenario.seed)
    if key not in _networks:
        _networks[key] = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
        while len(_networks) > _NETWORKS_KEPT:
            _networks.popitem(last=False)
    _networks.move_to_end(key)
    return _networks[key]


def _simulate(settings: Settings) -> Metrics:
    scenario = scenario_of(settings)
    result = run_scenario(scenario, _network(scenario))
    values = {name: getattr(result, name) for name in _RESULT_METRICS}
    return {name: float(value) for name, value in values.items() if value is not None}


_RESULT_METRICS = tuple(field.name for field in fields(Result) if field.name not in NOT_METRICS)


def _simulation_cost(settings: Settings) -> float:
    """Routes cost n² and more, packet-hops 0.25 µs each; a multicast to n members crosses about n·log n links."""
    scenario = scenario_of(settings)
    n, rounds = scenario.members, scenario.rounds
    hops = n * math.log2(n + 1)
    sends = {"full_dist": n, "cube_full_dist": math.log2(n) ** 2, "gossip": 4 * math.log2(n), "train": 2}
    control = rounds * sends.get(protocol_named(scenario.protocol).name, 3) * hops
    data = scenario.messages * scenario.sender_count * hops
    return 0.02 + 1.5e-7 * n * n + 1e-6 * (control + data)


_TREE_SETTINGS = ("protocol", "members", "degree", "loss", "crash", "hubs", "packets", "heartbeats")
_TREE_METRICS = tuple(field.name for field in fields(GrownTree) if field.name != "parents")


def _tree_network(settings: Settings) -> str:
    words = [f"{name}={settings[name]}" for name in ("degree", "hubs", "loss", "crash") if name in settings]
    return f"regular:{','.join(words)}"


def _check_tree(settings: Settings, seen: set[str]) -> None:
    _known(settings, _TREE_SETTINGS)
    spec = _tree_network(settings)
    if spec not in seen:
        build_network(spec, members=settings.get("members", 100), seed=0)
    seen.add(spec)


def _grow_tree(settings: Settings) -> Metrics:
    """The tree that Plumtree or RASM leaves behind, and what growing it took (rasm §4)."""
    told = {name: settings[name] for name in ("members", "packets", "heartbeats") if name in settings}
    tree = grow_tree(settings["protocol"], _tree_network(settings), seed=settings["seed"], **told)
    return {name: float(getattr(tree, name)) for name in _TREE_METRICS}


def _check_chain(settings: Settings, _: set[str]) -> None:
    _known(settings, ("members", "subset", "arrival", "p_incomplete"))
    GossipChain(members=settings["members"], subset=settings.get("subset", 1), arrival=settings.get("arrival", 1.0))


def _gossip_chain(settings: Settings) -> Metrics:
    """Micro-steps and steps until every member's information is everywhere (guo §4.2.5)."""
    chain = GossipChain(
        members=settings["members"], subset=settings.get("subset", 1), arrival=settings.get("arrival", 1.0)
    )
    micro_steps = chain.micro_steps_for(settings["p_incomplete"])
    return {"micro_steps": float(micro_steps), "steps": micro_steps / settings["members"]}


def _trigger_case(settings: Settings) -> TriggerCase:
    _known(settings, ("buffer_messages", "rate_per_s", "round_s", "stable_fraction"))
    return TriggerCase(**{name: value for name, value in settings.items() if name != "seed"})


def _check_trigger(settings: Settings, _: set[str]) -> None:
    _trigger_case(settings)


def _trigger(settings: Settings) -> Metrics:
    """The level at which a round must start (guo ch. 6); a case without one has no metric."""
    answer = trigger(_trigger_case(settings))
    return {} if answer.level is None else {"level_messages": float(answer.level)}


def _known(settings: Settings, names: tuple[str, ...]) -> None:
    for name in settings:
        if name not in names and name != "seed":
            raise LocalProtocolError(f"unknown parameter {name!r}: choose from {', '.join(names)}")


_EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment(
            name="simulate",
            metrics=_RESULT_METRICS,
            check=_check_simulation,
            run=_simulate,
            cost=_simulation_cost,
        ),
        Experiment(
            name="grow_tree",
            metrics=_TREE_METRICS,
            check=_check_tree,
            run=_grow_tree,
            cost=lambda settings: 0.02 + 1e-3 * settings.get("degree", 4),
        ),
        Experiment(
            name="gossip_chain",
            metrics=("micro_steps", "steps"),
            check=_check_chain,
            run=_gossip_chain,
            cost=lambda settings: 0.01 + 2e-8 * settings["members"] ** 2 * math.log(settings["members"]),
        ),
        Experiment(
            name="trigger",
            metrics=("level_messages",),
            check=_check_trigger,
            run=_trigger,
            cost=lambda _: 0.001,
        ),
    )
}

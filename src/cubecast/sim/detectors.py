"""The failure detector of a scenario: which core, and how long it waits before it suspects."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubecast.models.failure import k_fail, misses_allowed
from cubecast.networks.network import Network
from cubecast.networks.routes import Routes
from cubecast.protocol.group import Group
from cubecast.protocol.overlays import hypercube_dimension
from cubecast.protocols.failure import no_detector
from cubecast.protocols.layers import Layer, LayerSetup, detector_named
from cubecast.sim.scenario import NS_PER_MS, Scenario


def build_detector(scenario: Scenario, group: Group, network: Network, routes: Routes) -> Any:
    """The state of the failure layer; silent where the failure detector is only a model."""
    if not scenario.detects:
        return no_detector.SilentState(group=group)
    return detector_named(scenario.detector).build(group, detector_setup(scenario, network, routes))


def detector_numbers(scenario: Scenario) -> int:
    """How many numbers a message of the failure layer carries."""
    if not scenario.detects:
        return 0
    layer: Layer = detector_named(scenario.detector)
    return layer.numbers(LayerSetup(members=scenario.members, seed=scenario.seed))


def detector_setup(scenario: Scenario, network: Network, routes: Routes) -> LayerSetup:
    """Steps and threshold; unless it is given, the threshold follows from `p_mistake` and the losses on the way."""
    return LayerSetup(
        members=scenario.members,
        seed=scenario.seed,
        step_ns=round(scenario.detector_step_ms * NS_PER_MS),
        subset=scenario.detector_subset,
        threshold=scenario.detector_threshold or _threshold(scenario, mean_arrival(scenario.loss, network, routes)),
    )


def _threshold(scenario: Scenario, arrival: float) -> int:
    if scenario.detector == "gossip":
        return k_fail(
            members=scenario.members,
            p_mistake=scenario.p_mistake,
            step_s=scenario.detector_step_ms / 1e3,
            subset=scenario.detector_subset,
            arrival=arrival,
        ).k_fail
    if scenario.detector == "live_array":
        # The arrays of all neighbours are as good as one heartbeat, which takes a step for every hop.
        return hypercube_dimension(scenario.members) + misses_allowed(
            members=scenario.members, p_mistake=scenario.p_mistake, arrival=arrival
        )
    one_answer = arrival**2 if scenario.detector == "polling" else arrival
    return misses_allowed(members=scenario.members, p_mistake=scenario.p_mistake, arrival=one_answer)


def mean_arrival(loss: float, network: Network, routes: Routes) -> float:
    """The probability that a message between two members arrives, over all pairs, when each link loses `loss`."""
    if loss == 0:
        return 1.0
    if network.one_hop is not None:
        return 1 - loss
    arrived = 0.0
    for destination in network.hosts:
        at = network.hosts.copy()
        chance = np.ones(len(at))
        while (away := at != destination).any():
            links = routes.first_link[at[away]] + routes.port[destination, at[away]]
            at[away] = network.link_to[links]
            chance[away] *= 1 - loss
        arrived += chance.sum() - 1
    return float(arrived / (network.members * (network.members - 1)))

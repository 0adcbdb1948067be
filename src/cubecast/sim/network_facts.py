"""The facts of a simulated network that a protocol may know at its start."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from cubecast.networks.network import Network
from cubecast.networks.routes import need_table
from cubecast.protocol.context import NetworkFacts
from cubecast.sim.paths import routes_of
from cubecast.sim.scenario import Scenario


def network_facts(scenario: Scenario, network: Network) -> NetworkFacts:
    """Speeds, delays, shape and losses, computed on demand."""
    costs, one_hop = network.costs, network.one_hop
    return NetworkFacts(
        bandwidth_bps=float(network.bandwidth_bps.min()) if network.links else math.inf,
        node_ns=float(costs.router_ns + costs.receive_ns) if costs is not None else 0.0,
        node_ns_per_byte=costs.receive_ns_per_byte if costs is not None else 0.0,
        delay_ns_max=float(network.delay_ns.max()) if one_hop is None else 0.0,
        one_hop_ns=float(one_hop.low_ns + one_hop.spread_ns) if one_hop is not None else None,
        tree_children=network.tree_children,
        is_sparse=network.tree_children > 0 and network.nodes > network.members,
        has_multicast=multicast_of(scenario, network) == "tree",
        loss=scenario.loss,
        arrival=mean_arrival(scenario, network) if scenario.detects else 1.0,
    )


def multicast_of(scenario: Scenario, network: Network) -> Literal["copies", "tree"]:
    """How a multicast travels: as the scenario says, by default as in the paper that uses this kind of network."""
    return scenario.multicast or ("tree" if network.tree_children > 0 else "copies")


def mean_arrival(scenario: Scenario, network: Network) -> float:
    """The probability that a message between two members arrives, over all pairs, when each link loses `loss`."""
    if scenario.loss == 0:
        return 1.0
    if network.one_hop is not None:
        return 1 - scenario.loss
    need_table(network, "a failure detector with loss")
    routes = routes_of(network, by=scenario.routing)
    arrived = 0.0
    for destination in network.hosts:
        at = network.hosts.copy()
        chance = np.ones(len(at))
        while (away := at != destination).any():
            links = routes.first_link[at[away]] + routes.port[destination, at[away]]
            at[away] = network.link_to[links]
            chance[away] *= 1 - scenario.loss
        arrived += chance.sum() - 1
    return float(arrived / (network.members * (network.members - 1)))

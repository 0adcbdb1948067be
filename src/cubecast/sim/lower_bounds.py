"""The floor under the metrics of a run on its network (`models.lower_bounds`), by the name of the metric."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from cubecast.models import lower_bounds as bounds
from cubecast.networks.network import Network
from cubecast.protocol.mail import HEADER_BYTES
from cubecast.sim.result import Result
from cubecast.sim.scenario import NS_PER_MS, Scenario

NODES_MAX = 4096
"""Distances of all pairs take eight bytes each, and longer than a run beyond this size."""

BOUNDED = (
    *("rtt_first_ms", "rtt_last_ms", "messages", "hops"),
    *("data_messages", "data_hops", "delay_mean_ms", "delay_max_ms"),
)
"""Metrics that have a floor."""

_FOUND: WeakKeyDictionary[Network, NDArray[np.float64]] = WeakKeyDictionary()


def lower_bounds(scenario: Scenario, network: Network, result: Result) -> dict[str, float]:
    """For each metric that has a floor, its value; none for a group that changes."""
    if _changes(scenario) or network.nodes > NODES_MAX:
        return {}
    distances = _distances_ms(network)
    found: dict[str, float] = {}
    if scenario.carries_data:
        copies = float(bounds.multicast_messages(scenario.members) * scenario.messages * scenario.sender_count)
        found |= {"data_messages": copies, "data_hops": copies}
    else:
        least = float(result.rounds * bounds.round_messages(scenario.members))
        found |= {"rtt_first_ms": bounds.first_to_know(distances), "rtt_last_ms": bounds.last_to_know(distances)}
        found |= {} if scenario.piggyback_control else {"messages": least, "hops": least}
    if scenario.messages > 0 and scenario.placement is None:  # a placement moves the senders
        found["delay_mean_ms"], found["delay_max_ms"] = bounds.multicast_delays(distances, scenario.sender_count)
    return found


def _changes(scenario: Scenario) -> bool:
    faults = (scenario.crashes, scenario.suspicions, scenario.partitions, scenario.joins, scenario.leaves)
    return scenario.has_views or scenario.detects or any(faults)


def _distances_ms(network: Network) -> NDArray[np.float64]:
    """[i, j] = the least time of a bare header from member i to j: propagation and transmission, by the best path."""
    if network.one_hop is not None:
        apart = np.full((network.members, network.members), network.one_hop.low_ns / NS_PER_MS)
        np.fill_diagonal(apart, 0.0)
        return apart
    if network not in _FOUND:
        crossing_ns = network.delay_ns + 8e9 * HEADER_BYTES / network.bandwidth_bps
        shape = (network.nodes, network.nodes)
        graph = csr_array((crossing_ns, (network.link_from, network.link_to)), shape=shape)
        _FOUND[network] = dijkstra(graph, indices=network.hosts)[:, network.hosts] / NS_PER_MS
    return _FOUND[network]

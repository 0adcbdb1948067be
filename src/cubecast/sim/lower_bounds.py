"""Lower bounds of the metrics of a run on its network (`models.lower_bounds`), by the name of the metric."""

from __future__ import annotations

from typing import NamedTuple
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
"""The distances of all pairs take eight bytes each; beyond this size they take longer than a run."""

BOUNDED = (
    *("rtt_first_ms", "rtt_last_ms", "messages", "hops"),
    *("data_messages", "data_hops", "delay_mean_ms", "delay_max_ms"),
)
"""Metrics that have a lower bound."""

_FOUND: WeakKeyDictionary[Network, NDArray[np.float64]] = WeakKeyDictionary()


class _Times(NamedTuple):
    """Lower bounds of times in milliseconds, for any protocol."""

    first_to_know: float
    last_to_know: float
    delay_mean: float
    delay_max: float


def lower_bounds(scenario: Scenario, network: Network, result: Result) -> dict[str, float]:
    """The lower bound of each metric that has one; none if the membership changes."""
    if _changes(scenario) or (network.one_hop is None and network.nodes > NODES_MAX):
        return {}
    times = _times(network, scenario.sender_count)
    found: dict[str, float] = {}
    if scenario.carries_data:
        copies = float(bounds.multicast_messages(scenario.members) * scenario.messages * scenario.sender_count)
        found |= {"data_messages": copies, "data_hops": copies}
    else:
        least = float(result.rounds * bounds.round_messages(scenario.members))
        found |= {"rtt_first_ms": times.first_to_know, "rtt_last_ms": times.last_to_know}
        found |= {} if scenario.piggyback_control else {"messages": least, "hops": least}
    if scenario.messages > 0 and scenario.placement is None:  # a placement moves the senders
        found |= {"delay_mean_ms": times.delay_mean, "delay_max_ms": times.delay_max}
    return found


def _changes(scenario: Scenario) -> bool:
    faults = (scenario.crashes, scenario.suspicions, scenario.partitions, scenario.joins, scenario.leaves)
    return scenario.has_views or scenario.detects or any(faults)


def _times(network: Network, senders: int) -> _Times:
    if network.one_hop is not None:  # the shortest delay that may be drawn, between any two
        return _Times(*[network.one_hop.low_ns / NS_PER_MS] * 4)
    if network not in _FOUND:
        _FOUND[network] = _distances_ms(network)
    distances = _FOUND[network]
    return _Times(
        bounds.first_to_know(distances),
        bounds.last_to_know(distances),
        *bounds.multicast_delays(distances, senders),
    )


def _distances_ms(network: Network) -> NDArray[np.float64]:
    """[i, j] = the least time of a bare header from member i to j: propagation and transmission on the best path."""
    crossing_ns = network.delay_ns + 8e9 * HEADER_BYTES / network.bandwidth_bps
    shape = (network.nodes, network.nodes)
    graph = csr_array((crossing_ns, (network.link_from, network.link_to)), shape=shape)
    found: NDArray[np.float64] = dijkstra(graph, indices=network.hosts)[:, network.hosts] / NS_PER_MS
    return found

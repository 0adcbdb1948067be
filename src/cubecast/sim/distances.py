"""How long a message takes between members on the routes of an idle network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import entry_point
from cubecast.networks.network import Network
from cubecast.networks.routes import Routes


def routed_delays(network: Network, routes: Routes, size_bytes: int) -> NDArray[np.float64]:
    """[i, j] = nanoseconds from the node of member i to that of member j, for a message of this size."""
    crossing_ns = network.delay_ns + 8e9 * size_bytes / network.bandwidth_bps
    if network.costs is not None:
        crossing_ns = crossing_ns + network.costs.router_ns
    found = np.zeros((network.members, network.members))
    away = np.empty(network.nodes)
    way = np.empty(network.nodes, np.int64)
    _add_up_routes(found, away, way, network.hosts, network.link_to, routes.first_link, routes.port, crossing_ns)
    return found


@entry_point
def _add_up_routes(found, away, way, hosts, link_to, first_link, port, crossing_ns):
    """For each destination, walk from every member to the first node already known, and back: each node once."""
    for destination in range(hosts.shape[0]):
        for place in range(away.shape[0]):
            away[place] = -1.0
        end = np.int64(hosts[destination])
        away[end] = 0.0
        for source in range(hosts.shape[0]):
            node = np.int64(hosts[source])
            passed = 0
            while away[node] < 0.0:
                link = np.int64(first_link[node]) + np.int64(port[end, node])
                way[passed] = link
                passed += 1
                node = np.int64(link_to[link])
            total_ns = away[node]
            for place in range(passed - 1, -1, -1):
                total_ns += crossing_ns[way[place]]
                # The node that this link leaves: the one the link before leads to, or where the way began.
                left = np.int64(hosts[source]) if place == 0 else np.int64(link_to[way[place - 1]])
                away[left] = total_ns
            found[source, destination] = away[np.int64(hosts[source])]

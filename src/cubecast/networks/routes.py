"""Deterministic shortest-path routes, one tree of next hops for every destination.

| field      | shape          | meaning                                                            |
|------------|----------------|--------------------------------------------------------------------|
| first_link | [nodes + 1]    | links first_link[v] … first_link[v + 1] − 1 leave node v           |
| reverse    | [links]        | the link in the other direction of the same edge                   |
| port       | [nodes, nodes] | port[d, v] = which of v's links leads to node d; NO_PORT at d      |
|            |                | itself, and in the rows of destinations that host no member        |

At node v a message for node d takes link `first_link[v] + port[d, v]`. The next hops towards one destination form a
tree, so no message takes a cycle. Networks with more than `NODES_MAX` nodes have no table (`port` has one entry): a
tree needs none, and in other graphs a message reaches neighbours only (`sim.next_link`).

Ties between paths of equal length: by hops, the breadth-first search from the destination d visits the neighbours of a
node v in the order v + 1, v + 2, … (modulo the nodes), and the node that discovers another first becomes its next hop.
Always taking the lowest number instead would turn the nodes with low numbers, which are the senders and the
coordinator, into hubs. By delay, SciPy's Dijkstra decides ties.

SciPy finds the paths. Measured on one core: 0.45 s by delay for 1000 nodes with p = 0.04, 0.3 s by hops for 1900 nodes
with p = 0.02, so our own compiled search would gain little.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import NODES_MAX, Network

NO_PORT = 65535
# Destinations per call of Dijkstra, which takes 12 bytes per pair of destination and node.
_BLOCK = 256


class Routes(NamedTuple):
    """Next hops towards every node that hosts a member."""

    first_link: NDArray[np.int32]
    reverse: NDArray[np.int32]
    port: NDArray[np.uint16]


def find_routes(network: Network, *, by: Literal["hops", "delay"]) -> Routes:
    """Shortest paths by number of hops, or by the sum of the propagation delays."""
    if network.one_hop is not None:
        raise LocalProtocolError(f"network {network.name} has no links, so it needs no routes")
    assert network.largest_degree < NO_PORT or network.nodes > NODES_MAX
    first_link = np.zeros(network.nodes + 1, dtype=np.int32)
    np.cumsum(np.bincount(network.link_from, minlength=network.nodes), out=first_link[1:])
    # Sorting by (to, from) puts the reverse of the k-th link of the (from, to) order at place k.
    reverse = np.lexsort((network.link_from, network.link_to)).astype(np.int32)
    if network.nodes > NODES_MAX:
        _check_without_table(network, by)
        return Routes(first_link, reverse, np.zeros((1, 1), np.uint16))
    port = np.full((network.nodes, network.nodes), NO_PORT, dtype=np.uint16)
    destinations = np.unique(network.hosts)
    port_of = _ports_by_neighbour(network, first_link)
    nodes = np.arange(network.nodes)
    search = _next_hops_by_hops if by == "hops" else _next_hops_by_delay
    graph = _graph(network, by)
    for start in range(0, len(destinations), _BLOCK):
        block = destinations[start : start + _BLOCK]
        next_hop = search(graph, block)
        port[block] = port_of[nodes, np.maximum(next_hop, 0)]
        port[block, block] = NO_PORT
    return Routes(first_link, reverse, port)


def arity_of(network: Network) -> int:
    """How next hops are found: 0 in the table, −1 neighbours only, otherwise by arithmetic in a tree of that arity."""
    if network.nodes <= NODES_MAX:
        return 0
    return network.arity or -1


def need_table(network: Network, what: str) -> None:
    """Raise LocalProtocolError if the network has no table of routes, which `what` needs."""
    if network.nodes > NODES_MAX:
        raise LocalProtocolError(
            f"{what} on network {network.name} of {network.nodes} nodes: it takes a table of routes, "
            f"up to {NODES_MAX} nodes"
        )


def _check_without_table(network: Network, by: Literal["hops", "delay"]) -> None:
    if network.arity > 0:
        return
    if network.nodes > network.members:
        raise LocalProtocolError(
            f"{network.nodes} nodes in network {network.name}: routes reach up to {NODES_MAX} nodes, "
            "use flat for larger groups"
        )
    if by == "delay":
        need_table(network, "routing = delay")


def _ports_by_neighbour(network: Network, first_link: NDArray[np.int32]) -> NDArray[np.uint16]:
    """[v, u] = which of v's links leads to its neighbour u."""
    port_of = np.full((network.nodes, network.nodes), NO_PORT, dtype=np.uint16)
    port_of[network.link_from, network.link_to] = np.arange(network.links) - first_link[network.link_from]
    return port_of


def _graph(network: Network, by: Literal["hops", "delay"]) -> csr_array:
    """The links as a sparse matrix for SciPy; those of node v are in the order v + 1, v + 2, …, which decides ties."""
    order = np.lexsort(((network.link_to - network.link_from) % network.nodes, network.link_from))
    length = network.delay_ns[order].astype(np.float64) if by == "delay" else np.ones(network.links)
    first_link = np.searchsorted(network.link_from, np.arange(network.nodes + 1)).astype(np.int32)
    return csr_array((length, network.link_to[order], first_link), shape=(network.nodes, network.nodes))


def _next_hops_by_hops(graph: csr_array, destinations: NDArray[np.int32]) -> NDArray[np.int32]:
    """[destination, node] = next hop. Edges are duplex, so the tree from d is also the tree towards d."""
    return np.stack([breadth_first_order(graph, d, return_predecessors=True)[1] for d in destinations])


def _next_hops_by_delay(graph: csr_array, destinations: NDArray[np.int32]) -> NDArray[np.int32]:
    next_hop: NDArray[np.int32] = dijkstra(graph, indices=destinations, return_predecessors=True)[1]
    return next_hop

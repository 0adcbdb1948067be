"""A physical network: nodes, directed links between them, and the node that hosts each member.

| field         | shape   | meaning                                                              |
|---------------|---------|----------------------------------------------------------------------|
| link_from     | [links] | node a link leaves; links are sorted by (from, to)                   |
| link_to       | [links] | node it enters                                                       |
| delay_ns      | [links] | propagation delay                                                    |
| bandwidth_bps | [links] | bits per second                                                      |
| hosts         | [n]     | rank -> node                                                         |
| costs         | –       | time routers and hosts spend on a message; None when they spend none |
| one_hop       | –       | delay of every message in a network without links; None otherwise    |

Invariants, checked at construction: an edge is duplex, so every link has a reverse with the same delay and bandwidth;
no node is linked to itself and no two links join the same nodes; the links connect all nodes; no two members share a
node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import DelayDistribution

# Separates the random draws of a network from every other use of the same seed.
_NETWORK_STREAM = 0x6E6574

# Routes take two tables with two bytes per pair of nodes: 2 GiB each at this size. Larger networks have no table.
NODES_MAX = 32_768
MEMBERS_MAX = (2**31 - 1) // 32
"""The packets in flight, 32 per member, are counted in 32 bits."""


@dataclass(frozen=True, kw_only=True)
class NodeCosts:
    """Processing time of a message at the nodes (guo §5.1): constant at routers, linear in its bytes at hosts."""

    router_ns: int
    send_ns: int
    send_ns_per_byte: float
    receive_ns: int
    receive_ns_per_byte: float

    def __post_init__(self) -> None:
        for name in ("router_ns", "send_ns", "send_ns_per_byte", "receive_ns", "receive_ns_per_byte"):
            if not 0 <= getattr(self, name) < np.inf:
                raise LocalProtocolError(f"node cost {name}={getattr(self, name)}: give a finite time of 0 or more")


@dataclass(frozen=True, kw_only=True, eq=False)
class Unreliability:
    """Failure probabilities (rasm §2): an edge loses a message, a node crashes in a step."""

    loss: NDArray[np.float64]
    """L, one per edge; in a `Network` one per link."""
    crash: NDArray[np.float64]
    """P, one per node."""
    sampled: bool = True
    """Do losses and crashes happen in the run, or do protocols only know their probabilities?"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A network as the simulator runs it; `name` is its spec as the user wrote it. Build one with `build_network`."""

    name: str
    nodes: int
    link_from: NDArray[np.int32]
    link_to: NDArray[np.int32]
    delay_ns: NDArray[np.int64]
    bandwidth_bps: NDArray[np.float64]
    hosts: NDArray[np.int32]
    costs: NodeCosts | None = None
    one_hop: DelayDistribution | None = None
    added_edges: int = 0
    """How many edges were added to make a random graph connected."""
    tree_children: int = 0
    """Children of an inner node, where the network is a balanced tree with the nodes numbered breadth first."""
    unreliability: Unreliability | None = None
    random_ties: bool = False
    """Are packets that arrive at the same instant in random order? Otherwise they are ordered by link number."""
    arity: int = 0
    """Children of an inner node, where the network is a tree with the nodes numbered breadth first, even a chain."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_hosts(self)
        if self.one_hop is None:
            _check_links(self)
        elif len(self.link_from):
            raise LocalProtocolError(f"network {self.name} has links and a one-hop delay: drop one of them")

    @property
    def link_failure(self) -> NDArray[np.float64]:
        """1 − (1 − P_i)(1 − L_ij)(1 − P_j) for each link: the probability that a message does not get across."""
        if self.unreliability is None:
            return np.zeros(self.links)
        stays_up = 1 - self.unreliability.crash
        return 1 - stays_up[self.link_from] * (1 - self.unreliability.loss) * stays_up[self.link_to]

    @property
    def members(self) -> int:
        return len(self.hosts)

    @property
    def links(self) -> int:
        return len(self.link_from)

    @property
    def average_degree(self) -> float:
        """The average number of edges at a node, including the added ones; 0 in a network without links."""
        return self.links / self.nodes

    @property
    def largest_degree(self) -> int:
        return int(np.bincount(self.link_from, minlength=self.nodes).max())


@dataclass(frozen=True, kw_only=True)
class Edges:
    """Duplex edges, each listed once; each becomes two links, one per direction."""

    ends: NDArray[np.int64]  # [edges, 2]
    delay_ns: NDArray[np.int64]
    bandwidth_bps: NDArray[np.float64]


def from_edges(
    edges: Edges,
    *,
    name: str,
    nodes: int,
    hosts: NDArray[np.int32],
    costs: NodeCosts | None = None,
    added_edges: int = 0,
    tree_children: int = 0,
    unreliability: Unreliability | None = None,
    random_ties: bool = False,
    arity: int = 0,
) -> Network:
    """The network with two links, one per direction, for every edge."""
    link_from = np.concatenate([edges.ends[:, 0], edges.ends[:, 1]])
    link_to = np.concatenate([edges.ends[:, 1], edges.ends[:, 0]])
    order = np.lexsort((link_to, link_from))
    return Network(
        name=name,
        nodes=nodes,
        link_from=link_from[order].astype(np.int32),
        link_to=link_to[order].astype(np.int32),
        delay_ns=np.tile(edges.delay_ns, 2)[order],
        bandwidth_bps=np.tile(edges.bandwidth_bps, 2)[order],
        hosts=hosts,
        costs=costs,
        added_edges=added_edges,
        tree_children=tree_children,
        unreliability=unreliability and replace(unreliability, loss=np.tile(unreliability.loss, 2)[order]),
        random_ties=random_ties,
        arity=arity,
    )


def generator_for(seed: int) -> Generator:
    """The random source of a network: counter-based, so that a seed gives the same network everywhere."""
    if seed < 0:
        raise LocalProtocolError(f"seed {seed}: give a seed of 0 or more")
    return Generator(Philox(SeedSequence([seed, _NETWORK_STREAM])))


def every_node_hosts(members: int) -> NDArray[np.int32]:
    """The hosts of a network in which node i hosts rank i."""
    return np.arange(members, dtype=np.int32)


def components(nodes: int, ends: NDArray[np.int64]) -> NDArray[np.int32]:
    """The component number of every node; `ends` has one row per edge, with its two nodes."""
    edge = np.ones(len(ends), dtype=np.int8)
    graph = csr_array((edge, (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    labels: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return labels


def _check_types(network: Network) -> None:
    wanted = {
        "link_from": np.int32,
        "link_to": np.int32,
        "delay_ns": np.int64,
        "bandwidth_bps": np.float64,
        "hosts": np.int32,
    }
    for field, dtype in wanted.items():
        array = getattr(network, field)
        if array.dtype != dtype or array.ndim != 1:
            raise LocalProtocolError(
                f"network {network.name}: {field} is {array.ndim}-dimensional {array.dtype}, "
                f"give one dimension of {np.dtype(dtype)}"
            )
        if field != "hosts" and len(array) != len(network.link_from):
            raise LocalProtocolError(
                f"network {network.name}: {field} has {len(array)} entries for {len(network.link_from)} links"
            )


def _check_hosts(network: Network) -> None:
    hosts = network.hosts
    if len(hosts) < 2:
        raise LocalProtocolError(f"{len(hosts)} members in network {network.name}: a group needs at least 2")
    if hosts.min() < 0 or hosts.max() >= network.nodes or len(np.unique(hosts)) != len(hosts):
        raise LocalProtocolError(
            f"network {network.name}: every member needs a node of its own, from 0 to {network.nodes - 1}"
        )


def _check_links(network: Network) -> None:
    ends = np.stack([network.link_from, network.link_to], axis=1).astype(np.int64)
    if len(ends) == 0 or ends.min() < 0 or ends.max() >= network.nodes:
        raise LocalProtocolError(f"network {network.name}: give links between nodes 0 to {network.nodes - 1}")
    if np.any(ends[:, 0] == ends[:, 1]):
        raise LocalProtocolError(f"network {network.name}: a link leads back to its own node, drop it")
    key = ends[:, 0] * network.nodes + ends[:, 1]
    if np.any(np.diff(key) <= 0):
        raise LocalProtocolError(f"network {network.name}: sort the links by (from, to) and list each once")
    if network.delay_ns.min() < 0 or not np.all((network.bandwidth_bps > 0) & (network.bandwidth_bps < np.inf)):
        raise LocalProtocolError(
            f"network {network.name}: give every link a delay of 0 or more and a bandwidth above 0"
        )
    _check_duplex(network)
    found = int(components(network.nodes, ends).max()) + 1
    if found > 1:
        raise LocalProtocolError(f"network {network.name} falls into {found} parts: add links that connect them")


def _check_duplex(network: Network) -> None:
    reverse = np.lexsort((network.link_from, network.link_to))
    same = (
        np.array_equal(network.link_from[reverse], network.link_to)
        and np.array_equal(network.link_to[reverse], network.link_from)
        and np.array_equal(network.delay_ns[reverse], network.delay_ns)
        and np.array_equal(network.bandwidth_bps[reverse], network.bandwidth_bps)
    )
    if not same:
        raise LocalProtocolError(
            f"network {network.name}: edges are duplex, give every link its reverse with the same delay and bandwidth"
        )

"""The wide-area tree of the guo study (guo §5.1, Fig. 5.1 C): slow links, and nodes that take time per message.

A balanced tree with nodes numbered breadth first and three children per inner node: the parent of node v is
(v − 1) div 3. The text says "interior nodes all have degree four", which holds for every inner node except the root;
only a root with three children gives the heights 4…6 that the study states for 50…500 nodes. Links carry 30 kb/s per
direction with a delay of 5 ms.

"Balanced" leaves open how an incomplete last level is filled: from the left (`fill=left`), so that one subtree of the
root may have three times the nodes of another, or evenly under the level above (`fill=even`). The logical trees of
S_CoordP and S_Train match the network only where it is filled from the left.

*Dense* groups have a member at every node. *Sparse* groups (`nodes=1000`) have rank 0 at the root ("the coordinator is
located at the root of the network tree", guo §5.4) and n−1 members at random other nodes; the rest only route. Ranks
follow the node numbers, so they are breadth first in both, unless `order=random` gives all but the root's in random
order: the study does not say in which order Train visits the members that it drew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import NS_PER_MS, constant
from cubecast.networks.network import NODES_MAX, Network, NodeCosts, every_node_hosts, from_edges, generator_for
from cubecast.networks.options import Options
from cubecast.networks.regular import tree_edges

CHILDREN = 3
FILLS = ("left", "even")
ORDERS = ("breadth", "random")
DELAY = constant(5 * NS_PER_MS)
BANDWIDTH_BPS = 30e3

# guo §5.1: a router takes 1 ms per message; a host takes t_s(u) = 338 + 47 u / 400 µs to send u bytes, t_r = 1.1 t_s to
# receive.
COSTS = NodeCosts(
    router_ns=1_000_000,
    send_ns=338_000,
    send_ns_per_byte=117.5,
    receive_ns=371_800,
    receive_ns_per_byte=129.25,
)


def from_options(options: Options) -> Network:
    nodes = options.whole_number("nodes", options.members)
    if not options.members <= nodes <= max(NODES_MAX, options.members):
        raise LocalProtocolError(
            f"nodes={nodes} in network {options.name}: give at least {options.members}, one per member, "
            f"and at most {NODES_MAX}"
        )
    fill = options.choice("fill", FILLS)
    if fill == "even" and nodes > NODES_MAX:
        raise LocalProtocolError(f"fill=even in network {options.name}: at most {NODES_MAX} nodes; drop fill")
    edges = tree_edges(_parents(nodes, fill), options.delay(DELAY), options.bandwidth_bps(BANDWIDTH_BPS), options.seed)
    return from_edges(
        edges,
        name=options.name,
        nodes=nodes,
        hosts=_hosts(options, nodes),
        costs=COSTS,
        tree_children=CHILDREN,
        arity=CHILDREN if fill == "left" else 0,
    )


def _parents(nodes: int, fill: str) -> NDArray[np.int64]:
    """The parent of each node but the root."""
    parents = np.arange(nodes - 1) // CHILDREN
    if fill == "left":
        return parents
    first, width = 0, 1  # of the last complete level
    while first + width + width * CHILDREN <= nodes:
        first, width = first + width, width * CHILDREN
    leaves = nodes - first - width
    parents[nodes - 1 - leaves :] = first + np.arange(leaves) * width // max(leaves, 1)
    return parents


def _hosts(options: Options, nodes: int) -> NDArray[np.int32]:
    order = options.choice("order", ORDERS)
    if nodes == options.members and order == "breadth":
        return every_node_hosts(nodes)
    others = 1 + generator_for(options.seed).choice(nodes - 1, size=options.members - 1, replace=False)
    return np.concatenate([[0], np.sort(others) if order == "breadth" else others]).astype(np.int32)

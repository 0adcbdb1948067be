"""Local groups that follow the network (guo §4.3.3: "according to their location on the network").

The tree consists of the shortest paths to member 0; on a WAN tree it is the network itself. From the leaves upwards,
the members below a node stay together as long as they are at most `size`. If there are more, the branches below the
node are packed into groups of at most `size`, the largest first, and the least filled group stays with the node.

So the local gossip of only one group crosses a link: the other groups below it lie entirely below its far end. Other
divisions, such as equal slices of a list, have groups that span several branches, and their gossip crosses the links
between these.
"""

from __future__ import annotations

from typing import Literal

from cubecast.networks.network import Network
from cubecast.sim.paths import routes_of

Groups = tuple[tuple[int, ...], ...]


def local_groups(network: Network, size: int, *, by: Literal["hops", "delay"]) -> Groups:
    """The ranks of each group, nearest to member 0 first; the group of member 0 is the first."""
    if network.one_hop is not None:
        ranks = range(network.members)
        return tuple(tuple(ranks[first : first + size]) for first in range(0, len(ranks), size))
    rank_at = {int(host): rank for rank, host in enumerate(network.hosts)}
    together: dict[int, list[int]] = {}
    complete: list[list[int]] = []
    order, children = _tree(network, by)
    for node in reversed(order):
        own = [rank_at[node]] if node in rank_at else []
        together[node], full = _pack(own, [together.pop(child) for child in children[node]], size)
        complete += full
    groups = [together[order[0]], *reversed(complete)]
    return tuple(tuple(group) for group in groups if group)


def _tree(network: Network, by: Literal["hops", "delay"]) -> tuple[list[int], list[list[int]]]:
    """The nodes of the tree of member 0, parents before children, and the children of every node."""
    routes = routes_of(network, by=by)
    root = int(network.hosts[0])
    children: list[list[int]] = [[] for _ in range(network.nodes)]
    for node in range(network.nodes):
        if node != root:
            children[int(network.link_to[routes.first_link[node] + routes.port[root, node]])].append(node)
    order = [root]
    for node in order:
        order += children[node]
    return order, children


def _pack(own: list[int], branches: list[list[int]], size: int) -> tuple[list[int], list[list[int]]]:
    """The ranks that stay with a node, and the complete groups below it."""
    if len(own) + sum(map(len, branches)) <= size:
        return own + [rank for branch in branches for rank in branch], []
    packs: list[list[int]] = []
    for branch in sorted(branches, key=len, reverse=True):
        roomy = next((pack for pack in packs if len(pack) + len(branch) <= size), None)
        if roomy is None:
            packs.append(list(branch))
        else:
            roomy += branch
    least = min(range(len(packs)), key=lambda place: len(packs[place]))
    if len(own) + len(packs[least]) > size:
        return own, packs
    return own + packs[least], packs[:least] + packs[least + 1 :]

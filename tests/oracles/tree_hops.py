"""Messages on all links of the dense WAN tree in one round: the exact counts behind guo Table 5.2 and Figs 5.12–5.15.

Dense: the physical tree is the logical tree and every node is a member. A unicast follows the tree path; a multicast
takes one copy per link, n − 1 in all, wherever it starts.
"""

from __future__ import annotations

from cubecast.models import trees

EXACT_PROTOCOLS = ("coord", "full_dist", "train", "s_coord", "s_train")


def tree_hops(protocol: str, members: int, degree: int = 3) -> int:
    """Links crossed in one round by all messages; exact without loss or repetition."""
    trees.require_tree(members, degree)
    links = members - 1
    if protocol == "coord":
        return int(trees.depths(members, degree).sum()) + 2 * links
    if protocol == "full_dist":
        return members * links
    if protocol == "train":
        return 2 * _ring_hops(members, degree)
    if protocol == "s_coord":
        return 3 * links
    assert protocol == "s_train", f"{protocol} has no exact hop count"
    return _sibling_hops(members, degree) + 2 * links


def _ring_hops(members: int, degree: int) -> int:
    """0 → 1 → … → n−1 → 0 along the tree."""
    return sum(distance(rank, (rank + 1) % members, degree) for rank in range(members))


def _sibling_hops(members: int, degree: int) -> int:
    """ACK1 between siblings goes over their parent (two links), ACK2 from the last sibling goes over one."""
    groups = (members - 2) // degree + 1
    return 2 * (members - 1 - groups) + groups


def distance(one: int, other: int, degree: int) -> int:
    """Links between two ranks along the tree. The higher rank is never nearer to the root, so it climbs first."""
    links = 0
    while one != other:
        one, other = min(one, other), (max(one, other) - 1) // degree
        links += 1
    return links

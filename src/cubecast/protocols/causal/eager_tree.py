"""Spanning trees over any set of live ranks, along which messages are pushed eagerly.

**Binomial.** The tree of a subcube is the tree of its lower half, and every live rank i of its upper half hangs below
the first live rank of i ⊕ 2^s, i ⊕ 2^s ⊕ 1, … in the lower half (the cluster order of VCube: Duarte, Bona and Ruoso
2014). When no rank is live in the lower half, it is the tree of the upper half. By induction this is a tree over
exactly the live ranks, for every set of them. With all ranks alive the parent of i is i without its highest bit: depth
and degree are at most ⌈log2 n⌉, so the work of forwarding is spread, and a message takes up to 2 ⌈log2 n⌉ − 1 hops.

**Star.** Every live rank hangs below the lowest one. A message takes two hops at most, and one member forwards
everything, n − 2 copies of each message: for small groups.

A crash gives a new parent only to ranks whose parent crashed, and at most one per crash, so few links change.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.overlays import Overlay

NO_TREE, BINOMIAL, STAR = range(3)


def tree_overlay(members: int, shape: int) -> Overlay:
    """The tree over ranks 0 … members−1, all alive: parent and children of every rank, in ascending order."""
    near: list[list[int]] = [[] for _ in range(members)]
    for rank in range(1, members):
        parent = 0 if shape == STAR else rank ^ (1 << (rank.bit_length() - 1))
        near[rank].append(parent)
        near[parent].append(rank)
    offsets = np.zeros(members + 1, np.int32)
    np.cumsum([len(ranks) for ranks in near], out=offsets[1:])
    return Overlay(offsets, np.array([rank for ranks in near for rank in sorted(ranks)], np.int32))


@linked
def live_parent(live, members, me, dimension, shape):
    """The parent of `me` in the tree of the live ranks, or −1 for its root."""
    if shape == STAR:
        centre = first_live(live, members, 0, dimension)
        return centre if centre != me else np.int64(-1)
    for down in range(dimension):
        place = dimension - 1 - down
        if me >> place & 1:
            parent = first_live(live, members, me ^ (np.int64(1) << place), place)
            if parent >= 0:
                return parent
    return np.int64(-1)


@linked
def first_live(live, members, partner, place):
    """The first live rank of partner, partner ⊕ 1, partner ⊕ 2, …: that half of the subcube, nearest first; or −1."""
    for step in range(np.int64(1) << place):
        rank = partner ^ step
        if rank < members and rank_sets.contains(live, rank):
            return rank
    return np.int64(-1)

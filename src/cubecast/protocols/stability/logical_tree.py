"""The logical tree of the structured protocols, repaired around members that are gone (guo §4.3).

`parents[rank]` is the tree as it was drawn (see `overlays.tree_parents`). A member knows its ancestors: it reports to
the nearest live one or, without any, to the lowest live rank, which is then the root.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.group import Group


@linked
def live_parent(parents, members, rank):
    """The nearest ancestor alive; without one the lowest rank alive; −1 for that one itself."""
    lowest = rank_sets.lowest(members)
    if rank == lowest:
        return np.int64(-1)
    ancestor = parents[rank]
    while ancestor >= 0:
        if rank_sets.contains(members, ancestor):
            return ancestor
        ancestor = parents[ancestor]
    return lowest


def first_tree(group: Group, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Before anything happens: the live parent of every rank, and which ranks are members.

    Ranks that join later are left out. Rank 0 is a member and the root of every tree, so that each walk up ends.
    """
    words = np.ascontiguousarray(group.members[0]).view(np.uint8)
    present = np.unpackbits(words, bitorder="little")[: len(parents)].astype(bool)
    above = parents.copy()
    while True:
        absent = (above >= 0) & ~present[np.maximum(above, 0)]
        if not absent.any():
            return above, present
        above[absent] = parents[above[absent]]


def children_of(group: Group, parents: np.ndarray) -> np.ndarray:
    """The set of children of each local member, before anything happens."""
    above, present = first_tree(group, parents)
    row_of = np.full(len(parents), -1, np.int64)
    row_of[group.rank] = np.arange(len(group.rank))
    child = np.flatnonzero((above >= 0) & present)
    child = child[row_of[above[child]] >= 0]
    children = np.zeros_like(group.members)
    np.bitwise_or.at(children, (row_of[above[child]], child // 64), np.uint64(1) << (child % 64).astype(np.uint64))
    return children

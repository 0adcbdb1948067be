"""Logical topologies over the members: hypercube (complete and incomplete), k-ary tree and ring.

An overlay is a graph over the ranks in compressed rows: the neighbours of rank i, in ascending order, are
`neighbours[offsets[i]:offsets[i + 1]]`.

**Incomplete hypercube** (cube §3.3). For n members, m = ⌈log2 n⌉: the edges of the m-cube between ranks below n, and
for every missing label z in n…2^m − 1 a replacement: of z's neighbours that exist, ascending, without the first when
their number is odd, the i-th of the first half is joined to the i-th of the second half. So a member never has fewer
than m − 1 neighbours nor more than m, the diameter is at most m, and no fewer members than the smallest degree
separate the others.

**Tree** (cube §2.3). Rank 0 is the root, ranks run breadth first, every inner node has `degree` children but perhaps
the last one. It needs no table: parents and children are arithmetic.

**Logical trees of guo** (§5.4, §5.5). `tree_parents` also makes the two-level tree of sub-groups, and trees over the
members in any order, for networks whose shape the logical tree does not follow.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import entry_point

BUSIEST_LINK_SHARE = 2 / 9
"""In a tree of three subtrees, the fraction of messages between random members that cross each of the root's links."""


class Overlay(NamedTuple):
    """Neighbours of every rank; see the module."""

    offsets: NDArray[np.int32]
    neighbours: NDArray[np.int32]


def hypercube_dimension(members: int) -> int:
    """m = ⌈log2 n⌉."""
    return (members - 1).bit_length()


@lru_cache(maxsize=64)
def hypercube(members: int) -> Overlay:
    """The hypercube over `members` ranks, complete when their number is a power of two; shared: do not write to it."""
    _check_members(members)
    dimension = hypercube_dimension(members)
    edges = np.concatenate([_cube_edges(members, dimension), _replacement_edges(members, dimension)])
    return _from_edges(members, edges)


def of_ranks(overlay: Overlay, ranks: NDArray[np.int64]) -> Overlay:
    """The neighbours of these ranks only, one row each: what the local members of a group need."""
    rows = [overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]] for rank in ranks]
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return Overlay(offsets, np.concatenate(rows) if rows else np.empty(0, dtype=np.int32))


def ring(members: int) -> Overlay:
    """Every rank next to the one before and the one after, the last next to the first."""
    _check_members(members)
    ranks = np.arange(members, dtype=np.int64)
    following = (ranks + 1) % members
    edges = np.stack([np.minimum(ranks, following), np.maximum(ranks, following)], axis=1)
    return _from_edges(members, edges[edges[:, 0] != edges[:, 1]])


@entry_point
def tree_parent(rank: int, degree: int) -> int:
    """The parent of a rank in the tree; −1 for the root."""
    if rank == 0:
        return -1
    return (rank - 1) // degree


@entry_point
def tree_children(rank: int, degree: int, members: int) -> tuple[int, int]:
    """The children of a rank as a range (first, one past the last); empty for a leaf."""
    first = min(rank * degree + 1, members)
    return first, min(first + degree, members)


def tree_parents(order: NDArray[np.int64], *, degree: int, group_size: int = 0) -> NDArray[np.int64]:
    """The parent of every rank in a logical tree; −1 at the root, which is `order[0]`.

    `order` lists the ranks breadth first. Without `group_size` every inner member has `degree` children. With it the
    tree has two levels (guo §5.5): sub-groups of that many consecutive members, each under its first; the first ones
    are under the root, which is the first of all.
    """
    places = np.arange(len(order), dtype=np.int64)
    if group_size:
        heads = places - places % group_size
        above = np.where(places == heads, 0, heads)
    else:
        above = (places - 1) // degree
    parents = np.empty(len(order), np.int64)
    parents[order] = order[above]
    parents[order[0]] = -1
    return parents


def paper_tree_degree(members: int) -> int:
    """⌈log2 n⌉ children per inner member (cube §4.1), at least two so that it is a tree."""
    return max(2, math.ceil(math.log2(members)))


def _cube_edges(members: int, dimension: int) -> NDArray[np.int64]:
    """Edges of the m-cube whose two ends exist, smaller end first."""
    ranks = np.arange(members, dtype=np.int64)
    other = ranks[:, None] | (1 << np.arange(dimension, dtype=np.int64))
    keep = (other != ranks[:, None]) & (other < members)
    return np.stack([np.broadcast_to(ranks[:, None], other.shape)[keep], other[keep]], axis=1)


def _replacement_edges(members: int, dimension: int) -> NDArray[np.int64]:
    """One edge between pairs of the orphans of every missing label (G_z of cube §3.3), smaller end first.

    All missing labels are treated at once: row z of `orphans` starts with its existing neighbours in ascending order,
    since those that do not exist have larger labels.
    """
    missing = np.arange(members, 1 << dimension, dtype=np.int64)
    orphans = np.sort(missing[:, None] ^ (1 << np.arange(dimension, dtype=np.int64)), axis=1)
    count = (orphans < members).sum(axis=1)
    skipped, half = count % 2, count // 2
    pairs = []
    for i in range(dimension // 2):
        row = np.flatnonzero(half > i)
        first = skipped[row] + i
        pairs.append(np.stack([orphans[row, first], orphans[row, first + half[row]]], axis=1))
    return np.concatenate(pairs) if pairs else np.empty((0, 2), dtype=np.int64)


def _from_edges(members: int, edges: NDArray[np.int64]) -> Overlay:
    """Both directions of every edge, each once, sorted by rank and neighbour."""
    both = np.concatenate([edges[:, 0] * members + edges[:, 1], edges[:, 1] * members + edges[:, 0]])
    both.sort()
    distinct = both[np.diff(both, prepend=-1) > 0]
    rank, neighbour = np.divmod(distinct, members)
    offsets = np.zeros(members + 1, dtype=np.int32)
    np.cumsum(np.bincount(rank, minlength=members), out=offsets[1:])
    return Overlay(offsets, neighbour.astype(np.int32))


def _check_members(members: int) -> None:
    if members < 1:
        raise LocalProtocolError(f"{members} members: an overlay needs at least 1")

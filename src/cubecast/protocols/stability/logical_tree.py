"""The logical tree of the structured protocols, repaired around members that have left (guo §4.3).

`parents[rank]` is the initial tree (see `overlays.tree_parents`). A member knows its ancestors: it reports to the
nearest live one or, if none is alive, to the lowest live rank, which is then the root.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.overlays import paper_tree_degree, tree_parents
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below, new_stream
from cubecast.protocol.rank_lists import RankLists, fill, new_rank_lists


@linked
def live_parent(parents, members, rank):
    """The nearest live ancestor; if there is none, the lowest live rank; −1 for that rank itself."""
    lowest = rank_sets.lowest(members)
    if rank == lowest:
        return np.int64(-1)
    ancestor = parents[rank]
    while ancestor >= 0:
        if rank_sets.contains(members, ancestor):
            return ancestor
        ancestor = parents[ancestor]
    return lowest


def first_tree(group: GroupState, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At the start: the live parent of every rank, and which ranks are members.

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


def children_of(group: GroupState, parents: np.ndarray) -> RankLists:
    """The set of children of each local member at the start."""
    above, present = first_tree(group, parents)
    row_of = np.full(len(parents), -1, np.int64)
    row_of[group.rank] = np.arange(len(group.rank))
    child = np.flatnonzero((above >= 0) & present)
    child = child[row_of[above[child]] >= 0]
    children = new_rank_lists(len(group.rank), len(parents))
    fill(children, row_of[above[child]], child)
    return children


@dataclass(frozen=True, kw_only=True)
class LogicalTreeParameters:
    """Parameters of a protocol over a logical tree."""

    tree_degree: int | None = parameter(
        None,
        "Children of an inner member of the logical tree.",
        at_least=1,
        otherwise="⌈log2 n⌉; on a wan-tree, the network's",
        search=(4, 16),
    )
    group_size: int | None = parameter(
        None, "Size of the sub-groups of a tree of two levels (guo §5.5).", at_least=2, otherwise="a balanced tree"
    )
    shuffled: bool | None = parameter(
        None, "The logical tree ignores where members are.", otherwise="only on a sparse wan-tree (guo §5.5)"
    )


Parameters = TypeVar("Parameters", bound=LogicalTreeParameters)


def resolve_tree(parameters: Parameters, context: Context) -> Parameters:
    """Choose the default shape from the network."""
    network = context.network
    shuffled = network.is_sparse if parameters.shuffled is None else parameters.shuffled
    degree = parameters.tree_degree or network.tree_children or paper_tree_degree(context.members)
    return replace(parameters, tree_degree=degree, shuffled=shuffled)


def logical_order(context: Context, *, shuffled: bool) -> np.ndarray:
    """The order of the ranks in logical trees and local groups; rank 0, which leads, comes first."""
    order = np.arange(context.members)
    if shuffled:
        stream = new_stream(context.seed, "logical order")
        for place in range(context.members - 1, 1, -1):  # Fisher and Yates
            other = 1 + below(stream, place)
            order[[place, other]] = order[[other, place]]
    return order


def logical_parents(order: np.ndarray, parameters: LogicalTreeParameters) -> np.ndarray:
    """The parent of every rank."""
    degree = parameters.tree_degree or paper_tree_degree(len(order))
    return tree_parents(order, degree=degree, group_size=parameters.group_size or 0)

"""No fewer members than the smallest degree separate the others in an incomplete hypercube (cube §3.3).

Small sizes are left to networkx. For larger ones, with k the smallest degree and v a member of that degree: the graph
is k-connected when k disjoint paths lead from v to every other member and between every two neighbours of v (Esfahanian
and Hakimi 1984). A maximum flow counts the paths. A member with k neighbours that have been found well connected to v
is so itself, because a smaller cut leaves one of them; that spares half of the flows.

Set CUBECAST_EXHAUSTIVE=1 to check every size up to 2048 (about twenty minutes) instead of a sample.
"""

from __future__ import annotations

import itertools
import os

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from cubecast.protocol.overlays import Overlay, hypercube

SAMPLE = [511, 512, 513, 514, 600, 768, 769, 1000, 1023, 1024, 1025, 1026]
SIZES = list(range(66, 2049)) if os.environ.get("CUBECAST_EXHAUSTIVE") else SAMPLE


def neighbours_of(overlay: Overlay, rank: int) -> list[int]:
    return [int(neighbour) for neighbour in overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]]]


def as_graph(overlay: Overlay) -> nx.Graph[int]:
    ranks = range(len(overlay.offsets) - 1)
    return nx.Graph([(rank, neighbour) for rank in ranks for neighbour in neighbours_of(overlay, rank)])


class DisjointPaths:
    """Counts the paths between two members that share no other member, by a flow through members split in two."""

    def __init__(self, overlay: Overlay) -> None:
        ranks = np.arange(len(overlay.offsets) - 1)
        source = np.repeat(ranks, np.diff(overlay.offsets))
        tails = np.concatenate([2 * ranks, 2 * source + 1])
        heads = np.concatenate([2 * ranks + 1, 2 * overlay.neighbours])
        unit = np.ones(len(tails), dtype=np.int32)
        self.split = csr_array((unit, (tails, heads)), shape=(2 * len(ranks), 2 * len(ranks)))

    def between(self, one: int, other: int) -> int:
        return int(maximum_flow(self.split, 2 * one + 1, 2 * other).flow_value)


def is_connected_as_its_smallest_degree(overlay: Overlay) -> bool:
    degrees = np.diff(overlay.offsets)
    smallest, centre = int(degrees.min()), int(degrees.argmin())
    paths = DisjointPaths(overlay)
    well_connected = {centre}
    # Members an even number of bits apart are seldom neighbours, so the others then follow from them.
    for rank in sorted(range(len(degrees)), key=lambda rank: (rank.bit_count() % 2, rank)):
        known = sum(neighbour in well_connected for neighbour in neighbours_of(overlay, rank))
        if rank != centre and known < smallest and paths.between(centre, rank) < smallest:
            return False
        well_connected.add(rank)
    pairs = itertools.combinations(neighbours_of(overlay, centre), 2)
    return all(paths.between(one, other) >= smallest for one, other in pairs)


def without_added_edges(members: int) -> Overlay:
    """The m-cube cut down to the first ranks, nothing added."""
    overlay = hypercube(members)
    ranks = np.repeat(np.arange(members), np.diff(overlay.offsets))
    keep = np.bitwise_count(ranks ^ overlay.neighbours) == 1
    counts = np.bincount(ranks[keep], minlength=members)
    return Overlay(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), overlay.neighbours[keep])


@pytest.mark.parametrize("n", range(3, 66))
def test_connectivity_is_the_smallest_degree(n: int) -> None:
    overlay = hypercube(n)
    assert nx.node_connectivity(as_graph(overlay)) == np.diff(overlay.offsets).min()


@pytest.mark.parametrize("n", [4, 17, 31, 32, 33, 64, 96, 127, 128, 129, 130, 192, 255, 256, 257])
def test_connectivity_is_the_smallest_degree_around_larger_powers(n: int) -> None:
    assert is_connected_as_its_smallest_degree(hypercube(n))


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_connectivity_is_the_smallest_degree_up_to_2048(n: int) -> None:
    assert is_connected_as_its_smallest_degree(hypercube(n))


@pytest.mark.parametrize("power", [8, 32, 128])
def test_without_the_added_edges_one_crash_cuts_a_member_off(power: int) -> None:
    assert nx.node_connectivity(as_graph(without_added_edges(power + 1))) == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_flow_argument_agrees_with_networkx_on_any_graph(seed: int) -> None:
    graph = nx.gnp_random_graph(14, 0.35, seed=seed)
    rows = [sorted(graph[rank]) for rank in range(14)]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    overlay = Overlay(offsets, np.array(list(itertools.chain(*rows)), dtype=np.int32))
    smallest = min(map(len, rows))
    assert is_connected_as_its_smallest_degree(overlay) == (nx.node_connectivity(graph) >= smallest)

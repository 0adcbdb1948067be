"""Hypercube, tree and ring (cube §2.3, §3.1, §3.3)."""

from __future__ import annotations

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.protocol.overlays import (
    Overlay,
    hypercube,
    hypercube_dimension,
    ring,
    tree_children,
    tree_parent,
)

AROUND_POWERS = [n for power in (128, 256, 512, 1024, 2048) for n in range(power - 3, power + 4) if n <= 2048]
QUICK_SIZES = sorted({*range(2, 260), *range(260, 2048, 61), *AROUND_POWERS})


def edges_of(overlay: Overlay) -> set[tuple[int, int]]:
    ranks = np.repeat(np.arange(len(overlay.offsets) - 1), np.diff(overlay.offsets))
    return set(zip(ranks.tolist(), overlay.neighbours.tolist(), strict=True))


def plain_hypercube(n: int) -> set[tuple[int, int]]:
    """The construction of cube §3.3, label by label."""
    m = 0
    while 2**m < n:
        m += 1
    edges = {(p, p ^ (1 << bit)) for p in range(n) for bit in range(m) if p ^ (1 << bit) < n}
    for z in range(n, 2**m):
        orphans = sorted(z ^ (1 << bit) for bit in range(m) if z ^ (1 << bit) < n)
        if len(orphans) % 2:
            orphans = orphans[1:]
        half = len(orphans) // 2
        for p, q in zip(orphans[:half], orphans[half:], strict=True):
            edges |= {(p, q), (q, p)}
    return edges


def reach_of_everybody(overlay: Overlay, steps: int) -> np.ndarray:
    """How many ranks each rank reaches in so many steps, by bitmaps that grow a step at a time."""
    n = len(overlay.offsets) - 1
    ball = np.packbits(np.eye(n, -(-n // 64) * 64, dtype=bool), axis=1).view(np.uint64)
    for _ in range(steps):
        ball |= np.bitwise_or.reduceat(ball[overlay.neighbours], overlay.offsets[:-1], axis=0)
    return np.asarray(np.bitwise_count(ball).sum(axis=1))


def assert_cube_properties(n: int) -> None:
    """Connected, diameter at most m, every degree m − 1 or m (cube §3.3)."""
    overlay = hypercube(n)
    dimension = hypercube_dimension(n)
    degrees = np.diff(overlay.offsets)
    assert set(degrees.tolist()) <= {dimension - 1, dimension}, n
    assert reach_of_everybody(overlay, dimension).min() == n, n


def test_seven_members_gain_the_edge_between_5_and_6() -> None:
    cube_of_8 = edges_of(hypercube(8))
    without_7 = {(p, q) for p, q in cube_of_8 if p != 7 and q != 7}
    assert edges_of(hypercube(7)) == without_7 | {(5, 6), (6, 5)}


@pytest.mark.parametrize("power", range(1, 11))
def test_power_of_two_is_the_complete_cube(power: int) -> None:
    overlay = hypercube(2**power)
    assert np.all(np.diff(overlay.offsets) == power)
    assert all((p ^ q).bit_count() == 1 for p, q in edges_of(overlay))


@pytest.mark.parametrize("n", [*range(1, 140), 255, 257, 300, 511, 513, 777, 1025])
def test_hypercube_is_the_paper_s_construction_label_by_label(n: int) -> None:
    assert edges_of(hypercube(n)) == plain_hypercube(n)


@pytest.mark.parametrize("n", [2, 7, 33, 1000])
def test_neighbours_ascend_and_are_mutual(n: int) -> None:
    overlay = hypercube(n)
    assert overlay.offsets.dtype == overlay.neighbours.dtype == np.int32
    for rank in range(n):
        row = overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]]
        assert np.all(np.diff(row) > 0)
    edges = edges_of(overlay)
    assert edges == {(q, p) for p, q in edges}


def test_incomplete_cube_keeps_degree_and_diameter() -> None:
    for n in QUICK_SIZES:
        assert_cube_properties(n)


@pytest.mark.slow
def test_incomplete_cube_keeps_degree_and_diameter_for_every_size_to_2048() -> None:
    for n in range(2, 2049):
        assert_cube_properties(n)


def test_large_cube_has_its_degrees() -> None:
    overlay = hypercube(100_000)
    assert set(np.diff(overlay.offsets).tolist()) == {16, 17}


def test_ring_joins_each_to_the_next() -> None:
    assert edges_of(ring(5)) == {(i, (i + step) % 5) for i in range(5) for step in (1, -1)}
    assert edges_of(ring(2)) == {(0, 1), (1, 0)}
    assert edges_of(ring(1)) == set()


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("n", [1, 2, 3, 14, 50, 101])
def test_tree_children_and_parents_agree(n: int, degree: int) -> None:
    parents = {child: rank for rank in range(n) for child in range(*tree_children(rank, degree, n))}
    assert parents == {rank: tree_parent(rank, degree) for rank in range(1, n)}
    assert tree_parent(0, degree) == -1


def test_tree_fills_breadth_first() -> None:
    assert tree_children(0, 3, 8) == (1, 4)
    assert tree_children(2, 3, 8) == (7, 8)
    first, past = tree_children(5, 3, 8)
    assert first == past


def test_bad_overlays_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="0 members"):
        hypercube(0)
    with pytest.raises(LocalProtocolError, match="0 members"):
        ring(0)

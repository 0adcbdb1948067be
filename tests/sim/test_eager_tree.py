"""The eager tree: a tree over any set of live ranks, and a causal broadcast that survives crashes along it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cubecast.jit.decorators import entry_point
from cubecast.protocol.overlays import hypercube_dimension
from cubecast.protocols.causal.eager_tree import (
    BINOMIAL,
    STAR,
    live_parent,
    tree_overlay,
)
from tests.sim.causal_runs import broken_promises, crashing_scenario

SHAPES = {"binomial": BINOMIAL, "star": STAR}
by_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@entry_point
def parent_of(live, members, me, dimension, shape):  # type: ignore[no-untyped-def]
    """Callable from Python."""
    return live_parent(live, members, me, dimension, shape)


def parents(live: list[int], members: int, shape: int) -> dict[int, int]:
    """The parent of every live rank."""
    words = np.zeros((members + 63) // 64, np.uint64)
    for rank in live:
        words[rank >> 6] |= np.uint64(1) << np.uint64(rank & 63)
    return {rank: int(parent_of(words, members, rank, hypercube_dimension(members), shape)) for rank in live}


def root_of(rank: int, above: dict[int, int]) -> int:
    """Climb; more steps than ranks would be a circle."""
    for _ in range(len(above) + 1):
        if above[rank] < 0:
            return rank
        rank = above[rank]
    raise AssertionError("a circle")


@by_shape
@pytest.mark.parametrize("seed", range(200))
def test_any_set_of_live_ranks_has_one_tree(seed: int, shape: int) -> None:
    draw = random.Random(seed)
    members = draw.randint(1, 130)
    live = sorted(draw.sample(range(members), draw.randint(1, members)))
    above = parents(live, members, shape)
    assert set(above.values()) <= {*live, -1}
    assert len({root_of(rank, above) for rank in live}) == 1


@by_shape
@pytest.mark.parametrize("members", [2, 3, 8, 13, 64, 100])
def test_with_all_alive_it_is_the_overlay_that_members_start_with(members: int, shape: int) -> None:
    above = parents(list(range(members)), members, shape)
    overlay = tree_overlay(members, shape)
    for rank in range(members):
        near = {int(other) for other in overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]]}
        assert near == {above[rank]} - {-1} | {child for child in range(members) if above[child] == rank}
        assert shape == STAR or len(near) <= hypercube_dimension(members)


@by_shape
def test_a_death_moves_only_the_children_of_the_dead(shape: int) -> None:
    draw = random.Random(5)
    live = list(range(64))
    while len(live) > 2:
        before = parents(live, 64, shape)
        dead = draw.choice(live)
        live.remove(dead)
        after = parents(live, 64, shape)
        moved = {rank for rank in live if before[rank] != after[rank]}
        assert all(before[rank] == dead for rank in moved)


@pytest.mark.parametrize("seed", range(20))
def test_in_a_star_one_live_member_is_next_to_all_others(seed: int) -> None:
    draw = random.Random(seed)
    live = draw.sample(range(70), draw.randint(2, 70))
    above = parents(live, 70, STAR)
    assert sorted(above.values()) == [-1] + [min(live)] * (len(live) - 1)


@pytest.mark.parametrize("protocol", ["tree", "star"])
@pytest.mark.parametrize("seed", range(30))
def test_simulated_crashes_break_no_promise(seed: int, protocol: str) -> None:
    broken = broken_promises(*crashing_scenario(10_000 + seed, protocol))
    assert not broken, "\n".join(broken[:5])

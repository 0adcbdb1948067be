"""Memberships that members share: each row behaves as if it had a set of its own."""

from __future__ import annotations

import numpy as np
import pytest

from cubecast.protocol import rank_sets, shared_sets
from cubecast.protocol.shared_sets import SharedSets, new_shared_sets

MEMBERS = 70


def _contents(sets: SharedSets, row: int) -> set[int]:
    return {rank for rank in range(MEMBERS) if rank_sets.contains(sets[row], rank)}


@pytest.mark.parametrize("seed", range(20))
def test_rows_hold_what_sets_of_their_own_would(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sets, wanted = new_shared_sets(9, MEMBERS), [set(range(MEMBERS)) for _ in range(9)]
    for _ in range(300):
        row, rank = int(draw.integers(9)), int(draw.integers(MEMBERS - 4, MEMBERS))
        if draw.random() < 0.6:
            assert shared_sets.discard(sets, row, rank)
            wanted[row].discard(rank)
        else:
            assert shared_sets.add(sets, row, rank)
            wanted[row].add(rank)
        assert [_contents(sets, one) for one in range(9)] == wanted
        assert sets.holders.sum() == 9
        assert all(sets.holders[sets.which[one]] > 0 for one in range(9))


def test_rows_that_saw_the_same_changes_share_one_set() -> None:
    sets = new_shared_sets(1000, MEMBERS)
    for row in range(999):
        shared_sets.discard(sets, row, 5)
    for row in range(500):
        shared_sets.discard(sets, row, 6)
    assert sets.used[0] == 3
    assert len(set(sets.which[:500].tolist())) == len(set(sets.which[500:999].tolist())) == 1


def test_one_set_is_one_object_at_a_million_members() -> None:
    sets = new_shared_sets(1_000_000, 1_000_000)
    first, last = 0, 999_999
    assert np.shares_memory(sets[first], sets[last])
    assert sets.sets.nbytes <= shared_sets.BYTES_MAX


def test_more_different_sets_than_there_is_room_for_are_reported() -> None:
    sets = new_shared_sets(4, MEMBERS)._replace(sets=rank_sets.full(2, MEMBERS))
    assert shared_sets.discard(sets, 0, 1)
    assert not shared_sets.discard(sets, 1, 2)
    assert _contents(sets, 1) == set(range(MEMBERS))


def test_as_an_array_every_row_has_its_own() -> None:
    sets = new_shared_sets(3, MEMBERS)
    shared_sets.discard(sets, 1, 0)
    assert np.bitwise_count(np.asarray(sets)).sum(axis=1).tolist() == [MEMBERS, MEMBERS - 1, MEMBERS]

"""Where a rank stands in a set, the rank at a place, and a number that stands for the set."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cubecast.protocol import rank_sets

MEMBERS = 130
RANKS = st.sets(st.integers(0, MEMBERS - 1))


def words_of(ranks: set[int]) -> np.ndarray:
    """The set as words."""
    words = np.zeros(rank_sets.words_for(MEMBERS), np.uint64)
    for rank in ranks:
        rank_sets.add(words, rank)
    return words


@given(RANKS)
def test_a_rank_stands_behind_the_lower_ones(ranks: set[int]) -> None:
    words = words_of(ranks)
    for rank in range(MEMBERS):
        assert rank_sets.place(words, rank) == len([other for other in ranks if other < rank])


@given(RANKS)
def test_at_every_place_stands_the_next_higher_rank(ranks: set[int]) -> None:
    words = words_of(ranks)
    assert [rank_sets.at(words, place) for place in range(len(ranks))] == sorted(ranks)
    assert rank_sets.at(words, len(ranks)) == -1
    assert rank_sets.at(words, -1) == -1


@given(RANKS, st.integers(0, MEMBERS - 1))
def test_a_fingerprint_changes_with_the_set_and_fits_a_field_of_a_message(ranks: set[int], other: int) -> None:
    number = rank_sets.fingerprint(words_of(ranks))
    assert 0 <= number < 1 << 31
    assert number == rank_sets.fingerprint(words_of(set(ranks)))
    assert number != rank_sets.fingerprint(words_of(ranks ^ {other}))

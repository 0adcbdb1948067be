"""Small sets in a shared pool: they hold what Python's sets would, and the pool is reused."""

from __future__ import annotations

import numpy as np
import pytest

from cubecast.protocol import rank_lists
from cubecast.protocol.mail import BUFFER_FULL, OVERFLOW, new_mail
from cubecast.protocol.rank_lists import RankLists, new_rank_lists

ROWS, MEMBERS = 5, 12


def _contents(lists: RankLists, row: int) -> list[int]:
    found, entry = [], int(lists.first[row])
    while entry:
        found.append(int(lists.rank[entry]))
        entry = int(lists.after[entry])
    return found


@pytest.mark.parametrize("seed", range(10))
def test_lists_hold_what_sets_would_in_ascending_order(seed: int) -> None:
    draw = np.random.default_rng(seed)
    mail = new_mail(slots=2, width=1, words=1, room=2)
    one, other = new_rank_lists(ROWS, MEMBERS), new_rank_lists(ROWS, MEMBERS)
    wanted: list[list[set[int]]] = [[set() for _ in range(ROWS)] for _ in range(2)]
    for _ in range(500):
        which, row, rank = (int(draw.integers(end)) for end in (2, ROWS, MEMBERS))
        lists = (one, other)[which]
        choice = draw.random()
        if choice < 0.1:
            rank_lists.clear(lists, row)
            wanted[which][row].clear()
        elif choice < 0.4:
            rank_lists.discard(lists, row, rank)
            wanted[which][row].discard(rank)
        else:
            rank_lists.add(lists, row, rank, mail)
            wanted[which][row].add(rank)
        assert _contents(lists, row) == sorted(wanted[which][row])
        assert rank_lists.contains(lists, row, rank) == (rank in wanted[which][row])
        assert rank_lists.covers(one, other, row) == (wanted[0][row] >= wanted[1][row])
    assert mail.counts[OVERFLOW] == 0


def test_sets_are_filled_at_once() -> None:
    lists = new_rank_lists(4, 100)
    rank_lists.fill(lists, np.array([2, 0, 2, 2]), np.array([7, 9, 3, 5]))
    assert [_contents(lists, row) for row in range(4)] == [[9], [], [3, 5, 7], []]
    rank_lists.fill(new_rank_lists(1, 3), np.empty(0, np.int64), np.empty(0, np.int64))


def test_a_full_pool_is_reported() -> None:
    mail = new_mail(slots=2, width=1, words=1, room=2)
    lists = new_rank_lists(1, 3)._replace(rank=np.zeros(2, np.int64), after=np.zeros(2, np.int64))
    rank_lists.add(lists, 0, 1, mail)
    assert mail.counts[OVERFLOW] == 0
    rank_lists.add(lists, 0, 2, mail)
    assert mail.counts[OVERFLOW] == BUFFER_FULL
    assert _contents(lists, 0) == [1]


def test_a_large_group_takes_memory_in_proportion() -> None:
    small, large = (sum(array.nbytes for array in new_rank_lists(n, n)) for n in (10_000, 100_000))
    assert large < 11 * small

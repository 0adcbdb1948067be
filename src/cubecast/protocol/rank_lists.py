"""Small sets of ranks, one per local member, in memory that grows with their contents: children, answers.

A bitmap per member (`protocol.rank_sets`) takes n² bits for a whole group; a tree has n − 1 edges. Here each set is a
sorted list in a pool that all rows share.

| field | shape | meaning                                                                       |
|-------|-------|-------------------------------------------------------------------------------|
| first | rows  | the first entry of the row's set, 0 for none                                  |
| rank  | room  | the rank of each entry; entry 0 is not used                                   |
| after | room  | the next entry of the same set, in ascending order; of a free one, the next free |
| free  | 2     | the first returned entry, 0 for none; how many entries were ever used         |

A full pool is reported as a full buffer of the protocol, which ends the run.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import entry_point
from cubecast.protocol.mail import BUFFER_FULL, OVERFLOW

_PER_MEMBER, _LEAST = 16, 4096


class RankLists(NamedTuple):
    """Sets of ranks by row; see the module."""

    first: np.ndarray
    rank: np.ndarray
    after: np.ndarray
    free: np.ndarray


def new_rank_lists(rows: int, members: int) -> RankLists:
    """Empty sets, with room for all ranks in every one of a small group, for 16 entries per member in a large one."""
    room = 1 + min(rows * members, _PER_MEMBER * members + _LEAST)
    return RankLists(
        first=np.zeros(rows, np.int64),
        rank=np.empty(room, np.int64),
        after=np.empty(room, np.int64),
        free=np.array([0, 1], np.int64),
    )


def fill(lists: RankLists, rows: np.ndarray, ranks: np.ndarray) -> None:
    """Put `ranks[k]` into the empty set of `rows[k]`, for all k."""
    order = np.lexsort((ranks, rows))
    rows, ranks = rows[order], ranks[order]
    entries = np.arange(1, len(ranks) + 1)
    lists.rank[entries] = ranks
    lists.after[entries] = np.where(np.append(rows[1:] == rows[:-1], False)[: len(rows)], entries + 1, 0)
    begins = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
    lists.first[rows[begins]] = entries[begins]
    lists.free[1] = len(ranks) + 1


@entry_point
def clear(lists, row):
    """Make the set of a row empty."""
    entry = lists.first[row]
    while entry != 0:
        following = lists.after[entry]
        lists.after[entry] = lists.free[0]
        lists.free[0] = entry
        entry = following
    lists.first[row] = 0


@entry_point
def contains(lists, row, rank):
    """Is the rank in the set of a row?"""
    entry = lists.first[row]
    while entry != 0 and lists.rank[entry] < rank:
        entry = lists.after[entry]
    return entry != 0 and lists.rank[entry] == rank


@entry_point
def add(lists, row, rank, mail):
    """Put a rank into the set of a row."""
    before = np.int64(0)
    entry = lists.first[row]
    while entry != 0 and lists.rank[entry] < rank:
        before = entry
        entry = lists.after[entry]
    if entry != 0 and lists.rank[entry] == rank:
        return
    new = _take(lists)
    if new == 0:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return
    lists.rank[new] = rank
    lists.after[new] = entry
    if before == 0:
        lists.first[row] = new
    else:
        lists.after[before] = new


@entry_point
def discard(lists, row, rank):
    """Take a rank out of the set of a row, if it is there."""
    before = np.int64(0)
    entry = lists.first[row]
    while entry != 0 and lists.rank[entry] < rank:
        before = entry
        entry = lists.after[entry]
    if entry == 0 or lists.rank[entry] != rank:
        return
    if before == 0:
        lists.first[row] = lists.after[entry]
    else:
        lists.after[before] = lists.after[entry]
    lists.after[entry] = lists.free[0]
    lists.free[0] = entry


@entry_point
def _take(lists):
    """An unused entry, or 0."""
    entry = lists.free[0]
    if entry != 0:
        lists.free[0] = lists.after[entry]
        return entry
    if lists.free[1] == lists.rank.shape[0]:
        return np.int64(0)
    lists.free[1] += 1
    return lists.free[1] - 1


@entry_point
def covers(lists, wanted, row):
    """Does the set of a row hold every rank of that row's set in `wanted`?"""
    entry = lists.first[row]
    want = wanted.first[row]
    while want != 0:
        while entry != 0 and lists.rank[entry] < wanted.rank[want]:
            entry = lists.after[entry]
        if entry == 0 or lists.rank[entry] != wanted.rank[want]:
            return False
        want = wanted.after[want]
    return True

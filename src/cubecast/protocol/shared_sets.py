"""One set of ranks for every local member, if most members have the same set: the memberships of a group.

Members that see the same membership share one set; a member whose membership changes moves to another set, which it
shares with all members that saw the same changes.

| field   | shape        | meaning                                                             |
|---------|--------------|---------------------------------------------------------------------|
| sets    | room × words | sets of ranks (`protocol.rank_sets`)                                |
| which   | rows         | the set of each row                                                 |
| holders | room         | how many rows have it; 0: free                                      |
| marks   | room         | a hash that equal sets share and different sets hardly ever do      |
| used    | 1            | sets in use are among the first `used` ones                         |

`sets[row]` is the set of a row, to be read; `add` and `discard` change it. Up to `BYTES_MAX` there is room for a
separate set for every row. A larger group has room only while few sets differ; running out is reported.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import entry_point, linked
from cubecast.jit.indexed import indexed_through
from cubecast.protocol import rank_sets
from cubecast.protocol.random import mix

BYTES_MAX = 1 << 30
"""Memory for sets: separate rows for up to 92,000 members. It is used only when a set is first used."""


@indexed_through("which", "sets")
class SharedSets(NamedTuple):
    """Sets of ranks by row; see the module."""

    sets: np.ndarray
    which: np.ndarray
    holders: np.ndarray
    marks: np.ndarray
    used: np.ndarray

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint64]:
        """rows × words: the set of every row."""
        return np.asarray(self.sets[self.which], dtype)


def new_shared_sets(rows: int, members: int) -> SharedSets:
    """All rows share one set, which holds all ranks 0 … members−1."""
    words = rank_sets.words_for(members)
    room = max(1, min(rows, BYTES_MAX // (8 * words)))
    sets = np.zeros((room, words), np.uint64)
    sets[0] = rank_sets.full(1, members)[0]
    holders = np.zeros(room, np.int64)
    holders[0] = rows
    return SharedSets(
        sets=sets,
        which=np.zeros(rows, np.int64),
        holders=holders,
        marks=np.zeros(room, np.uint64),
        used=np.ones(1, np.int64),
    )


@entry_point
def discard(sets, row, rank):
    """Take a rank out of the set of a row; False when there is no room for one more set."""
    if not rank_sets.contains(sets[row], rank):
        return True
    return _change(sets, row, rank)


@entry_point
def add(sets, row, rank):
    """Put a rank into the set of a row; False when there is no room for one more set."""
    if rank_sets.contains(sets[row], rank):
        return True
    return _change(sets, row, rank)


@linked
def share(sets, row, other):
    """Give a row the set of another one."""
    sets.holders[sets.which[row]] -= 1
    sets.which[row] = sets.which[other]
    sets.holders[sets.which[row]] += 1


@linked
def _change(sets, row, rank):
    """Flip the bit of a rank: in the set itself, if only this row has it, or by moving to another set."""
    old = sets.which[row]
    mark = sets.marks[old] ^ mix(np.uint64(rank + 1))
    if sets.holders[old] == 1:
        sets.sets[old, rank >> 6] ^= rank_sets.bit(rank)
        sets.marks[old] = mark
        return True
    new = _find(sets, old, rank, mark)
    if new < 0:
        new = _free_set(sets)
        if new < 0:
            return False
        rank_sets.copy(sets.sets[new], sets.sets[old])
        sets.sets[new, rank >> 6] ^= rank_sets.bit(rank)
        sets.marks[new] = mark
    sets.holders[old] -= 1
    sets.holders[new] += 1
    sets.which[row] = new
    return True


@linked
def _find(sets, old, rank, mark):
    """A set in use that differs from `old` by this rank alone, or −1."""
    for place in range(sets.used[0]):
        if sets.marks[place] == mark and sets.holders[place] > 0 and _differ_by(sets, old, place, rank):
            return np.int64(place)
    return np.int64(-1)


@linked
def _differ_by(sets, one, other, rank):
    for k in range(sets.sets.shape[1]):
        turned = rank_sets.bit(rank) if k == rank >> 6 else np.uint64(0)
        if sets.sets[one, k] ^ sets.sets[other, k] != turned:
            return False
    return True


@linked
def _free_set(sets):
    for place in range(sets.used[0]):
        if sets.holders[place] == 0:
            return np.int64(place)
    if sets.used[0] == sets.sets.shape[0]:
        return np.int64(-1)
    sets.used[0] += 1
    return np.int64(sets.used[0] - 1)

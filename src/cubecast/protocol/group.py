"""What a member knows of its group, shared by all layers of its stack.

| field    | shape         | meaning                                                                                 |
|----------|---------------|-----------------------------------------------------------------------------------------|
| rank     | rows          | the member's rank                                                                       |
| members  | rows × words  | the current membership as this member sees it: a set of ranks, shared by members that   |
|          |               | see the same (`protocol.shared_sets`); only a driver changes it                         |
| received | rows × m      | R: the member holds every message of sender j up to `received[row, j]`                  |
| stable   | rows × m      | S: every current member holds every message of sender j up to `stable[row, j]`          |

`goal` says what the arrays mean: the minimum of what is received (STABILITY), or the maximum of what is known to exist
(ERRORS, guo ch. 7: the same protocols then inform every member of what it missed; R is the highest number seen, S the
highest that anyone has seen).

One row per *local* member: the simulator holds all members of a group (row = rank), a live process holds one.
`received` and `stable` never decrease; `members` only loses bits between two views.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.shared_sets import SharedSets, new_shared_sets

STABILITY, ERRORS = range(2)
NOTHING = (1 << 31) - 1
"""In R: this member contributes nothing to this number; the minimum is that of the other members."""


class GroupState(NamedTuple):
    """The group as its local members see it."""

    rank: np.ndarray
    members: SharedSets
    received: np.ndarray
    stable: np.ndarray
    goal: int = STABILITY


def new_group(*, members: int, senders: int, ranks: np.ndarray, goal: int = STABILITY) -> GroupState:
    """A group of `members`, seen by the local members `ranks`; nothing received, nothing stable."""
    rows = len(ranks)
    return GroupState(
        rank=np.asarray(ranks, np.int64),
        members=new_shared_sets(rows, members),
        received=np.zeros((rows, senders), np.int32),
        stable=np.zeros((rows, senders), np.int32),
        goal=goal,
    )


@linked
def is_lowest(group, row):
    """Is this member the lowest rank it believes alive? That rank coordinates, leads, or is the root."""
    return rank_sets.lowest(group.members[row]) == group.rank[row]


@linked
def learn_stable(group, row, numbers):
    """S = max(S, numbers): stability only grows."""
    raise_numbers(group.stable[row], numbers)


@linked
def copy_numbers(target, numbers):
    """Copy as many numbers as `target` holds. (A loop: slice assignment would need memory management.)"""
    for j in range(target.shape[0]):
        target[j] = numbers[j]


@linked
def fold(group, minimum, numbers):
    """M = min(M, numbers), or max for the goal ERRORS."""
    if group.goal != STABILITY:
        raise_numbers(minimum, numbers)
        return
    for j in range(minimum.shape[0]):
        if numbers[j] < minimum[j]:
            minimum[j] = numbers[j]


@linked
def raise_numbers(target, numbers):
    """target = max(target, numbers)."""
    for j in range(target.shape[0]):
        if numbers[j] > target[j]:
            target[j] = numbers[j]

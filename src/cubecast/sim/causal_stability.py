"""Causal stability in a simulated group: the stability protocol folds a second vector beside R.

A message m is *causally stable* at a member when every message that is still to be delivered there follows m. As in
live members (`member.levels` has the proof) the protocol folds a longer vector, as if there were twice as many senders:

| numbers | contribution of a member                                                                               |
|---------|--------------------------------------------------------------------------------------------------------|
| 0 … m−1 | R: the messages of each sender that were delivered here                                                |
| m …     | for its own rank: 1 + the messages that its application has multicast, including waiting ones;         |
|         | NOTHING for all other ranks                                                                            |

The minimum of the second half is a vector V: how many messages each sender had multicast when it contributed. A result
belongs to this view as soon as V is not 0. When a member has delivered everything up to V, all messages under the
minimum of the first half are causally stable there; so are all messages of earlier views, which every member has
delivered before it contributes to this view.

| field   | shape     | meaning                                                                                       |
|---------|-----------|-----------------------------------------------------------------------------------------------|
| group   | n × 2m    | R and S as the stability protocol sees them; all layers share the membership                  |
| minimum | n × K × m | results whose V is not delivered yet: the first half, the oldest at place `first`             |
| sent    | n × K × m | their V                                                                                       |
| first   | n         | place of the oldest result; 0 rows if the scenario does not ask for causal stability          |
| waiting | n         | how many results wait; a further one replaces the newest                                      |
| reached | n         | has a result of this view been reached?                                                       |

Without views a sender may be excluded while others still deliver its messages. No member contributes for it any more, V
is NOTHING there, and nothing more becomes causally stable: only the cut of a view change fixes the number of messages.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.group import NOTHING, GroupState, copy_numbers

PENDING_MAX = 8


class Fold(NamedTuple):
    """The state of causal stability, one row per member."""

    group: GroupState
    minimum: np.ndarray
    sent: np.ndarray
    first: np.ndarray
    waiting: np.ndarray
    reached: np.ndarray


def new_fold(group: GroupState, *, is_wanted: bool) -> Fold:
    """Nothing contributed yet; without causal stability the protocol folds R alone."""
    members, senders = group.received.shape
    rows = members if is_wanted else 0
    return Fold(
        group=_with_multicasts(group) if is_wanted else group,
        minimum=np.zeros((rows, PENDING_MAX, senders), np.int32),
        sent=np.zeros((rows, PENDING_MAX, senders), np.int32),
        first=np.zeros(rows, np.int64),
        waiting=np.zeros(rows, np.int64),
        reached=np.zeros(rows, np.int64),
    )


def _with_multicasts(group: GroupState) -> GroupState:
    members, senders = group.received.shape
    received = np.full((members, 2 * senders), NOTHING, np.int32)
    received[:, :senders] = group.received
    return group._replace(received=received, stable=np.zeros_like(received))


@linked
def is_wanted(fold):
    """Is causal stability asked for?"""
    return fold.first.shape[0] > 0


@linked
def contribute(fold, group, row, multicasts):
    """Before a call of the stability protocol: contribute what this member has delivered and multicast."""
    senders = group.received.shape[1]
    for j in range(senders):
        fold.group.received[row, j] = group.received[row, j]
    if group.rank[row] < senders:
        fold.group.received[row, senders + group.rank[row]] = 1 + multicasts


@linked
def share_result(fold, group, row):
    """After the call: copy what it found stable to the group state of all layers."""
    for j in range(group.stable.shape[1]):
        if fold.group.stable[row, j] > group.stable[row, j]:
            group.stable[row, j] = fold.group.stable[row, j]


@linked
def keep_result(fold, causal, row):
    """Keep the result of a finished round until V is delivered, if it makes more than `causal` causally stable."""
    result = fold.group.stable[row]
    senders = causal.shape[1]
    if result[senders] == 0:
        return
    is_more = fold.reached[row] == 0
    for j in range(senders):
        is_more |= result[j] > causal[row, j]
    waiting = fold.waiting[row]
    newest = (fold.first[row] + waiting - 1) % PENDING_MAX
    if not is_more or (waiting > 0 and _is_same(fold.minimum[row, newest], result)):
        return  # the same minimum with an earlier V gives the same result
    if waiting < PENDING_MAX:
        fold.waiting[row] = waiting + 1
        newest = (newest + 1) % PENDING_MAX
    copy_numbers(fold.minimum[row, newest], result)
    copy_numbers(fold.sent[row, newest], result[senders:])


@linked
def _is_same(minimum, result):
    for j in range(minimum.shape[0]):
        if minimum[j] != result[j]:
            return False
    return True


@linked
def next_reached(fold, group, row):
    """Take the oldest result if this member has delivered its V, and return its place; −1 if there is none."""
    if fold.waiting[row] == 0:
        return np.int64(-1)
    place = fold.first[row]
    for j in range(group.received.shape[1]):
        if np.int64(group.received[row, j]) + 1 < fold.sent[row, place, j]:
            return np.int64(-1)
    fold.first[row] = (place + 1) % PENDING_MAX
    fold.waiting[row] -= 1
    fold.reached[row] = 1
    return place

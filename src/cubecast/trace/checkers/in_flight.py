"""One vector of senders for each message in flight; a vector for every message would take messages × senders numbers.

A vector is kept from its first `write` to the last row that can read it. The slot of a message whose last row has
passed is reused, so the memory is that of the largest number of messages in flight at one time: sent, and still to be
delivered by some member.

| state | shape | meaning |
|---|---|---|
| `last_use` | messages | the last row that names the message |
| `slot` | messages | where its vector is, or −1 |
| `vectors` | slots × senders | |
| `free` | slots | the slots that are free: the first `free_count[0]` |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.schema import DELIVER, RESTORE, SENT


class InFlight(NamedTuple):
    """Arrays, so that compiled scans can take them."""

    last_use: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int32]
    vectors: npt.NDArray[np.int32]
    free: npt.NDArray[np.int32]
    free_count: npt.NDArray[np.int64]


def none_in_flight(first: npt.NDArray[np.int64]) -> InFlight:
    """Return the state before the first row, for the messages numbered by `first`."""
    messages = int(first[-1])
    return InFlight(
        last_use=np.full(messages, -1, np.int64),
        slot=np.full(messages, -1, np.int32),
        vectors=np.zeros((0, len(first) - 1), np.int32),
        free=np.zeros(0, np.int32),
        free_count=np.zeros(1, np.int64),
    )


@allocating
def find_last_uses(events: Any, start: int, first: Any, last_use: Any) -> None:
    """Note the last row of each message that this part names."""
    for row in range(len(events)):
        kind = events["event"][row]
        if (kind == DELIVER or kind == SENT or kind == RESTORE) and events["sequence"][row] >= 1:
            last_use[first[events["sender"][row]] + events["sequence"][row] - 1] = start + row


def with_room(state: InFlight, messages: int) -> InFlight:
    """Return a state with free slots for this many more messages."""
    have = int(state.free_count[0])
    if have >= messages:
        return state
    slots, senders = state.vectors.shape
    more = max(messages - have, slots)
    vectors = np.zeros((slots + more, senders), np.int32)
    vectors[:slots] = state.vectors
    free = np.zeros(slots + more, np.int32)
    free[:have] = state.free[:have]
    free[have : have + more] = np.arange(slots, slots + more)
    return state._replace(vectors=vectors, free=free, free_count=np.array([have + more]))


@allocating
def write(state: Any, number: int, row: int, vector: Any) -> None:
    """Keep a copy of the vector of a message, if this row or a later one can read it."""
    if state.last_use[number] < row:
        return
    if state.slot[number] < 0:
        state.free_count[0] -= 1
        state.slot[number] = state.free[state.free_count[0]]
    state.vectors[state.slot[number]] = vector


@allocating
def release(state: Any, number: int, row: int) -> None:
    """Free the slot of a message after its last row."""
    if state.last_use[number] == row and state.slot[number] >= 0:
        state.free[state.free_count[0]] = state.slot[number]
        state.free_count[0] += 1
        state.slot[number] = -1

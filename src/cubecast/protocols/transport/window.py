"""The receive window that all reliable multicast families share: which messages of each sender a member holds.

| field      | shape            | meaning                                                                    |
|------------|------------------|----------------------------------------------------------------------------|
| highest    | rows × m         | the highest sequence number of each sender known to exist                  |
| ahead      | rows × m × words | which sequence numbers beyond R are held (a ring of `64 · words` bits)     |
| swept      | rows × m         | the number up to which `ahead` was cleared: R, as this window knows it     |
| duplicates | rows             | data messages received that were held already                              |

Invariants: R (`group.received`) grows by one with every delivery; no bit of `ahead` is set for a number ≤ R, nor for a
number more than the length of the ring beyond R: such a message is not kept, and requested when its turn comes.

A family's state has the fields `group`, `window` and `sizes`. Its messages have these kinds, and its timers these
names, so that several families can share code.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    DELIVER,
    PAYLOAD,
    act,
    deliver,
    draft,
    released,
)

NAK, ANNOUNCE, ACK, STATUS, SUBMIT, ACCEPTED, REQUEST_HISTORY, HISTORY = range(1, 9)  # kinds beside PAYLOAD
REQUEST, ANNOUNCE_AGAIN, REPAIRED, RESEND, REPORT, SUBMIT_AGAIN, REQUEST_AGAIN = range(7)  # timers
MASK_BITS = 64  # numbers beyond the first that one NAK or ACK covers
MASK_BYTES = MASK_BITS // 8
NUMBERS = 1024  # messages beyond R that a member can hold of one sender


class Window(NamedTuple):
    """The messages that are held, and those known to exist."""

    highest: np.ndarray
    ahead: np.ndarray
    swept: np.ndarray
    duplicates: np.ndarray


def new_window(group: GroupState) -> Window:
    """Nothing known to exist; room for `NUMBERS` beyond R."""
    rows, senders = group.received.shape
    return Window(
        highest=np.zeros((rows, senders), np.int32),
        ahead=np.zeros((rows, senders, rank_sets.words_for(NUMBERS)), np.uint64),
        swept=np.zeros((rows, senders), np.int64),
        duplicates=np.zeros(rows, np.int64),
    )


@linked
def holds(state, row, sender, sequence):
    """Does the member hold this message?"""
    _sweep(state, row, sender)
    received = np.int64(state.group.received[row, sender])
    ahead = state.window.ahead[row, sender]
    circle = ahead.shape[0] * 64
    if sequence <= received:
        return True
    return sequence <= received + circle and rank_sets.contains(ahead, sequence % circle)


@linked
def misses_any(state, row, sender):
    """Does a message exist that the member does not hold?"""
    return state.group.received[row, sender] < state.window.highest[row, sender]


@linked
def keep(state, row, mail, sender, sequence):
    """Accept a data message: deliver in order, and hold a message that arrived early."""
    received = np.int64(state.group.received[row, sender])
    ahead = state.window.ahead[row, sender]
    circle = ahead.shape[0] * 64
    if sequence > state.window.highest[row, sender]:
        state.window.highest[row, sender] = sequence
    if holds(state, row, sender, sequence):
        state.window.duplicates[row] += 1
        return
    if sequence > received + circle:
        return
    rank_sets.add(ahead, sequence % circle)
    while rank_sets.contains(ahead, (received + 1) % circle):
        received += 1
        rank_sets.discard(ahead, received % circle)
        deliver(mail, sender, received)
    state.group.received[row, sender] = received
    state.window.swept[row, sender] = received


@linked
def _sweep(state, row, sender):
    """Clear the bits up to R, which may grow without this layer (a late-join handler updates a newcomer)."""
    received = np.int64(state.group.received[row, sender])
    ahead = state.window.ahead[row, sender]
    circle = ahead.shape[0] * 64
    if state.window.swept[row, sender] < received:
        for sequence in range(max(state.window.swept[row, sender] + 1, received - circle + 1), received + 1):
            rank_sets.discard(ahead, sequence % circle)
        state.window.swept[row, sender] = received


@linked
def next_missing(state, row, sender, first):
    """The first number from `first` on that exists and is not held; 0 when there is none."""
    last = np.int64(state.window.highest[row, sender])
    for sequence in range(max(first, np.int64(state.group.received[row, sender]) + 1), last + 1):
        if not holds(state, row, sender, sequence):
            return sequence
    return np.int64(0)


@linked
def mark_missing(state, row, mail, slot, sender, first):
    """Mark in a drafted message which of the numbers from `first` on are missing."""
    rank_sets.clear(mail.bits[slot])
    last = min(np.int64(state.window.highest[row, sender]), first + MASK_BITS - 1)
    for sequence in range(first, last + 1):
        if not holds(state, row, sender, sequence):
            rank_sets.add(mail.bits[slot], sequence - first)


@linked
def send_next(state, row, mail):
    """Number this member's next message and deliver it to itself at once; return its draft."""
    return number_next(state, row, mail, np.int64(-1), np.int64(0))


@linked
def number_next(state, row, mail, origin, own_number):
    """Number, deliver and draft the next message of this sequence, which `origin` multicast as its `own_number`.

    An origin of −1 is this member itself, if it does not share the sequence.
    """
    me = state.group.rank[row]
    sequence = np.int64(state.group.received[row, me]) + 1
    state.group.received[row, me] = sequence
    state.window.highest[row, me] = sequence
    act(mail, DELIVER, 0, me, sequence, own_number, origin)
    return draft_payload(state, row, mail, me, sequence)


@linked
def draft_payload(state, row, mail, sender, sequence):
    """Draft a data message, new or repeated; it states up to which number its sender's messages are stable."""
    slot = draft(mail, PAYLOAD, -1, state.sizes[PAYLOAD])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    _set_released(mail, slot, state.group.stable[row, sender])
    return slot


@linked
def draft_announcement(state, row, mail):
    """Draft an announcement: this sender's last number, and up to which number its messages are stable."""
    me = state.group.rank[row]
    slot = draft(mail, ANNOUNCE, -1, state.sizes[ANNOUNCE])
    mail.heads[slot].sender = me
    mail.heads[slot].sequence = state.group.received[row, me]
    _set_released(mail, slot, state.group.stable[row, me])
    return slot


@linked
def released_of(mail, slot):
    """The number in a data message or an announcement up to which every member holds the sender's messages."""
    return mail.heads[slot].field_1


@linked
def _set_released(mail, slot, sequence):
    mail.heads[slot].field_1 = sequence


@linked
def learn_released(state, row, mail, sender, sequence):
    """Note that every member holds the sender's messages up to `sequence`, so that buffers may free them."""
    if sequence > state.group.stable[row, sender]:
        state.group.stable[row, sender] = sequence
        released(mail)

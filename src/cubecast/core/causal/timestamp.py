"""Timestamp: causal broadcast by vector clocks (causal §3.1, Fig 1).

Every message carries T, how much of each sender its own sender had delivered when it was sent. A receiver delivers a
message when it is the next of its sender and everything its stamp names has been delivered; until then the message
waits in the delivery buffer. Links must be reliable; they may reorder and duplicate.

| field   | shape          | meaning                                                                             |
|---------|----------------|-------------------------------------------------------------------------------------|
| held    | room           | one record a message in a delivery buffer: whose it is and what it waits for        |
| stamps  | room × m       | the stamps T of those messages                                                      |
| chains  | rows × buckets | hash of (sender, sequence) to the messages that wait for that delivery, −1 = none   |
| waiting | rows           | messages in each member's delivery buffer                                           |
| pool    | 2              | the first free record (−1 = none), and how many were ever used                      |

T of a member is `group.received`. Only senders have entries in memory; on the wire a stamp is n numbers (causal §5.1).

Invariants: a buffered message stands in exactly one chain, that of the *first* entry of its stamp that is not yet
delivered; entries before it are delivered for good, since T only grows. So a message's stamp is read once from left to
right however long it waits, and a delivery wakes only those that wait for it.

Departures from Fig 1: no repeated scan of the buffer (lines 23–31), for the reason just given. The buffer is bounded;
when it is full the run ends with an error.
"""

from typing import NamedTuple

import numpy as np

from cubecast.core.compiled import internal
from cubecast.core.group import Group, copy_numbers
from cubecast.core.mail import (
    BUFFER_FULL,
    HEADER_BYTES,
    NUMBER_BYTES,
    OVERFLOW,
    deliver,
    draft,
    hold_back,
    multicast,
)

HELD = np.dtype([(name, np.int64) for name in ("sender", "sequence", "needs_sender", "needs_sequence", "next")])
FIRST_FREE, EVER_USED = range(2)
BUCKETS = 1024  # a power of two


class TimestampState(NamedTuple):
    """Vector-clock causal broadcast, one row per local member."""

    group: Group
    message_bytes: int
    held: np.recarray
    stamps: np.ndarray
    chains: np.ndarray
    waiting: np.ndarray
    pool: np.ndarray


def new_state(group: Group, *, members: int, payload_bytes: int, room: int) -> TimestampState:
    """Nothing sent; all delivery buffers together hold up to `room` messages."""
    rows, senders = group.received.shape
    return TimestampState(
        group=group,
        message_bytes=HEADER_BYTES + NUMBER_BYTES * members + payload_bytes,
        held=np.zeros(room, HELD).view(np.recarray),
        stamps=np.zeros((room, senders), np.int32),
        chains=np.full((rows, BUCKETS), -1, np.int32),
        waiting=np.zeros(rows, np.int64),
        pool=np.array([-1, 0], np.int64),
    )


@internal
def publish(state, row, now_ns, mail):
    """Fig 1, lines 9–13."""
    me = state.group.rank[row]
    sequence = np.int64(state.group.received[row, me]) + 1
    state.group.received[row, me] = sequence
    slot = draft(mail, 0, -1, state.message_bytes)
    mail.heads[slot].sender = me
    mail.heads[slot].sequence = sequence
    copy_numbers(mail.numbers[slot, : state.stamps.shape[1]], state.group.received[row])
    deliver(mail, me, sequence)
    multicast(mail, slot)


@internal
def receive(state, row, now_ns, mail, slot):
    """Fig 1, lines 1–8."""
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if sequence > state.group.received[row, sender]:
        missing = _first_missing(state, row, mail.numbers[slot], sender, 0)
        if missing < 0:
            _hand_over(state, row, mail, sender, sequence)
            _deliver_woken(state, row, mail, _wake(state, row, sender, sequence, -1))
        else:
            _buffer(state, row, mail, slot, missing)
    hold_back(mail, state.waiting[row])


@internal
def _first_missing(state, row, stamp, sender, begin):
    """The first sender from `begin` on of which the stamp names more than was delivered here, or −1 (lines 14–19)."""
    for k in range(begin, state.stamps.shape[1]):
        wanted = stamp[k] - 1 if k == sender else stamp[k]
        if wanted > state.group.received[row, k]:
            return np.int64(k)
    return np.int64(-1)


@internal
def _hand_over(state, row, mail, sender, sequence):
    """Fig 1, lines 20–22."""
    state.group.received[row, sender] = sequence
    deliver(mail, sender, sequence)


@internal
def _buffer(state, row, mail, slot, missing):
    """Fig 1, line 6: put the message into the chain of the delivery it lacks."""
    place = state.pool[FIRST_FREE]
    if place >= 0:
        state.pool[FIRST_FREE] = state.held[place].next
    elif state.pool[EVER_USED] < state.held.shape[0]:
        place = state.pool[EVER_USED]
        state.pool[EVER_USED] = place + 1
    else:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return
    state.held[place].sender = mail.heads[slot].sender
    state.held[place].sequence = mail.heads[slot].sequence
    copy_numbers(state.stamps[place], mail.numbers[slot])
    state.waiting[row] += 1
    _chain(state, row, place, missing)


@internal
def _chain(state, row, place, missing):
    sequence = np.int64(state.stamps[place, missing])
    if missing == state.held[place].sender:
        sequence -= 1
    state.held[place].needs_sender = missing
    state.held[place].needs_sequence = sequence
    bucket = _bucket(missing, sequence)
    state.held[place].next = np.int64(state.chains[row, bucket])
    state.chains[row, bucket] = place


@internal
def _bucket(sender, sequence):
    return (sender * 769 + sequence) & (BUCKETS - 1)


@internal
def _wake(state, row, sender, sequence, ready):
    """Take the messages that waited for this delivery out of its chain; those that lack nothing go before `ready`."""
    bucket = _bucket(sender, sequence)
    place = np.int64(state.chains[row, bucket])
    state.chains[row, bucket] = -1
    while place >= 0:
        following = state.held[place].next
        if state.held[place].needs_sender == sender and state.held[place].needs_sequence == sequence:
            missing = _first_missing(state, row, state.stamps[place], state.held[place].sender, sender)
            if missing < 0:
                state.held[place].next = ready
                ready = place
            else:
                _chain(state, row, place, missing)
        else:
            state.held[place].next = np.int64(state.chains[row, bucket])
            state.chains[row, bucket] = place
        place = following
    return ready


@internal
def _deliver_woken(state, row, mail, ready):
    """Fig 1, lines 23–31: each delivery may wake more. A duplicate that was buffered too is dropped here."""
    while ready >= 0:
        place = ready
        ready = state.held[place].next
        sender = state.held[place].sender
        sequence = state.held[place].sequence
        state.held[place].next = state.pool[FIRST_FREE]
        state.pool[FIRST_FREE] = place
        state.waiting[row] -= 1
        if sequence == state.group.received[row, sender] + 1:
            _hand_over(state, row, mail, sender, sequence)
            ready = _wake(state, row, sender, sequence, ready)

"""Causal order by vector stamps, for any routing: which messages have arrived and which must wait (causal §3.1, Fig 1).

Every message carries a stamp T: how many messages of each sender its own sender had delivered when it sent the
message. A message is delivered when it is the next of its sender and everything that its stamp names has been
delivered; until then it waits.

| field   | shape          | meaning                                                                             |
|---------|----------------|-------------------------------------------------------------------------------------|
| have    | rows × m       | every message of the sender up to this one has arrived, delivered or not            |
| arrived | rows × m × W   | the number of the message that arrived last at place sequence mod W                 |
| held    | places         | one record per waiting message: its sender and number, and what it waits for        |
| stamps  | places × m     | the stamps of those messages                                                        |
| chains  | rows × buckets | hash of (sender, sequence) to the messages that wait for that delivery, −1 = none   |
| waiting | rows           | number of waiting messages of each member                                           |
| pool    | 2              | the first free record (−1 = none), and how many were ever used                      |
| sent    | m × W × m      | stamps by message, for retransmissions; empty where the records are kept as bytes   |

W, the window, bounds how many messages of a sender are in transit at a time. T of a member is `group.received`. A stamp
is a part of its message, so one table `sent` serves all rows of a simulation; a live member keeps records as bytes.

Invariants: a waiting message is in exactly one chain, that of the *first* entry of its stamp that is not yet
delivered; the entries before it stay delivered, since T only grows. So a stamp is read once from left to right however
long its message waits, and a delivery wakes only the messages that wait for it. `have` ≥ `group.received`.

Departures from Fig 1: the chains replace the repeated scan of the buffer (lines 23–31). The buffer is bounded; when it
is full, or a message arrives W after one that is missing, the run ends with an error.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import (
    BUFFER_FULL,
    OVERFLOW,
    deliver,
    draft,
)

HELD = np.dtype([(name, np.int64) for name in ("sender", "sequence", "needs_sender", "needs_sequence", "next")])
FIRST_FREE, EVER_USED = range(2)
BUCKETS = 1024  # a power of two
KNOWN, DELIVERED, WAITS = range(3)
NOTHING_MORE = (1 << 31) - 1  # in a vector of a member's messages: it wants no messages of that sender


class HoldBack(NamedTuple):
    """What arrived and what waits, one row per local member."""

    sizes: np.ndarray
    have: np.ndarray
    arrived: np.ndarray
    held: np.recarray
    stamps: np.ndarray
    chains: np.ndarray
    waiting: np.ndarray
    pool: np.ndarray
    sent: np.ndarray


def new_hold_back(group: GroupState, *, sizes: np.ndarray, room: int, window: int, keeps_stamps: bool) -> HoldBack:
    """Nothing has arrived; a member holds back up to `room` messages. `sizes` are the sizes of the message kinds."""
    rows, senders = group.received.shape
    places = rows * room
    return HoldBack(
        sizes=sizes,
        have=np.zeros((rows, senders), np.int32),
        arrived=np.zeros((rows, senders, window), np.int32),
        held=np.empty(places, HELD).view(np.recarray),  # a place is written before it is read
        stamps=np.empty((places, senders), np.int32),
        chains=np.full((rows, BUCKETS), -1, np.int32),
        waiting=np.zeros(rows, np.int64),
        pool=np.array([-1, 0], np.int64),
        sent=np.zeros((senders if keeps_stamps else 0, window, senders), np.int32),
    )


@linked
def stamp_next(order, group, row, mail, slot):
    """Make a draft the next message of this member: it follows everything delivered here (lines 9–11)."""
    me = group.rank[row]
    sequence = np.int64(group.received[row, me]) + 1
    group.received[row, me] = sequence
    order.have[row, me] = sequence
    mail.heads[slot].sender = me
    mail.heads[slot].sequence = sequence
    senders = order.have.shape[1]
    copy_numbers(mail.numbers[slot, :senders], group.received[row])
    if order.sent.shape[0] > 0:
        copy_numbers(order.sent[me, sequence % order.sent.shape[1]], group.received[row])
    return sequence


@linked
def stamp_again(order, mail, slot, sender, sequence):
    """Make a draft a retransmission of an earlier message."""
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    if order.sent.shape[0] > 0:
        senders = order.have.shape[1]
        copy_numbers(mail.numbers[slot, :senders], order.sent[sender, sequence % order.sent.shape[1]])


@linked
def draft_have(order, row, mail, kind):
    """Draft a message that states what has arrived here."""
    senders = order.have.shape[1]
    slot = draft(mail, kind, -1, order.sizes[kind])
    copy_numbers(mail.numbers[slot, :senders], order.have[row])
    return slot


@linked
def accept(order, group, row, mail, slot):
    """Handle a message of the application: deliver it and all that waited for it, or hold it back (lines 1–8)."""
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    place = sequence % order.arrived.shape[2]
    if sequence <= order.have[row, sender] or order.arrived[row, sender, place] == sequence:
        return KNOWN
    if sequence > order.have[row, sender] + order.arrived.shape[2]:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return KNOWN
    order.arrived[row, sender, place] = sequence
    _raise_have(order, row, sender)
    missing = _first_missing(order, group, row, mail.numbers[slot], sender, 0)
    if missing >= 0:
        _add_waiting(order, row, mail, slot, missing)
        return WAITS
    _hand_over(group, row, mail, sender, sequence)
    _deliver_woken(order, group, row, mail, _wake(order, group, row, sender, sequence, -1))
    return DELIVERED


@linked
def _raise_have(order, row, sender):
    have = np.int64(order.have[row, sender])
    window = order.arrived.shape[2]
    while order.arrived[row, sender, (have + 1) % window] == have + 1:
        have += 1
    order.have[row, sender] = have


@linked
def _first_missing(order, group, row, stamp, sender, begin):
    """The first sender from `begin` on for which the stamp names more than is delivered here, or −1 (lines 14–19)."""
    for k in range(begin, order.have.shape[1]):
        wanted = stamp[k] - 1 if k == sender else stamp[k]
        if wanted > group.received[row, k]:
            return np.int64(k)
    return np.int64(-1)


@linked
def _hand_over(group, row, mail, sender, sequence):
    """Lines 20–22."""
    group.received[row, sender] = sequence
    deliver(mail, sender, sequence)


@linked
def _add_waiting(order, row, mail, slot, missing):
    """Line 6: add the message to the chain of the delivery it waits for."""
    place = order.pool[FIRST_FREE]
    if place >= 0:
        order.pool[FIRST_FREE] = order.held[place].next
    elif order.pool[EVER_USED] < order.held.shape[0]:
        place = order.pool[EVER_USED]
        order.pool[EVER_USED] = place + 1
    else:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return
    order.held[place].sender = mail.heads[slot].sender
    order.held[place].sequence = mail.heads[slot].sequence
    copy_numbers(order.stamps[place], mail.numbers[slot])
    order.waiting[row] += 1
    _chain(order, row, place, missing)


@linked
def _chain(order, row, place, missing):
    sequence = np.int64(order.stamps[place, missing])
    if missing == order.held[place].sender:
        sequence -= 1
    order.held[place].needs_sender = missing
    order.held[place].needs_sequence = sequence
    bucket = _bucket(missing, sequence)
    order.held[place].next = np.int64(order.chains[row, bucket])
    order.chains[row, bucket] = place


@linked
def _bucket(sender, sequence):
    return (sender * 769 + sequence) & (BUCKETS - 1)


@linked
def _wake(order, group, row, sender, sequence, ready):
    """Remove the messages that waited for this delivery from its chain; put those that lack nothing before `ready`."""
    bucket = _bucket(sender, sequence)
    place = np.int64(order.chains[row, bucket])
    order.chains[row, bucket] = -1
    while place >= 0:
        following = order.held[place].next
        if order.held[place].needs_sender == sender and order.held[place].needs_sequence == sequence:
            missing = _first_missing(order, group, row, order.stamps[place], order.held[place].sender, sender)
            if missing < 0:
                order.held[place].next = ready
                ready = place
            else:
                _chain(order, row, place, missing)
        else:
            order.held[place].next = np.int64(order.chains[row, bucket])
            order.chains[row, bucket] = place
        place = following
    return ready


@linked
def _deliver_woken(order, group, row, mail, ready):
    """Lines 23–31: deliver the woken messages; each delivery may wake more."""
    while ready >= 0:
        place = ready
        ready = order.held[place].next
        sender = order.held[place].sender
        sequence = order.held[place].sequence
        order.held[place].next = order.pool[FIRST_FREE]
        order.pool[FIRST_FREE] = place
        order.waiting[row] -= 1
        _hand_over(group, row, mail, sender, sequence)
        ready = _wake(order, group, row, sender, sequence, ready)

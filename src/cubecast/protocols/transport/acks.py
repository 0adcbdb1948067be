"""Receivers acknowledge the messages they hold: the common part of ACK-based release (guo §2.1.1 and §2.1.3).

A sender records which messages each receiver has acknowledged. Once every member holds a message, the sender releases
it: it frees the message and announces that number (4 bytes) in its next messages, or in an announcement if none
follows. This is stability detection by the sender for its own messages; rounds of a stability protocol may find the
same earlier or later.

| field        | shape    | meaning                                                                           |
|--------------|----------|-----------------------------------------------------------------------------------|
| acknowledged | rows × n | rank k holds this member's messages up to this number                             |
| beyond       | rows × n | a mask of the 64 numbers after that: which of them rank k holds too               |

Invariant: `acknowledged[row, k] ≤ R_k[rank]`, so every member holds what is released.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    draft,
    multicast,
    send,
)
from cubecast.protocols.transport.window import (
    ACK,
    MASK_BITS,
    draft_announcement,
    holds,
    learn_released,
)


class Acks(NamedTuple):
    """What each receiver acknowledged of this member's messages."""

    acknowledged: np.ndarray
    beyond: np.ndarray


def new_acks(group: GroupState, members: int) -> Acks:
    """No member has acknowledged anything."""
    rows = len(group.rank)
    return Acks(acknowledged=np.zeros((rows, members), np.int32), beyond=np.zeros((rows, members), np.uint64))


@linked
def acknowledge(state, row, mail, sender):
    """Acknowledge to a sender which of its messages this member holds."""
    if not rank_sets.contains(state.group.members[row], sender):
        return
    received = np.int64(state.group.received[row, sender])
    slot = draft(mail, ACK, -1, state.sizes[ACK])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = received
    rank_sets.clear(mail.bits[slot])
    last = min(received + MASK_BITS, np.int64(state.window.highest[row, sender]))
    for sequence in range(received + 1, last + 1):
        if holds(state, row, sender, sequence):
            rank_sets.add(mail.bits[slot], sequence - received - 1)
    send(mail, slot, sender)


@linked
def note_ack(state, row, mail, slot):
    """Note which of this member's messages a receiver holds; an ACK overtaken by a later one changes nothing."""
    source = mail.heads[slot].source
    sequence = mail.heads[slot].sequence
    before = state.acks.acknowledged[row, source]
    if sequence > before:
        state.acks.acknowledged[row, source] = sequence
        state.acks.beyond[row, source] = mail.bits[slot, 0]
        release_what_all_hold(state, row, mail)
    elif sequence == before:
        state.acks.beyond[row, source] |= mail.bits[slot, 0]


@linked
def is_acknowledged(state, row, rank, sequence):
    """Has this receiver acknowledged this member's message?"""
    upto = np.int64(state.acks.acknowledged[row, rank])
    if sequence <= upto:
        return True
    place = sequence - upto - 1
    return place < MASK_BITS and rank_sets.contains(state.acks.beyond[row, rank : rank + 1], place)


@linked
def release_what_all_hold(state, row, mail):
    """As a sender, free what every member holds; if that is everything, announce it, since no message follows."""
    me = state.group.rank[row]
    if me >= state.group.received.shape[1]:
        return
    sent = np.int64(state.group.received[row, me])
    held = sent
    for rank in range(state.members):
        if rank != me and rank_sets.contains(state.group.members[row], rank):
            held = min(held, np.int64(state.acks.acknowledged[row, rank]))
    if held > state.group.stable[row, me]:
        learn_released(state, row, mail, me, held)
        if held == sent:
            multicast(mail, draft_announcement(state, row, mail))

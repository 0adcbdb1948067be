"""Receivers ask for what they miss: the part that the receiver-initiated families share (guo §2.1.2).

A receiver that notices a gap asks for it by NAK, and asks again until it has it. A NAK names the first number missed,
a mask of the 63 after it, and the one who is to answer: the sender, or, once the sender has left the membership, the
other members in turn, for everyone keeps what is not stable. A sender announces its last number while that is not
stable, so that a lost tail is noticed too.

| field     | shape            | meaning                                                                      |
|-----------|------------------|------------------------------------------------------------------------------|
| nak_ns    | –                | how long an answer is waited for; 0: links lose nothing, nothing is asked    |
| wait_ns   | –                | how long a gap may last before it is asked for: links may reorder            |
| spread_ns | –                | and up to this much more, at random, so that one NAK may speak for others    |
| by_all    | –                | is a NAK multicast?                                                          |
| again_all | –                | is a repair multicast, or sent to the asker alone?                           |
| asking    | rows × m         | is a timer running for that sender?                                          |
| due_ns    | rows × m         | when it is time to ask                                                       |
| tries     | rows × m         | how often it was asked since the last progress; the wait doubles three times |
| owed      | rows × m × words | which messages were multicast again, or are about to be, a moment ago        |
| random    | rows × 2         | a stream for each row                                                        |

Departure: the paper runs a timer for each missing message; here one for each sender, and a NAK that speaks of 64.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    PAYLOAD,
    draft,
    multicast,
    send,
    set_timer,
)
from cubecast.protocol.random import below, new_stream
from cubecast.protocols.transport.window import (
    ANNOUNCE_AGAIN,
    ASK,
    MASK_BITS,
    NAK,
    NUMBERS,
    OWED,
    draft_announcement,
    draft_payload,
    holds,
    keep,
    mark_missing,
    misses_any,
    next_missing,
)

REPAIR_BURST = 16  # messages that one NAK may bring back
DOUBLINGS = 3


class Asks(NamedTuple):
    """Who waits for what."""

    nak_ns: int
    wait_ns: int
    spread_ns: int
    by_all: int
    again_all: int
    asking: np.ndarray
    due_ns: np.ndarray
    tries: np.ndarray
    owed: np.ndarray
    random: np.ndarray


def new_asks(
    group: GroupState,
    *,
    nak_ns: int,
    wait_ns: int,
    spread_ns: int = 0,
    by_all: bool = False,
    again_all: bool = True,
    seed: int = 0,
) -> Asks:
    """Nothing is missed."""
    rows, senders = group.received.shape
    return Asks(
        nak_ns=nak_ns,
        wait_ns=wait_ns,
        spread_ns=spread_ns,
        by_all=int(by_all),
        again_all=int(again_all),
        asking=np.zeros((rows, senders), np.int8),
        due_ns=np.zeros((rows, senders), np.int64),
        tries=np.zeros((rows, senders), np.int64),
        owed=np.zeros((rows, senders, rank_sets.words_for(NUMBERS)), np.uint64),
        random=np.stack([new_stream(seed, "asking", int(rank)) for rank in group.rank]),
    )


@linked
def spread(state, row):
    """A random part of the spread."""
    if state.asks.spread_ns == 0:
        return np.int64(0)
    return np.int64(below(state.asks.random[row], state.asks.spread_ns))


@linked
def announce_later(state, row, mail):
    """The message just sent may be lost, and none may follow that would show it."""
    if state.asks.nak_ns > 0:
        set_timer(mail, ANNOUNCE_AGAIN, np.int64(state.group.received[row, state.group.rank[row]]), state.asks.nak_ns)


@linked
def announce_if_last(state, row, mail, sequence):
    """Nothing was sent since, and it is not stable yet: say that it exists."""
    me = state.group.rank[row]
    if state.group.received[row, me] == sequence and state.group.stable[row, me] < sequence:
        multicast(mail, draft_announcement(state, row, mail))
        announce_later(state, row, mail)


@linked
def take_in(state, row, now_ns, mail, slot):
    """A data message, or news that one exists."""
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    known = np.int64(state.window.highest[row, sender])
    received = state.group.received[row, sender]
    if mail.heads[slot].kind == PAYLOAD:
        keep(state, row, mail, sender, sequence)
    elif sequence > known:
        state.window.highest[row, sender] = sequence
    if state.group.received[row, sender] > received:
        state.asks.tries[row, sender] = 0
    _notice_gap(state, row, now_ns, mail, sender, known + 1)


@linked
def _notice_gap(state, row, now_ns, mail, sender, fresh):
    """Ask soon; about a gap from `fresh` on, which no NAK has spoken of, at once."""
    asks = state.asks
    if asks.nak_ns == 0 or not misses_any(state, row, sender):
        return
    if asks.asking[row, sender] == 0:
        wait_ns = asks.wait_ns + spread(state, row)
        asks.asking[row, sender] = 1
        asks.due_ns[row, sender] = now_ns + wait_ns
        set_timer(mail, ASK, sender, wait_ns)
    elif asks.wait_ns + asks.spread_ns == 0:
        _ask(state, row, mail, sender, fresh)


@linked
def ask_if_due(state, row, now_ns, mail, sender):
    """The timer of a sender: ask, or wait on, or be content."""
    asks = state.asks
    if not misses_any(state, row, sender):
        asks.asking[row, sender] = 0
        return
    if now_ns >= asks.due_ns[row, sender]:
        _ask(state, row, mail, sender, np.int64(1))
        asks.tries[row, sender] += 1
        _back_off(state, row, now_ns, sender)
    set_timer(mail, ASK, sender, asks.due_ns[row, sender] - now_ns)


@linked
def _back_off(state, row, now_ns, sender):
    doublings = min(max(state.asks.tries[row, sender] - 1, 0), DOUBLINGS)
    state.asks.due_ns[row, sender] = now_ns + (state.asks.nak_ns << doublings) + spread(state, row)


@linked
def _ask(state, row, mail, sender, first):
    first = next_missing(state, row, sender, first)
    if first == 0:
        return
    slot = draft(mail, NAK, -1, state.sizes[NAK])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = first
    asked = whom_to_ask(state, row, sender)
    _set_asked(mail, slot, asked)
    mark_missing(state, row, mail, slot, sender, first)
    if state.asks.by_all == 1:
        multicast(mail, slot)
    else:
        send(mail, slot, asked)


@linked
def asked_of(mail, slot):
    """Who is to answer a NAK."""
    return mail.heads[slot].field_1


@linked
def _set_asked(mail, slot, rank):
    mail.heads[slot].field_1 = rank


@linked
def whom_to_ask(state, row, sender):
    """The sender; when it has left, the other members in turn."""
    members = state.group.members[row]
    if rank_sets.contains(members, sender):
        return np.int64(sender)
    me = state.group.rank[row]
    for step in range(state.members):
        rank = (me + 1 + state.asks.tries[row, sender] + step) % state.members
        if rank != me and rank_sets.contains(members, rank):
            return np.int64(rank)
    return np.int64(sender)


@linked
def spare_my_nak(state, row, now_ns, mail, slot):
    """Somebody else asked for what I miss: wait for that answer, as if I had asked."""
    sender = mail.heads[slot].sender
    first = next_missing(state, row, sender, np.int64(1))
    asked = first - mail.heads[slot].sequence
    if first > 0 and 0 <= asked < MASK_BITS and rank_sets.contains(mail.bits[slot], asked):
        _back_off(state, row, now_ns, sender)


@linked
def answer(state, row, mail, slot):
    """Send again what a NAK asks for, as far as it is held."""
    first = mail.heads[slot].sequence
    left = REPAIR_BURST
    for k in range(MASK_BITS):
        if (
            left > 0
            and rank_sets.contains(mail.bits[slot], k)
            and holds(state, row, mail.heads[slot].sender, first + k)
        ):
            left -= 1
            _repair(state, row, mail, slot, first + k)


@linked
def _repair(state, row, mail, slot, sequence):
    """To the asker alone; or to everybody, and then for a while not again, for others will ask for it too."""
    sender = mail.heads[slot].sender
    if state.asks.again_all == 0:
        send(mail, draft_payload(state, row, mail, sender, sequence), mail.heads[slot].source)
    elif owe(state, row, mail, sender, sequence, state.asks.nak_ns // 2):
        multicast(mail, draft_payload(state, row, mail, sender, sequence))


@linked
def owe(state, row, mail, sender, sequence, delay_ns):
    """Mark a message, and unmark it after a delay; returns whether it was not marked before."""
    owed = state.asks.owed[row, sender]
    circle = owed.shape[0] * 64
    if rank_sets.contains(owed, sequence % circle):
        return False
    rank_sets.add(owed, sequence % circle)
    set_timer(mail, OWED, sequence * state.group.received.shape[1] + sender, delay_ns)
    return True


@linked
def settle_debt(state, row, sender, sequence):
    """Unmark a message; returns whether it was marked."""
    owed = state.asks.owed[row, sender]
    circle = owed.shape[0] * 64
    was_owed = rank_sets.contains(owed, sequence % circle)
    rank_sets.discard(owed, sequence % circle)
    return was_owed

"""Receivers request what they miss: the common part of the receiver-initiated families (guo §2.1.2).

A receiver that notices a gap sends a NAK, and repeats it until the gap is filled. A NAK names the first missing number,
a mask of the 63 numbers after it, and the member that is to answer: the sender or, once the sender has left, the other
members in turn, since every member keeps what is not stable. A sender announces its last number while that is not
stable, so that receivers notice a lost tail too.

| field      | shape            | meaning                                                                     |
|------------|------------------|-----------------------------------------------------------------------------|
| nak_ns     | –                | how long a repair may take; 0: links lose nothing, no NAK is sent           |
| wait_ns    | –                | how long a gap may last before the first NAK: links may reorder             |
| spread_ns  | –                | the largest random delay added, so that one NAK may serve several members   |
| by_all     | –                | is a NAK multicast?                                                         |
| again_all  | –                | is a repair multicast, or sent to the requester alone?                      |
| is_waiting | rows × m         | is the timer for that sender running?                                       |
| due_ns     | rows × m         | when the next NAK is due                                                    |
| tries      | rows × m         | NAKs since the last progress; the wait doubles three times                  |
| repairing  | rows × m × words | messages whose repair is due or was sent a moment ago                       |
| random     | rows × 2         | a random stream per row                                                     |

Departure: the paper runs a timer for each missing message; here there is one for each sender, and a NAK covers 64
messages.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    PAYLOAD,
    draft,
    multicast,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below, new_stream
from cubecast.protocols.transport.window import (
    ANNOUNCE,
    ANNOUNCE_AGAIN,
    MASK_BITS,
    MASK_BYTES,
    NAK,
    NUMBERS,
    REPAIRED,
    REQUEST,
    Window,
    draft_announcement,
    draft_payload,
    holds,
    keep,
    mark_missing,
    misses_any,
    new_window,
    next_missing,
    send_next,
)

REPAIR_BURST = 16  # most messages that one NAK requests
DOUBLINGS = 3
NAK_MESSAGES = (
    message("PAYLOAD", PAYLOAD, payload=payload()),
    message("NAK", NAK, first=4, asked=4, missing=MASK_BYTES),
    message("ANNOUNCE", ANNOUNCE, last=4),
)


@dataclass(frozen=True, kw_only=True)
class RepairParameters:
    """Parameters of the reliable transports."""

    repair: Literal["multicast", "unicast"] = parameter(
        "multicast", "A lost message is multicast again (guo §2.1), or sent to the members that miss it."
    )


class Requests(NamedTuple):
    """The gaps of each member, and the repairs in progress."""

    nak_ns: int
    wait_ns: int
    spread_ns: int
    by_all: int
    again_all: int
    is_waiting: np.ndarray
    due_ns: np.ndarray
    tries: np.ndarray
    repairing: np.ndarray
    random: np.ndarray


def new_requests(
    group: GroupState,
    *,
    nak_ns: int,
    wait_ns: int,
    spread_ns: int = 0,
    by_all: bool = False,
    again_all: bool = True,
    seed: int = 0,
) -> Requests:
    """Nothing is missing."""
    rows, senders = group.received.shape
    return Requests(
        nak_ns=nak_ns,
        wait_ns=wait_ns,
        spread_ns=spread_ns,
        by_all=int(by_all),
        again_all=int(again_all),
        is_waiting=np.zeros((rows, senders), np.int8),
        due_ns=np.zeros((rows, senders), np.int64),
        tries=np.zeros((rows, senders), np.int64),
        repairing=np.zeros((rows, senders, rank_sets.words_for(NUMBERS)), np.uint64),
        random=np.stack([new_stream(seed, "asking", int(rank)) for rank in group.rank]),
    )


class NakFields(NamedTuple):
    """The state of a transport that only the NAKs of receivers drive, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    window: Window
    requests: Requests


def new_nak_fields(group: GroupState, context: Context, *, by_all: bool = False, again_all: bool = True) -> NakFields:
    """Nothing sent, nothing missing. `repeat_ns = 0` is the form for links that lose nothing."""
    return NakFields(
        group=group,
        members=context.members,
        sizes=message_sizes(NAK_MESSAGES, context),
        window=new_window(group),
        requests=new_requests(
            group,
            nak_ns=context.repeat_ns,
            wait_ns=context.wait_ns,
            spread_ns=context.repeat_ns // 2 if by_all else 0,
            by_all=by_all,
            again_all=again_all,
            seed=context.seed if by_all else 0,
        ),
    )


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member."""
    multicast(mail, send_next(state, row, mail))
    announce_later(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Request what is missing, announce a tail that is not stable, or end a repair."""
    if timer == REQUEST:
        request_if_due(state, row, now_ns, mail, tag)
    elif timer == ANNOUNCE_AGAIN:
        announce_if_last(state, row, mail, tag)
    else:
        senders = state.group.received.shape[1]
        end_repair(state, row, tag % senders, tag // senders)


@linked
def spread(state, row):
    """A random delay from 0 up to the spread."""
    if state.requests.spread_ns == 0:
        return np.int64(0)
    return np.int64(below(state.requests.random[row], state.requests.spread_ns))


@linked
def announce_later(state, row, mail):
    """Schedule an announcement: the message just sent may be lost, and no later message may reveal the gap."""
    if state.requests.nak_ns > 0:
        set_timer(
            mail, ANNOUNCE_AGAIN, np.int64(state.group.received[row, state.group.rank[row]]), state.requests.nak_ns
        )


@linked
def announce_if_last(state, row, mail, sequence):
    """Announce the last message if nothing was sent since and it is not stable."""
    me = state.group.rank[row]
    if state.group.received[row, me] == sequence and state.group.stable[row, me] < sequence:
        multicast(mail, draft_announcement(state, row, mail))
        announce_later(state, row, mail)


@linked
def accept(state, row, now_ns, mail, slot):
    """Accept a data message, or an announcement that one exists."""
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    known = np.int64(state.window.highest[row, sender])
    received = state.group.received[row, sender]
    if mail.heads[slot].kind == PAYLOAD:
        keep(state, row, mail, sender, sequence)
    elif sequence > known:
        state.window.highest[row, sender] = sequence
    if state.group.received[row, sender] > received:
        state.requests.tries[row, sender] = 0
    _notice_gap(state, row, now_ns, mail, sender, known + 1)


@linked
def _notice_gap(state, row, now_ns, mail, sender, fresh):
    """Schedule a NAK; send one at once for a gap from `fresh` on, which no NAK has named yet."""
    requests = state.requests
    if requests.nak_ns == 0 or not misses_any(state, row, sender):
        return
    if requests.is_waiting[row, sender] == 0:
        wait_ns = requests.wait_ns + spread(state, row)
        requests.is_waiting[row, sender] = 1
        requests.due_ns[row, sender] = now_ns + wait_ns
        set_timer(mail, REQUEST, sender, wait_ns)
    elif requests.wait_ns + requests.spread_ns == 0:
        _request(state, row, mail, sender, fresh)


@linked
def request_if_due(state, row, now_ns, mail, sender):
    """The timer of a sender: send a NAK if one is due, and stop when nothing is missing."""
    requests = state.requests
    if not misses_any(state, row, sender):
        requests.is_waiting[row, sender] = 0
        return
    if now_ns >= requests.due_ns[row, sender]:
        _request(state, row, mail, sender, np.int64(1))
        requests.tries[row, sender] += 1
        _back_off(state, row, now_ns, sender)
    set_timer(mail, REQUEST, sender, requests.due_ns[row, sender] - now_ns)


@linked
def _back_off(state, row, now_ns, sender):
    doublings = min(max(state.requests.tries[row, sender] - 1, 0), DOUBLINGS)
    state.requests.due_ns[row, sender] = now_ns + (state.requests.nak_ns << doublings) + spread(state, row)


@linked
def _request(state, row, mail, sender, first):
    first = next_missing(state, row, sender, first)
    if first == 0:
        return
    slot = draft(mail, NAK, -1, state.sizes[NAK])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = first
    asked = next_responder(state, row, sender)
    _set_responder(mail, slot, asked)
    mark_missing(state, row, mail, slot, sender, first)
    if state.requests.by_all == 1:
        multicast(mail, slot)
    else:
        send(mail, slot, asked)


@linked
def responder_of(mail, slot):
    """The rank that is to answer a NAK."""
    return mail.heads[slot].field_1


@linked
def _set_responder(mail, slot, rank):
    mail.heads[slot].field_1 = rank


@linked
def next_responder(state, row, sender):
    """The sender; when it has left, the other members in turn."""
    members = state.group.members[row]
    if rank_sets.contains(members, sender):
        return np.int64(sender)
    me = state.group.rank[row]
    for step in range(state.members):
        rank = (me + 1 + state.requests.tries[row, sender] + step) % state.members
        if rank != me and rank_sets.contains(members, rank):
            return np.int64(rank)
    return np.int64(sender)


@linked
def suppress_nak(state, row, now_ns, mail, slot):
    """Another member requested what this one misses: wait for that repair instead of sending a NAK."""
    sender = mail.heads[slot].sender
    first = next_missing(state, row, sender, np.int64(1))
    asked = first - mail.heads[slot].sequence
    if first > 0 and 0 <= asked < MASK_BITS and rank_sets.contains(mail.bits[slot], asked):
        _back_off(state, row, now_ns, sender)


@linked
def answer(state, row, mail, slot):
    """Retransmit what a NAK requests, as far as this member holds it."""
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
    """Repair for the requester alone or for all; then not again for a while, since others will request it too."""
    sender = mail.heads[slot].sender
    if state.requests.again_all == 0:
        send(mail, draft_payload(state, row, mail, sender, sequence), mail.heads[slot].source)
    elif begin_repair(state, row, mail, sender, sequence, state.requests.nak_ns // 2):
        multicast(mail, draft_payload(state, row, mail, sender, sequence))


@linked
def begin_repair(state, row, mail, sender, sequence, delay_ns):
    """Mark a message, and unmark it after a delay; returns whether it was not marked before."""
    repairing = state.requests.repairing[row, sender]
    circle = repairing.shape[0] * 64
    if rank_sets.contains(repairing, sequence % circle):
        return False
    rank_sets.add(repairing, sequence % circle)
    set_timer(mail, REPAIRED, sequence * state.group.received.shape[1] + sender, delay_ns)
    return True


@linked
def end_repair(state, row, sender, sequence):
    """Unmark a message; returns whether it was marked."""
    repairing = state.requests.repairing[row, sender]
    circle = repairing.shape[0] * 64
    was_repairing = rank_sets.contains(repairing, sequence % circle)
    rank_sets.discard(repairing, sequence % circle)
    return was_repairing

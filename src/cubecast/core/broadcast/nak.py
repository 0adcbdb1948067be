"""Reliable multicast by negative acknowledgement to the sender (guo §2.3, the receiver-initiated family).

A sender multicasts DATA(sequence). A receiver that notices a gap waits a little, then asks the sender for the first
run it misses, and asks again until it has it. The sender announces its last sequence number while that is not stable,
so that a lost tail is noticed too. Once the sender has left the membership the others are asked in turn: everyone
keeps what is not stable.

| field   | shape            | meaning                                                                       |
|---------|------------------|-------------------------------------------------------------------------------|
| highest | rows × m         | the highest sequence number of each sender known to exist                     |
| ahead   | rows × m × words | which sequence numbers beyond R are held (a circle of `64 · words` bits)      |
| asking  | rows × m         | is a NAK timer running for that sender?                                       |
| tries   | rows × m         | how often it was asked since the last progress                                |

Invariants: R (`group.received`) grows by one with every delivery; no bit of `ahead` is set for a number ≤ R, nor for
one more than the circle beyond it: such a message is not kept, and asked for when its turn comes. With `nak_ns = 0`
links are reliable and FIFO: nothing is announced, nothing asked for.
"""

from typing import NamedTuple

import numpy as np

from cubecast.core import bits
from cubecast.core.compiled import internal
from cubecast.core.group import Group
from cubecast.core.mail import HEADER_BYTES, NUMBER_BYTES, deliver, draft, multicast, send, set_timer

DATA, NAK, ANNOUNCE = range(3)
ASK, ANNOUNCE_AGAIN = range(2)
REPAIR_BURST = 16  # messages a single NAK may bring back


class NakState(NamedTuple):
    """Receiver-initiated reliable multicast, one row per local member."""

    group: Group
    members: int
    payload_bytes: int
    nak_ns: int
    highest: np.ndarray
    ahead: np.ndarray
    asking: np.ndarray
    tries: np.ndarray


def new_state(group: Group, *, members: int, payload_bytes: int, nak_ns: int, window: int = 1024) -> NakState:
    """Nothing sent, nothing missing."""
    rows, senders = group.received.shape
    return NakState(
        group=group,
        members=members,
        payload_bytes=payload_bytes,
        nak_ns=nak_ns,
        highest=np.zeros((rows, senders), np.int32),
        ahead=np.zeros((rows, senders, bits.words_for(window)), np.uint64),
        asking=np.zeros((rows, senders), np.int8),
        tries=np.zeros((rows, senders), np.int32),
    )


@internal
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member."""
    me = state.group.rank[row]
    sequence = np.int64(state.group.received[row, me]) + 1
    state.group.received[row, me] = sequence
    deliver(mail, me, sequence)
    multicast(mail, _draft_data(state, mail, me, sequence))
    if state.nak_ns > 0:
        set_timer(mail, ANNOUNCE_AGAIN, sequence, state.nak_ns)


@internal
def receive(state, row, now_ns, mail, slot):
    """Data, a request for data, or news of how far the sender is."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if kind == NAK:
        _repair(state, row, mail, slot)
        return
    state.highest[row, sender] = max(state.highest[row, sender], sequence)
    if kind == DATA:
        _keep(state, row, mail, sender, sequence)
    _ask_later_if_missing(state, row, mail, sender)


@internal
def on_timer(state, row, now_ns, mail, timer, tag):
    """Ask for what is missing, or announce a tail that is not stable."""
    if timer == ASK:
        state.asking[row, tag] = 0
        if state.group.received[row, tag] < state.highest[row, tag]:
            _ask(state, row, mail, tag)
            _ask_later_if_missing(state, row, mail, tag)
        return
    me = state.group.rank[row]
    if state.group.received[row, me] == tag and state.group.stable[row, me] < tag:
        slot = draft(mail, ANNOUNCE, -1, HEADER_BYTES + NUMBER_BYTES)
        mail.heads[slot].sender = me
        mail.heads[slot].sequence = tag
        multicast(mail, slot)
        set_timer(mail, ANNOUNCE_AGAIN, tag, state.nak_ns)


@internal
def _keep(state, row, mail, sender, sequence):
    """Deliver in order; hold what came early."""
    received = np.int64(state.group.received[row, sender])
    ahead = state.ahead[row, sender]
    circle = ahead.shape[0] * 64
    if sequence <= received or sequence > received + circle:
        return
    bits.add(ahead, sequence % circle)
    while bits.contains(ahead, (received + 1) % circle):
        received += 1
        bits.discard(ahead, received % circle)
        deliver(mail, sender, received)
        state.tries[row, sender] = 0
    state.group.received[row, sender] = received


@internal
def _ask_later_if_missing(state, row, mail, sender):
    missing = state.group.received[row, sender] < state.highest[row, sender]
    if missing and state.nak_ns > 0 and state.asking[row, sender] == 0:
        state.asking[row, sender] = 1
        set_timer(mail, ASK, sender, state.nak_ns)


@internal
def _ask(state, row, mail, sender):
    """NAK the first run of missing numbers."""
    ahead = state.ahead[row, sender]
    circle = ahead.shape[0] * 64
    first = np.int64(state.group.received[row, sender]) + 1
    last = first
    while (
        last < state.highest[row, sender]
        and last - first < REPAIR_BURST
        and not bits.contains(ahead, (last + 1) % circle)
    ):
        last += 1
    slot = draft(mail, NAK, -1, HEADER_BYTES + 2 * NUMBER_BYTES)
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = first
    mail.heads[slot].iteration = last
    send(mail, slot, _whom_to_ask(state, row, sender))
    state.tries[row, sender] += 1


@internal
def _whom_to_ask(state, row, sender):
    """The sender; when it has left, the other members in turn."""
    members = state.group.members[row]
    if bits.contains(members, sender):
        return sender
    me = state.group.rank[row]
    for step in range(state.members):
        rank = (me + 1 + state.tries[row, sender] + step) % state.members
        if rank != me and bits.contains(members, rank):
            return rank
    return sender


@internal
def _repair(state, row, mail, slot):
    """Send again what the asker misses, as far as this member holds it."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    first = mail.heads[slot].sequence
    last = min(mail.heads[slot].iteration, first + REPAIR_BURST - 1, np.int64(state.group.received[row, sender]))
    for sequence in range(first, last + 1):
        send(mail, _draft_data(state, mail, sender, sequence), source)


@internal
def _draft_data(state, mail, sender, sequence):
    slot = draft(mail, DATA, -1, HEADER_BYTES + state.payload_bytes)
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    return slot

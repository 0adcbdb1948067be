"""Senders that share sequences: sequencers number their messages (guo ch. 7; the sequencers of §4.2.1, PA and Amoeba).

There are k sequences, and the sequencer of sequence j is the member of rank j. The sender of rank i submits its
messages to the sequencer of sequence i mod k, numbered by itself and in order. The sequencer gives each the next number
of the sequence and multicasts it; receivers request what they miss from the sequencer, as in `nak`. So R, S and the
messages of every stability protocol have one entry per sequence instead of one per sender. With one sequence all
members deliver all messages in the same order: 4 bytes per member suffice.

| field         | shape          | meaning                                                              |
|---------------|----------------|----------------------------------------------------------------------|
| submitted     | rows           | messages that this member has multicast so far                       |
| accepted      | rows           | how many of them have a number in their sequence, as far as it knows |
| is_submitting | rows           | is its timer running?                                                |
| place         | rows           | its row in `taken`; −1: it is not a sequencer                        |
| taken         | sequencers × n | how many messages of each member have a number                       |

If messages may be lost, the sequencer answers every SUBMIT with ACCEPTED and how many it has taken, and a sender
submits again what is not accepted after `nak_ns`. A message that arrives early, or again, is not taken. Other
fields: `repair`.

The paper does not say what becomes of a sequence whose sequencer crashes, nor which messages a successor would have to
number again. So a run in which members that share sequences crash, leave, join or are suspected is refused
(`sim.scenario`).
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import draft, multicast, send, set_timer
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.transport.repair import (
    NAK_MESSAGES,
    REPAIR_BURST,
    Requests,
    accept,
    announce_later,
    answer,
    new_requests,
)
from cubecast.protocols.transport.repair import on_timer as ring_repair
from cubecast.protocols.transport.window import (
    ACCEPTED,
    NAK,
    SUBMIT,
    SUBMIT_AGAIN,
    Window,
    new_window,
    number_next,
)

MESSAGES = (
    *NAK_MESSAGES,
    message("SUBMIT", SUBMIT, own_number=4, payload=payload()),
    message("ACCEPTED", ACCEPTED, taken=4),
)


class SequencedState(NamedTuple):
    """Reliable multicast through sequencers, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    window: Window
    requests: Requests
    submitted: np.ndarray
    accepted: np.ndarray
    is_submitting: np.ndarray
    place: np.ndarray
    taken: np.ndarray


def build(group: GroupState, context: Context, parameters: NoParameters) -> SequencedState:
    """Nothing submitted, nothing sent, nothing missing."""
    rows, sequences = group.received.shape
    is_sequencer = group.rank < sequences
    return SequencedState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        window=new_window(group),
        requests=new_requests(group, nak_ns=context.repeat_ns, wait_ns=context.wait_ns),
        submitted=np.zeros(rows, np.int64),
        accepted=np.zeros(rows, np.int64),
        is_submitting=np.zeros(rows, np.int8),
        place=np.where(is_sequencer, np.cumsum(is_sequencer) - 1, -1).astype(np.int64),
        taken=np.zeros((max(int(is_sequencer.sum()), 1), context.members), np.int64),
    )


@linked
def publish(state, row, now_ns, mail):
    """Number the next message of this member, or submit it to its sequencer."""
    state.submitted[row] += 1
    if state.place[row] >= 0:
        state.accepted[row] = state.submitted[row]
        _multicast_numbered(state, row, mail, np.int64(state.group.rank[row]), np.int64(state.submitted[row]))
        return
    _submit(state, row, mail, np.int64(state.submitted[row]))
    if state.requests.nak_ns > 0 and state.is_submitting[row] == 0:
        state.is_submitting[row] = 1
        set_timer(mail, SUBMIT_AGAIN, np.int64(state.accepted[row]), state.requests.nak_ns)


@linked
def _submit(state, row, mail, own_number):
    sequencer = np.int64(state.group.rank[row]) % state.group.received.shape[1]
    slot = draft(mail, SUBMIT, -1, state.sizes[SUBMIT])
    mail.heads[slot].sender = sequencer
    mail.heads[slot].sequence = own_number
    send(mail, slot, sequencer)


@linked
def _multicast_numbered(state, row, mail, origin, own_number):
    multicast(mail, number_next(state, row, mail, origin, own_number))
    announce_later(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, a request for data, an announcement, a SUBMIT or an ACCEPTED."""
    kind = mail.heads[slot].kind
    if kind == NAK:
        answer(state, row, mail, slot)
    elif kind == SUBMIT:
        _on_submit(state, row, mail, slot)
    elif kind == ACCEPTED:
        state.accepted[row] = max(state.accepted[row], mail.heads[slot].sequence)
    else:
        accept(state, row, now_ns, mail, slot)


@linked
def _on_submit(state, row, mail, slot):
    """Number a message if it is the next of its sender; answer how many are numbered."""
    origin = mail.heads[slot].source
    place = state.place[row]
    if mail.heads[slot].sequence == state.taken[place, origin] + 1:
        state.taken[place, origin] += 1
        _multicast_numbered(state, row, mail, np.int64(origin), np.int64(state.taken[place, origin]))
    if state.requests.nak_ns > 0:
        reply = draft(mail, ACCEPTED, -1, state.sizes[ACCEPTED])
        mail.heads[reply].sender = state.group.rank[row]
        mail.heads[reply].sequence = state.taken[place, origin]
        send(mail, reply, origin)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Submit again if nothing was accepted since `tag` was, or handle a timer of `repair`."""
    if timer != SUBMIT_AGAIN:
        ring_repair(state, row, now_ns, mail, timer, tag)
        return
    if state.accepted[row] == state.submitted[row]:
        state.is_submitting[row] = 0
        return
    if state.accepted[row] == tag:
        last = min(state.submitted[row], state.accepted[row] + REPAIR_BURST)
        for own_number in range(state.accepted[row] + 1, last + 1):
            _submit(state, row, mail, np.int64(own_number))
    set_timer(mail, SUBMIT_AGAIN, np.int64(state.accepted[row]), state.requests.nak_ns)


PROTOCOL = Protocol(
    name="sequenced",
    title="Sequencers",
    family="transport",
    paper="guo ch. 7 and §4.2.1",
    summary="senders share sequences; sequencers number and multicast the messages",
    state=SequencedState,
    messages=MESSAGES,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

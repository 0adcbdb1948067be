"""Sender-initiated reliable multicast: acknowledgements, and a timer for each message (guo §2.1.1; Figs 2.1, 2.2).

A sender multicasts a message and starts a timer for it. Every receiver answers each data message with an ACK: the
messages it holds, up to the first gap and as a mask beyond. If the timer expires before every member has acknowledged
the message, the sender multicasts it again (or, as an option, sends it to the members whose ACK is missing) and
restarts the timer. It releases a message that all have acknowledged. Shared parts: `acks`, `window`.

Only the sender repairs: a message that some members still miss when it leaves stays missing there, and never becomes
stable. `resend_ns = 0` is the form for links that lose nothing: ACKs, but no timers.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    PAYLOAD,
    multicast,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocols.transport.acks import (
    Acks,
    acknowledge,
    is_acknowledged,
    new_acks,
    note_ack,
    release_what_all_hold,
)
from cubecast.protocols.transport.repair import RepairParameters
from cubecast.protocols.transport.window import (
    ACK,
    ANNOUNCE,
    MASK_BYTES,
    RESEND,
    Window,
    draft_payload,
    keep,
    learn_released,
    new_window,
    released_of,
    send_next,
)

MESSAGES = (
    message("PAYLOAD", PAYLOAD, released=4, payload=payload()),
    message("ANNOUNCE", ANNOUNCE, last=4, released=4),
    message("ACK", ACK, received=4, beyond=MASK_BYTES),
)


class AckState(NamedTuple):
    """Sender-initiated reliable multicast, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    resend_ns: int
    again_all: int
    window: Window
    acks: Acks


def build(group: GroupState, context: Context, parameters: RepairParameters) -> AckState:
    """Nothing sent, nothing acknowledged."""
    return AckState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        resend_ns=context.repeat_ns,
        again_all=int(parameters.repair == "multicast"),
        window=new_window(group),
        acks=new_acks(group, context.members),
    )


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member, and start its timer."""
    slot = send_next(state, row, mail)
    multicast(mail, slot)
    if state.resend_ns > 0:
        set_timer(mail, RESEND, mail.heads[slot].sequence, state.resend_ns)


@linked
def receive(state, row, now_ns, mail, slot):
    """Acknowledge data; note an ACK for this member's messages."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    if kind == ACK:
        note_ack(state, row, mail, slot)
        return
    if kind == PAYLOAD:
        keep(state, row, mail, sender, mail.heads[slot].sequence)
        acknowledge(state, row, mail, sender)
    learn_released(state, row, mail, sender, released_of(mail, slot))


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Send a message again that not all have acknowledged in time, to all members or to those."""
    me = state.group.rank[row]
    slot = 0
    for rank in range(state.members):
        if (
            rank == me
            or not rank_sets.contains(state.group.members[row], rank)
            or is_acknowledged(state, row, rank, tag)
        ):
            continue
        if slot == 0:
            slot = draft_payload(state, row, mail, me, tag)
            set_timer(mail, RESEND, tag, state.resend_ns)
        if state.again_all == 1:
            multicast(mail, slot)
            return
        send(mail, slot, rank)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for the ACKs of a member that left."""
    release_what_all_hold(state, row, mail)


PROTOCOL = Protocol(
    name="ack",
    title="ACK",
    family="transport",
    paper="guo §2.1.1",
    summary="every member acknowledges every message; the sender repeats unacknowledged ones",
    state=AckState,
    messages=MESSAGES,
    parameters=RepairParameters,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

"""Hybrid reliable multicast: NAKs for repair, ACKs for release (guo §2.1.3).

Receivers request lost messages as in the first receiver-initiated variation (`nak`). In addition, a receiver
acknowledges a whole partition of `ack_every` messages at a time, and the tail when the sender announces it. The sender
releases what every member has acknowledged (`acks`), and announces until all is released.

`nak_ns = 0` is the form for links that lose nothing: there are no announcements, and only the rounds of the stability
protocol release the messages after the last whole partition.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import PAYLOAD
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.parameters import parameter
from cubecast.protocols.transport.acks import (
    Acks,
    acknowledge,
    new_acks,
    note_ack,
    release_what_all_hold,
)
from cubecast.protocols.transport.repair import (
    RepairParameters,
    Requests,
    accept,
    answer,
    new_requests,
    on_timer,
    publish,
)
from cubecast.protocols.transport.window import (
    ACK,
    ANNOUNCE,
    MASK_BYTES,
    NAK,
    Window,
    learn_released,
    misses_any,
    new_window,
    released_of,
)

__all__ = ["PROTOCOL", "HybridParameters", "HybridState", "build", "on_leave", "on_timer", "publish", "receive"]

MESSAGES = (
    message("PAYLOAD", PAYLOAD, released=4, payload=payload()),
    message("NAK", NAK, first=4, asked=4, missing=MASK_BYTES),
    message("ANNOUNCE", ANNOUNCE, last=4, released=4),
    message("ACK", ACK, received=4, beyond=MASK_BYTES),
)


@dataclass(frozen=True, kw_only=True)
class HybridParameters(RepairParameters):
    """Parameters of Hybrid."""

    ack_every: int = parameter(8, "Number of messages that one acknowledgement covers.", at_least=1)


class HybridState(NamedTuple):
    """NAKs and ACKs, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    ack_every: int
    window: Window
    requests: Requests
    acks: Acks


def build(group: GroupState, context: Context, parameters: HybridParameters) -> HybridState:
    """Nothing sent, nothing missing, nothing acknowledged. `repeat_ns = 0`: links lose nothing."""
    return HybridState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        ack_every=parameters.ack_every,
        window=new_window(group),
        requests=new_requests(
            group, nak_ns=context.repeat_ns, wait_ns=context.wait_ns, again_all=parameters.repair == "multicast"
        ),
        acks=new_acks(group, context.members),
    )


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, an announcement, a request for data, or an acknowledgement."""
    kind = mail.heads[slot].kind
    if kind == NAK:
        answer(state, row, mail, slot)
    elif kind == ACK:
        note_ack(state, row, mail, slot)
    else:
        _accept_and_acknowledge(state, row, now_ns, mail, slot)


@linked
def _accept_and_acknowledge(state, row, now_ns, mail, slot):
    sender = mail.heads[slot].sender
    before = np.int64(state.group.received[row, sender])
    accept(state, row, now_ns, mail, slot)
    learn_released(state, row, mail, sender, released_of(mail, slot))
    received = np.int64(state.group.received[row, sender])
    partition_complete = received // state.ack_every > before // state.ack_every
    unreleased = received > state.group.stable[row, sender]
    tail_held = mail.heads[slot].kind == ANNOUNCE and unreleased and not misses_any(state, row, sender)
    if partition_complete or tail_held:
        acknowledge(state, row, mail, sender)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for the ACKs of a member that left."""
    release_what_all_hold(state, row, mail)


PROTOCOL = Protocol(
    name="hybrid",
    title="Hybrid",
    family="transport",
    paper="guo §2.1.3",
    summary="NAKs for repair, ACKs for release",
    state=HybridState,
    messages=MESSAGES,
    parameters=HybridParameters,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

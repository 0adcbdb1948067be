"""Reliable multicast by negative acknowledgement to the sender (guo §2.1.2, the first variation; Fig 2.3).

A sender multicasts its messages. A receiver that notices a gap sends NAK to the sender, which multicasts the message
again (or, as an option, sends it to the asker alone). Asking, announcing and answering: `asking`; the state of the
receive window: `window`.

Departure: a message that was multicast again a moment ago is not multicast again for the next NAK, which was on its way
meanwhile; the paper would answer each.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import PAYLOAD, multicast
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.parameters import parameter
from cubecast.protocols.transport.repair import (
    Asks,
    announce_if_last,
    announce_later,
    answer,
    ask_if_due,
    new_asks,
    settle_debt,
    take_in,
)
from cubecast.protocols.transport.window import (
    ANNOUNCE,
    ANNOUNCE_AGAIN,
    ASK,
    MASK_BYTES,
    NAK,
    Window,
    new_window,
    send_next,
)

MESSAGES = (
    message("PAYLOAD", PAYLOAD, payload=payload()),
    message("NAK", NAK, first=4, asked=4, missing=MASK_BYTES),
    message("ANNOUNCE", ANNOUNCE, last=4),
)


@dataclass(frozen=True, kw_only=True)
class NakParameters:
    """What NAK leaves open."""

    repair: Literal["multicast", "unicast"] = parameter(
        "multicast", "A lost message is multicast again (guo §2.1), or sent to those who miss it."
    )


class NakState(NamedTuple):
    """Receiver-initiated reliable multicast with unicast NAKs, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    window: Window
    asks: Asks


def build(group: GroupState, context: Context, parameters: NakParameters) -> NakState:
    """Nothing sent, nothing missing. `repeat_ns = 0` is the form for links that lose nothing."""
    return NakState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        window=new_window(group),
        asks=new_asks(
            group, nak_ns=context.repeat_ns, wait_ns=context.wait_ns, again_all=parameters.repair == "multicast"
        ),
    )


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member."""
    multicast(mail, send_next(state, row, mail))
    announce_later(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Data, a request for data, or news of how far the sender is."""
    if mail.heads[slot].kind == NAK:
        answer(state, row, mail, slot)
    else:
        take_in(state, row, now_ns, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Ask for what is missing, announce a tail that is not stable, or forget what was repaired."""
    if timer == ASK:
        ask_if_due(state, row, now_ns, mail, tag)
    elif timer == ANNOUNCE_AGAIN:
        announce_if_last(state, row, mail, tag)
    else:
        senders = state.group.received.shape[1]
        settle_debt(state, row, tag % senders, tag // senders)


PROTOCOL = Protocol(
    name="nak",
    title="NAK",
    family="transport",
    paper="guo §2.1.2, first variation",
    summary="a member that misses a message asks its sender for it",
    state=NakState,
    messages=MESSAGES,
    parameters=NakParameters,
    build=build,
    numbers=lambda _context, _parameters: 0,
    auto_from=2,
)

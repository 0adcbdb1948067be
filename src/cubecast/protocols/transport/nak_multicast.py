"""Reliable multicast with multicast NAKs that the sender answers (guo §2.1.2, the second variation; Fig 2.4).

A receiver that misses a message waits a random while and then multicasts its NAK. Whoever misses the same message and
hears that NAK waits for the answer as if it had asked itself. The member that the NAK names (the sender, or others in
turn once it has left) multicasts the message again. Shared parts: `asking`, `window`.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import PAYLOAD, multicast
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.transport.repair import (
    Asks,
    announce_if_last,
    announce_later,
    answer,
    ask_if_due,
    asked_of,
    new_asks,
    settle_debt,
    spare_my_nak,
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


class NakMulticastState(NamedTuple):
    """Receiver-initiated reliable multicast with multicast NAKs, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    window: Window
    asks: Asks


def build(group: GroupState, context: Context, parameters: NoParameters) -> NakMulticastState:
    """Nothing sent, nothing missing. `repeat_ns = 0` is the form for links that lose nothing."""
    return NakMulticastState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        window=new_window(group),
        asks=new_asks(
            group,
            nak_ns=context.repeat_ns,
            wait_ns=context.wait_ns,
            spread_ns=context.repeat_ns // 2,
            by_all=True,
            seed=context.seed,
        ),
    )


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member."""
    multicast(mail, send_next(state, row, mail))
    announce_later(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Data, somebody's request for data, or news of how far the sender is."""
    if mail.heads[slot].kind != NAK:
        take_in(state, row, now_ns, mail, slot)
    elif asked_of(mail, slot) == state.group.rank[row]:
        answer(state, row, mail, slot)
    else:
        spare_my_nak(state, row, now_ns, mail, slot)


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
    name="nak_multicast",
    title="Multicast NAK",
    family="transport",
    paper="guo §2.1.2, second variation",
    summary="NAKs are multicast and speak for others; the sender answers",
    state=NakMulticastState,
    messages=MESSAGES,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

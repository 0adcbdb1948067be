"""Reliable multicast by negative acknowledgement to the sender (guo §2.1.2, the first variation; Fig 2.3).

A sender multicasts its messages. A receiver that notices a gap sends NAK to the sender, which multicasts the message
again (or, as an option, sends it to the asker alone). Asking, announcing and answering: `asking`; the state of the
receive window: `window`.

Departure: a message that was multicast again a moment ago is not multicast again for the next NAK, which was on its way
meanwhile; the paper would answer each.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import Group
from cubecast.protocol.mail import multicast
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
    ANNOUNCE_AGAIN,
    ASK,
    NAK,
    Window,
    new_window,
    send_next,
)


@dataclass(frozen=True, kw_only=True)
class NakParameters:
    """What NAK leaves open."""

    repair: Literal["multicast", "unicast"] = parameter(
        "multicast", "A lost message is multicast again (guo §2.1), or sent to those who miss it."
    )


class NakState(NamedTuple):
    """Receiver-initiated reliable multicast with unicast NAKs, one row per local member."""

    group: Group
    members: int
    payload_bytes: int
    window: Window
    asks: Asks


def new_state(
    group: Group,
    *,
    members: int,
    payload_bytes: int,
    nak_ns: int,
    wait_ns: int = 0,
    again_all: bool = True,
    window: int = 1024,
) -> NakState:
    """Nothing sent, nothing missing. `nak_ns = 0` is the form for links that lose nothing."""
    return NakState(
        group=group,
        members=members,
        payload_bytes=payload_bytes,
        window=new_window(group, window),
        asks=new_asks(group, nak_ns=nak_ns, wait_ns=wait_ns, again_all=again_all, numbers=window),
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
        announce_if_last(state, row, mail, tag, 1)
    else:
        senders = state.group.received.shape[1]
        settle_debt(state, row, tag % senders, tag // senders)


def build(group: Group, context: Context, parameters: NakParameters) -> NakState:
    """Nothing sent."""
    return new_state(
        group,
        members=context.members,
        payload_bytes=context.payload_bytes,
        nak_ns=context.repeat_ns,
        wait_ns=context.wait_ns,
        again_all=parameters.repair == "multicast",
    )


PROTOCOL = Protocol(
    name="nak",
    title="NAK",
    family="transport",
    paper="guo §2.1.2, first variation",
    summary="a member that misses a message asks its sender for it",
    state=NakState,
    parameters=NakParameters,
    build=build,
    numbers=lambda _context, _parameters: 0,
    auto_from=2,
)

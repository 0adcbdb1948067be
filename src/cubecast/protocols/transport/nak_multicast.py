"""Reliable multicast with multicast NAKs that the sender answers (guo §2.1.2, the second variation; Fig 2.4).

A receiver that misses a message waits a random while and then multicasts its NAK. Whoever misses the same message and
hears that NAK waits for the answer as if it had asked itself. The member that the NAK names (the sender, or others in
turn once it has left) multicasts the message again. Shared parts: `asking`, `window`.
"""

from typing import NamedTuple

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import Group
from cubecast.protocol.mail import multicast
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.transport.repair import (
    Asks,
    announce_if_last,
    announce_later,
    answer,
    ask_if_due,
    new_asks,
    settle_debt,
    spare_my_nak,
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


class NakMulticastState(NamedTuple):
    """Receiver-initiated reliable multicast with multicast NAKs, one row per local member."""

    group: Group
    members: int
    payload_bytes: int
    window: Window
    asks: Asks


def new_state(
    group: Group, *, members: int, payload_bytes: int, nak_ns: int, wait_ns: int, seed: int, window: int = 1024
) -> NakMulticastState:
    """Nothing sent, nothing missing. `nak_ns = 0` is the form for links that lose nothing."""
    return NakMulticastState(
        group=group,
        members=members,
        payload_bytes=payload_bytes,
        window=new_window(group, window),
        asks=new_asks(
            group, nak_ns=nak_ns, wait_ns=wait_ns, spread_ns=nak_ns // 2, by_all=True, numbers=window, seed=seed
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
    elif mail.heads[slot].iteration == state.group.rank[row]:
        answer(state, row, mail, slot)
    else:
        spare_my_nak(state, row, now_ns, mail, slot)


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


def build(group: Group, context: Context, parameters: NoParameters) -> NakMulticastState:
    """Nothing sent."""
    return new_state(
        group,
        members=context.members,
        payload_bytes=context.payload_bytes,
        nak_ns=context.repeat_ns,
        wait_ns=context.wait_ns,
        seed=context.seed,
    )


PROTOCOL = Protocol(
    name="nak_multicast",
    title="Multicast NAK",
    family="transport",
    paper="guo §2.1.2, second variation",
    summary="NAKs are multicast and speak for others; the sender answers",
    state=NakMulticastState,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

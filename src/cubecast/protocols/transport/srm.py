"""Scalable Reliable Multicast: multicast NAKs that anyone may answer (guo §2.1.2, the third variation; Fig 2.5).

A receiver that misses a message waits a random while and then multicasts its NAK; others that miss it too wait for the
answer instead of asking. Whoever holds the message waits a random while and then multicasts it again, unless it hears
somebody else do so first. Shared parts: `asking` (`owed` holds the answers that are due), `window`.

Departure: Floyd et al. draw the waits in proportion to the distance of the two members; here everybody draws from the
same span, for members do not measure distances.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import PAYLOAD, multicast
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.transport.repair import (
    REPAIR_BURST,
    Asks,
    announce_if_last,
    announce_later,
    ask_if_due,
    new_asks,
    owe,
    settle_debt,
    spare_my_nak,
    spread,
    take_in,
)
from cubecast.protocols.transport.window import (
    ANNOUNCE,
    ANNOUNCE_AGAIN,
    ASK,
    MASK_BITS,
    MASK_BYTES,
    NAK,
    Window,
    draft_payload,
    holds,
    new_window,
    send_next,
)

MESSAGES = (
    message("PAYLOAD", PAYLOAD, payload=payload()),
    message("NAK", NAK, first=4, asked=4, missing=MASK_BYTES),
    message("ANNOUNCE", ANNOUNCE, last=4),
)


class SrmState(NamedTuple):
    """Scalable Reliable Multicast, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    window: Window
    asks: Asks


def build(group: GroupState, context: Context, parameters: NoParameters) -> SrmState:
    """Nothing sent, nothing missing. `repeat_ns = 0` is the form for links that lose nothing."""
    return SrmState(
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
    kind = mail.heads[slot].kind
    if kind == NAK:
        _on_nak(state, row, now_ns, mail, slot)
        return
    if kind == PAYLOAD:
        settle_debt(state, row, mail.heads[slot].sender, mail.heads[slot].sequence)
    take_in(state, row, now_ns, mail, slot)


@linked
def _on_nak(state, row, now_ns, mail, slot):
    """Answer, after a while, as far as it is held; what is missing here too need not be asked for twice."""
    sender = mail.heads[slot].sender
    first = mail.heads[slot].sequence
    left = REPAIR_BURST
    for k in range(MASK_BITS):
        if left > 0 and rank_sets.contains(mail.bits[slot], k) and holds(state, row, sender, first + k):
            left -= 1
            owe(state, row, mail, sender, first + k, spread(state, row))
    spare_my_nak(state, row, now_ns, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Ask for what is missing, announce a tail that is not stable, or answer if nobody else has."""
    if timer == ASK:
        ask_if_due(state, row, now_ns, mail, tag)
    elif timer == ANNOUNCE_AGAIN:
        announce_if_last(state, row, mail, tag)
    else:
        senders = state.group.received.shape[1]
        sender, sequence = tag % senders, np.int64(tag // senders)
        if settle_debt(state, row, sender, sequence):
            multicast(mail, draft_payload(state, row, mail, sender, sequence))


PROTOCOL = Protocol(
    name="srm",
    title="SRM",
    family="transport",
    paper="guo §2.1.2, third variation",
    summary="NAKs are multicast and speak for others; anyone who can answers",
    state=SrmState,
    messages=MESSAGES,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

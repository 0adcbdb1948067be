"""Scalable Reliable Multicast: multicast NAKs that anyone may answer (guo §2.1.2, the third variation; Fig 2.5).

A receiver that misses a message waits a random time and then multicasts its NAK; others that miss it too wait for the
repair instead of sending their own. A member that holds the message waits a random time and then multicasts it again,
unless another member does so first. Shared parts: `repair` (`repairing` holds the repairs that are due), `window`.

Departure: Floyd et al. draw the waits in proportion to the distance of the two members; here all members draw from the
same range, since they do not measure distances.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import PAYLOAD, multicast
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.transport.repair import (
    NAK_MESSAGES,
    REPAIR_BURST,
    NakFields,
    accept,
    announce_if_last,
    begin_repair,
    end_repair,
    new_nak_fields,
    publish,
    request_if_due,
    spread,
    suppress_nak,
)
from cubecast.protocols.transport.window import ANNOUNCE_AGAIN, MASK_BITS, NAK, REQUEST, draft_payload, holds

__all__ = ["PROTOCOL", "SrmState", "build", "on_timer", "publish", "receive"]


class SrmState(NakFields):
    """Scalable Reliable Multicast, one row per local member."""


def build(group: GroupState, context: Context, parameters: NoParameters) -> SrmState:
    """Nothing sent, nothing missing."""
    return SrmState(*new_nak_fields(group, context, by_all=True))


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, a member's request for data, or an announcement of the sender's last number."""
    kind = mail.heads[slot].kind
    if kind == NAK:
        _on_nak(state, row, now_ns, mail, slot)
        return
    if kind == PAYLOAD:
        end_repair(state, row, mail.heads[slot].sender, mail.heads[slot].sequence)
    accept(state, row, now_ns, mail, slot)


@linked
def _on_nak(state, row, now_ns, mail, slot):
    """Schedule a repair of what this member holds; do not request what it misses too."""
    sender = mail.heads[slot].sender
    first = mail.heads[slot].sequence
    left = REPAIR_BURST
    for k in range(MASK_BITS):
        if left > 0 and rank_sets.contains(mail.bits[slot], k) and holds(state, row, sender, first + k):
            left -= 1
            begin_repair(state, row, mail, sender, first + k, spread(state, row))
    suppress_nak(state, row, now_ns, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Request what is missing, announce a tail that is not stable, or send a repair that no other member sent."""
    if timer == REQUEST:
        request_if_due(state, row, now_ns, mail, tag)
    elif timer == ANNOUNCE_AGAIN:
        announce_if_last(state, row, mail, tag)
    else:
        senders = state.group.received.shape[1]
        sender, sequence = tag % senders, np.int64(tag // senders)
        if end_repair(state, row, sender, sequence):
            multicast(mail, draft_payload(state, row, mail, sender, sequence))


PROTOCOL = Protocol(
    name="srm",
    title="SRM",
    family="transport",
    paper="guo §2.1.2, third variation",
    summary="NAKs are multicast and serve others too; any member that holds the message answers",
    state=SrmState,
    messages=NAK_MESSAGES,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

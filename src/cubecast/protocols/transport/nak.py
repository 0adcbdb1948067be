"""Reliable multicast by negative acknowledgement to the sender (guo §2.1.2, the first variation; Fig 2.3).

A sender multicasts its messages. A receiver that notices a gap sends a NAK to the sender, which multicasts the message
again (or, as an option, sends it to the requester alone). Requests, announcements and repairs: `repair`; the receive
window: `window`.

Departure: a message that was multicast again a moment ago is not multicast again for the next NAK, which was in transit
meanwhile; the paper answers each NAK.
"""

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocols.transport.repair import (
    NAK_MESSAGES,
    NakFields,
    RepairParameters,
    accept,
    answer,
    new_nak_fields,
    on_timer,
    publish,
)
from cubecast.protocols.transport.window import NAK

__all__ = ["PROTOCOL", "NakState", "build", "on_timer", "publish", "receive"]


class NakState(NakFields):
    """Receiver-initiated reliable multicast with unicast NAKs, one row per local member."""


def build(group: GroupState, context: Context, parameters: RepairParameters) -> NakState:
    """Nothing sent, nothing missing."""
    return NakState(*new_nak_fields(group, context, again_all=parameters.repair == "multicast"))


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, a request for data, or an announcement of the sender's last number."""
    if mail.heads[slot].kind == NAK:
        answer(state, row, mail, slot)
    else:
        accept(state, row, now_ns, mail, slot)


PROTOCOL = Protocol(
    name="nak",
    title="NAK",
    family="transport",
    paper="guo §2.1.2, first variation",
    summary="a member that misses a message requests it from its sender",
    state=NakState,
    messages=NAK_MESSAGES,
    parameters=RepairParameters,
    build=build,
    numbers=lambda _context, _parameters: 0,
    auto_from=2,
)

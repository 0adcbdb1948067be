"""Reliable multicast with multicast NAKs that the sender answers (guo §2.1.2, the second variation; Fig 2.4).

A receiver that misses a message waits a random time and then multicasts its NAK. A receiver that misses the same
message and hears that NAK waits for the repair instead of sending its own. The member that the NAK names (the sender,
or others in turn once it has left) multicasts the message again. Shared parts: `repair`, `window`.
"""

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.transport.repair import (
    NAK_MESSAGES,
    NakFields,
    accept,
    answer,
    new_nak_fields,
    on_timer,
    publish,
    responder_of,
    suppress_nak,
)
from cubecast.protocols.transport.window import NAK

__all__ = ["PROTOCOL", "NakMulticastState", "build", "on_timer", "publish", "receive"]


class NakMulticastState(NakFields):
    """Receiver-initiated reliable multicast with multicast NAKs, one row per local member."""


def build(group: GroupState, context: Context, parameters: NoParameters) -> NakMulticastState:
    """Nothing sent, nothing missing."""
    return NakMulticastState(*new_nak_fields(group, context, by_all=True))


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, a member's request for data, or an announcement of the sender's last number."""
    if mail.heads[slot].kind != NAK:
        accept(state, row, now_ns, mail, slot)
    elif responder_of(mail, slot) == state.group.rank[row]:
        answer(state, row, mail, slot)
    else:
        suppress_nak(state, row, now_ns, mail, slot)


PROTOCOL = Protocol(
    name="nak_multicast",
    title="Multicast NAK",
    family="transport",
    paper="guo §2.1.2, second variation",
    summary="NAKs are multicast and serve others too; the sender answers",
    state=NakMulticastState,
    messages=NAK_MESSAGES,
    build=build,
    numbers=lambda _context, _parameters: 0,
)

"""Overlay, broken on purpose in the ways that would be easy to get wrong. The checkers must catch each of them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import deliver, send, set_timer
from cubecast.protocols.catalogue import add_protocol, protocol_named
from cubecast.protocols.causal import overlay, pc_overlay
from cubecast.protocols.causal.overlay import OverlayState
from cubecast.protocols.causal.pc_overlay import PcOverlayState

FORWARD_LATER_NS = 2_000_000
_FIELDS: list[tuple[str, Any]] = list(OverlayState.__annotations__.items())
LateForwardState = NamedTuple("LateForwardState", _FIELDS)  # type: ignore[misc]
EarlyLinkState = NamedTuple("EarlyLinkState", _FIELDS)  # type: ignore[misc]
_PC_FIELDS: list[tuple[str, Any]] = list(PcOverlayState.__annotations__.items())
WithoutPingState = NamedTuple("WithoutPingState", _PC_FIELDS)  # type: ignore[misc]


@linked
def _deliver_now_forward_later(state, row, mail, sender, sequence, source):
    state.group.received[row, sender] = sequence
    state.log[row, state.logged[row] % state.log.shape[1]] = sender << 32 | sequence
    state.logged[row] += 1
    deliver(mail, sender, sequence)
    set_timer(mail, source + 1, sender << 32 | sequence, FORWARD_LATER_NS)


@linked
def late_publish(state, row, now_ns, mail):
    overlay.publish(state, row, now_ns, mail)


@linked
def late_receive(state, row, now_ns, mail, slot):
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if mail.heads[slot].kind == overlay.OPEN:
        overlay.receive(state, row, now_ns, mail, slot)
    elif sequence > state.group.received[row, sender]:
        _deliver_now_forward_later(state, row, mail, sender, sequence, mail.heads[slot].source)


@linked
def late_timer(state, row, now_ns, mail, timer, tag):
    slot = overlay._draft_data(state, mail, tag >> 32, tag & 0xFFFFFFFF)
    for k in range(state.degree[row]):
        if state.neighbours[row, k] != timer - 1:
            send(mail, slot, state.neighbours[row, k] + 0)


@linked
def early_receive(state, row, now_ns, mail, slot):
    source = mail.heads[slot].source
    if mail.heads[slot].kind != overlay.OPEN:
        overlay.receive(state, row, now_ns, mail, slot)
    elif rank_sets.contains(state.group.members[row], source):
        state.neighbours[row, state.degree[row]] = source
        state.degree[row] += 1
        if not rank_sets.contains(state.asked[row], source):
            overlay._ask(state, row, mail, source)


@linked
def _rush(state, row):
    """Use every link at once, without waiting for the pong."""
    for place in range(state.degree[row]):
        state.links[row, place].safe = 1
        state.links[row, place].ready = 1
        state.links[row, place].heard = 1


@linked
def rash_receive(state, row, now_ns, mail, slot):
    pc_overlay.receive(state, row, now_ns, mail, slot)
    _rush(state, row)


@linked
def rash_on_join(state, row, now_ns, mail, rank):
    pc_overlay.on_join(state, row, now_ns, mail, rank)
    _rush(state, row)


@linked
def rash_on_leave(state, row, now_ns, mail, rank):
    pc_overlay.on_leave(state, row, now_ns, mail, rank)
    _rush(state, row)


def _build(kind: type, protocol: str) -> Any:
    """The state of a protocol, as one of another kind."""

    def build(group: GroupState, context: Context, parameters: Any) -> Any:
        return kind(*protocol_named(protocol).build(group, context, parameters))

    return build


def register_broken_overlays() -> None:
    """Add them to the protocols, as ones that promise nothing of delivery, so that every run of theirs ends."""
    true = protocol_named("overlay")
    add_protocol(replace(true, name="overlay_without_fifo", links="lossy"))
    late = SimpleNamespace(publish=late_publish, receive=late_receive, on_timer=late_timer, on_leave=overlay.on_leave)
    add_protocol(
        replace(
            true,
            name="overlay_late_forward",
            links="lossy",
            state=LateForwardState,
            handlers=late,
            build=_build(LateForwardState, "overlay"),
        )
    )
    early = SimpleNamespace(publish=overlay.publish, receive=early_receive, on_leave=overlay.on_leave)
    add_protocol(
        replace(
            true,
            name="overlay_early_link",
            links="lossy",
            state=EarlyLinkState,
            handlers=early,
            build=_build(EarlyLinkState, "overlay"),
        )
    )
    add_protocol(
        replace(protocol_named("overlay_early_link"), name="star_early_link", build=_build(EarlyLinkState, "star"))
    )
    rash = SimpleNamespace(
        start=pc_overlay.start,
        publish=pc_overlay.publish,
        receive=rash_receive,
        on_timer=pc_overlay.on_timer,
        on_join=rash_on_join,
        on_leave=rash_on_leave,
    )
    add_protocol(
        replace(
            protocol_named("pc_overlay"),
            name="pc_overlay_without_ping",
            links="lossy",
            state=WithoutPingState,
            handlers=rash,
            build=_build(WithoutPingState, "pc_overlay"),
        )
    )

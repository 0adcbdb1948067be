"""Late-join handlers: they send a newcomer the messages that all other members have (guo §2.2.1 and §3.2).

A few members, the late-join handlers, keep all messages; the others discard what is stable. A newcomer delivers what is
multicast from now on and, once every member knows of it, asks a handler for the rest: REQUEST with its R. The handler
sends it the messages beyond that, some at a time, and HISTORY with its own R. The newcomer asks again until it holds
everything that a handler held when it was asked; then it counts as a member.

Why this is enough: a result without the newcomer is based on the R of every member at that time, including the
handlers, before all members knew of the newcomer. What a handler holds afterwards includes that result.

| field    | shape | meaning                                                                       |
|----------|-------|-------------------------------------------------------------------------------|
| handlers | –     | how many members (the lowest ranks) keep everything                           |
| catching | rows  | is this member a newcomer that does not hold everything yet? `ASKS`: it asks  |
| attempts | rows  | REQUESTs that were not answered in time; the next goes to the next handler    |
| asked    | rows  | REQUESTs sent: a timer for an earlier one is stale                            |

A newcomer that crashes while it catches up and returns goes on to catch up: it counts no sooner than one that did not
crash, when a handler has answered that it holds everything.

Requests, announcements and repairs of lost messages: `repair`, as in `nak`. A newcomer sends no NAK until it counts,
and only handlers answer for messages that the others have discarded.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import PAYLOAD, act, draft, send, set_timer
from cubecast.protocol.messages import message, message_sizes, per_sender
from cubecast.protocol.parameters import parameter
from cubecast.protocol.transport_abilities import CAUGHT_UP
from cubecast.protocols.transport.repair import (
    NAK_MESSAGES,
    REPAIR_BURST,
    Requests,
    accept,
    answer,
    new_requests,
    publish,
)
from cubecast.protocols.transport.repair import on_timer as ring_repair
from cubecast.protocols.transport.window import (
    HISTORY,
    MASK_BITS,
    NAK,
    REQUEST_AGAIN,
    REQUEST_HISTORY,
    Window,
    draft_payload,
    keep,
    new_window,
)

__all__ = ["PROTOCOL", "LateJoinState", "build", "on_join", "on_timer", "publish", "receive", "start"]

COUNTS, CATCHES, ASKS = range(3)  # values of `catching`
MESSAGES = (
    *NAK_MESSAGES,
    message("REQUEST_HISTORY", REQUEST_HISTORY, received=per_sender(4)),
    message("HISTORY", HISTORY, received=per_sender(4)),
)


@dataclass(frozen=True, kw_only=True)
class LateJoinParameters:
    """Parameters of the late-join handlers."""

    handlers: int = parameter(2, "Members that keep all messages, the lowest ranks (guo §2.2.1).", at_least=1)


class LateJoinState(NamedTuple):
    """Receiver-initiated reliable multicast with late-join handlers, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    window: Window
    requests: Requests
    handlers: int
    catching: np.ndarray
    attempts: np.ndarray
    asked: np.ndarray


def build(group: GroupState, context: Context, parameters: LateJoinParameters) -> LateJoinState:
    """Nothing sent, nothing missing, no newcomer."""
    rows = group.received.shape[0]
    return LateJoinState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        window=new_window(group),
        requests=new_requests(group, nak_ns=context.repeat_ns, wait_ns=context.wait_ns, again_all=False),
        handlers=parameters.handlers,
        catching=np.zeros(rows, np.int8),
        attempts=np.zeros(rows, np.int64),
        asked=np.zeros(rows, np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """A member that begins after the group did is a newcomer."""
    if now_ns > 0:
        state.catching[row] = CATCHES


@linked
def on_join(state, row, now_ns, mail, rank):
    """Called with a newcomer's own rank once every member knows of it: ask for what it lacks."""
    if rank == state.group.rank[row] and state.catching[row] == CATCHES:
        state.catching[row] = ASKS
        _ask(state, row, mail)


@linked
def _ask(state, row, mail):
    """Send R to a handler, and to the next one if no answer comes."""
    handler = _handler(state, row, state.attempts[row] % state.handlers)
    state.asked[row] += 1
    if handler >= 0:
        slot = draft(mail, REQUEST_HISTORY, -1, state.sizes[REQUEST_HISTORY])
        _write_received(state, row, mail, slot)
        send(mail, slot, handler)
    set_timer(mail, REQUEST_AGAIN, np.int64(state.asked[row]), max(state.requests.nak_ns, np.int64(1)))


@linked
def _write_received(state, row, mail, slot):
    for sender in range(state.group.received.shape[1]):
        mail.numbers[slot, sender] = state.group.received[row, sender]


@linked
def _handler(state, row, place):
    """The handler at a place among the other members believed alive; the first if there are fewer."""
    me = state.group.rank[row]
    first = np.int64(-1)
    found = 0
    for rank in range(state.members):
        if rank == me or not rank_sets.contains(state.group.members[row], rank):
            continue
        if first < 0:
            first = np.int64(rank)
        if found == place:
            return np.int64(rank)
        found += 1
    return first


@linked
def _is_handler(state, row):
    """Is this member among the lowest ranks that it believes alive?"""
    lower = 0
    for rank in range(state.group.rank[row]):
        if rank_sets.contains(state.group.members[row], rank):
            lower += 1
    return lower < state.handlers


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, a request for data, an announcement, or a message between newcomer and handler."""
    kind = mail.heads[slot].kind
    if kind == NAK:
        _forget_discarded(state, row, mail, slot)
        answer(state, row, mail, slot)
    elif kind == REQUEST_HISTORY:
        _hand_over(state, row, mail, slot)
    elif kind == HISTORY:
        _on_history(state, row, mail, slot)
    elif state.catching[row] == COUNTS:
        accept(state, row, now_ns, mail, slot)
    elif kind == PAYLOAD:
        keep(state, row, mail, mail.heads[slot].sender, mail.heads[slot].sequence)


@linked
def _forget_discarded(state, row, mail, slot):
    """Remove from a NAK the messages that this member has discarded."""
    if _is_handler(state, row):
        return
    first = mail.heads[slot].sequence
    discarded = state.group.stable[row, mail.heads[slot].sender]
    for k in range(MASK_BITS):
        if first + k <= discarded:
            rank_sets.discard(mail.bits[slot], k)


@linked
def _hand_over(state, row, mail, slot):
    """Send a newcomer the next messages that it lacks, and then R."""
    newcomer = mail.heads[slot].source
    left = REPAIR_BURST
    for sender in range(state.group.received.shape[1]):
        first = np.int64(mail.numbers[slot, sender]) + 1
        last = min(np.int64(state.group.received[row, sender]), first + left - 1)
        for sequence in range(first, last + 1):
            left -= 1
            send(mail, draft_payload(state, row, mail, sender, np.int64(sequence)), newcomer)
    reply = draft(mail, HISTORY, -1, state.sizes[HISTORY])
    _write_received(state, row, mail, reply)
    send(mail, reply, newcomer)


@linked
def _on_history(state, row, mail, slot):
    """If this newcomer holds what the handler held, it counts; otherwise ask for more."""
    if state.catching[row] != ASKS:
        return
    state.attempts[row] = 0
    for sender in range(state.group.received.shape[1]):
        if state.group.received[row, sender] < mail.numbers[slot, sender]:
            _ask(state, row, mail)
            return
    state.catching[row] = COUNTS
    act(mail, CAUGHT_UP, 0, 0, 0, 0, -1)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Ask the next handler, or handle a timer of `repair`."""
    if timer != REQUEST_AGAIN:
        ring_repair(state, row, now_ns, mail, timer, tag)
    elif state.catching[row] == ASKS and tag == state.asked[row]:
        state.attempts[row] += 1
        _ask(state, row, mail)


PROTOCOL = Protocol(
    name="late_join",
    title="NAK, late-join handlers",
    family="transport",
    paper="guo §2.1.2, §2.2.1 and §3.2",
    summary="as nak; newcomers get earlier messages from members that keep all of them",
    state=LateJoinState,
    messages=MESSAGES,
    parameters=LateJoinParameters,
    build=build,
)

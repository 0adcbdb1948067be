"""Timestamp: causal broadcast by vector clocks, every message straight to every member (causal §3.1, Fig 1).

A message goes from its sender to all others in one hop; `protocols.causal.hold_back` makes it wait for its causes.
Links must be reliable; they may reorder and duplicate.

**Crashes** (beyond the paper, in which no member crashes). A sender that crashes during a multicast has reached only
some members. A member that learns of a crash multicasts HAVE, how many messages of each sender have arrived, and from
then on accepts nothing from the crashed member, so only this exchange brings it more messages of that sender. A member
that receives a HAVE with more messages of a crashed sender than it has answers ASK; one that has more itself answers
HAVE_TOO, so that the other can ask. Of two survivors one learns of the crash last; the other, which knows of it
already, receives its HAVE: so each pair compares, and a message that one survivor has reaches all. When a member that
received an ASK crashes, all members multicast HAVE again. So does a member when an answer fills the gap before messages
that arrived earlier, since no HAVE has counted those.

| field     | shape    | meaning                                                                         |
|-----------|----------|---------------------------------------------------------------------------------|
| order     | –        | arrived and waiting messages: `protocols.causal.hold_back`                      |
| requested | rows × m | messages of a crashed sender up to this one were requested since the last crash |

A message of a crashed sender that causally follows one that no survivor has is never delivered: it stays in the buffer.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import LiveData, Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    deliver,
    draft,
    hold_back,
    multicast,
    send,
)
from cubecast.protocol.messages import message, message_sizes, payload, per_member, per_sender
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.causal.hold_back import (
    KNOWN,
    NOTHING_MORE,
    WAITS,
    HoldBack,
    accept,
    draft_have,
    new_hold_back,
    stamp_again,
    stamp_next,
)

DATA, HAVE, HAVE_TOO, ASK = range(4)
MESSAGES = (
    message("DATA", stamp=per_member(4), payload=payload()),
    message("HAVE", have=per_sender(4)),
    message("HAVE_TOO", have=per_sender(4)),
    message("ASK", have=per_sender(4)),
)


class TimestampState(NamedTuple):
    """Vector-clock causal broadcast, one row per local member."""

    group: GroupState
    sizes: np.ndarray
    order: HoldBack
    requested: np.ndarray


def build(group: GroupState, context: Context, parameters: NoParameters) -> TimestampState:
    """Nothing sent; a delivery buffer holds up to `context.room` messages."""
    sizes = message_sizes(MESSAGES, context)
    keeps = not context.is_live
    return TimestampState(
        group=group,
        sizes=sizes,
        order=new_hold_back(group, sizes=sizes, room=context.room, window=context.window, keeps_stamps=keeps),
        requested=np.zeros(group.received.shape, np.int32),
    )


@linked
def publish(state, row, now_ns, mail):
    """Fig 1, lines 9–13."""
    slot = draft(mail, DATA, -1, state.sizes[DATA])
    sequence = stamp_next(state.order, state.group, row, mail, slot)
    deliver(mail, state.group.rank[row], sequence)
    multicast(mail, slot)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle a message, or, after a crash, HAVE, HAVE_TOO or ASK."""
    source = mail.heads[slot].source
    if not rank_sets.contains(state.group.members[row], source):
        return  # this member's HAVE has already stated what it has of the crashed sender
    kind = mail.heads[slot].kind
    if kind == DATA:
        _accept_message(state, row, mail, slot)
    elif kind == ASK:
        _send_again(state, row, mail, slot, source)
    else:
        _compare(state, row, mail, slot, source)


@linked
def _accept_message(state, row, mail, slot):
    status = accept(state.order, state.group, row, mail, slot)
    hold_back(mail, state.order.waiting[row], status == WAITS)
    sender = mail.heads[slot].sender
    closed_a_gap = status != KNOWN and state.order.have[row, sender] > mail.heads[slot].sequence
    if closed_a_gap and not rank_sets.contains(state.group.members[row], sender):
        multicast(mail, draft_have(state.order, row, mail, HAVE))


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Multicast HAVE: some members may lack messages of the crashed sender."""
    for sender in range(state.requested.shape[1]):
        state.requested[row, sender] = 0
    multicast(mail, draft_have(state.order, row, mail, HAVE))


@linked
def _compare(state, row, mail, slot, source):
    """Request the messages of crashed senders that this member lacks; if the other side lacks some, let it ask."""
    lacks = False
    has_more = False
    for sender in range(state.requested.shape[1]):
        if not rank_sets.contains(state.group.members[row], sender):
            lacks = lacks or _is_wanted(state, row, sender, mail.numbers[slot, sender])
            has_more = has_more or state.order.have[row, sender] > mail.numbers[slot, sender]
    if lacks:
        _request(state, row, mail, slot, source)
    if has_more and mail.heads[slot].kind == HAVE:
        send(mail, draft_have(state.order, row, mail, HAVE_TOO), source)


@linked
def _is_wanted(state, row, sender, number):
    return number > state.order.have[row, sender] and number > state.requested[row, sender]


@linked
def _request(state, row, mail, slot, source):
    """ASK(v): send me what you have beyond v."""
    request = draft_have(state.order, row, mail, ASK)
    for sender in range(state.requested.shape[1]):
        number = mail.numbers[slot, sender]
        if not rank_sets.contains(state.group.members[row], sender) and _is_wanted(state, row, sender, number):
            state.requested[row, sender] = number
        else:
            mail.numbers[request, sender] = NOTHING_MORE
    send(mail, request, source)


@linked
def _send_again(state, row, mail, slot, source):
    """Send what the other side lacks.

    It has received every stable message since its request, and stable messages are no longer stored.
    """
    for sender in range(state.requested.shape[1]):
        has = max(np.int64(mail.numbers[slot, sender]), np.int64(state.group.stable[row, sender]))
        for sequence in range(has + 1, np.int64(state.order.have[row, sender]) + 1):
            again = draft(mail, DATA, -1, state.sizes[DATA])
            stamp_again(state.order, mail, again, sender, sequence)
            send(mail, again, source)


def _all_others(state: TimestampState) -> list[int]:
    me = int(state.group.rank[0])
    ranks = range(state.group.received.shape[1])
    return [rank for rank in ranks if rank != me and rank_sets.contains(state.group.members[0], rank)]


PROTOCOL = Protocol(
    name="timestamp",
    title="Timestamp",
    family="causal",
    paper="causal §3.1",
    summary="causal order by a vector clock on every message and a delivery buffer",
    state=TimestampState,
    messages=MESSAGES,
    build=build,
    links="reliable",
    sends_per_member=lambda _members, _parameters: 1.0,
    live=LiveData(linked=_all_others, stamp_numbers=lambda members: members),
    auto_from=2,
    colour="#0072B2",
)

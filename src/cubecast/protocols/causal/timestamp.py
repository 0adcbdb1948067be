"""Timestamp: causal broadcast by vector clocks, every message straight to every member (causal §3.1, Fig 1).

A message goes from its sender to all others in one hop; `protocols.causal.hold_back` makes it wait for its causes.
Links must be reliable; they may reorder and duplicate.

**Crashes** (beyond the paper, in which nobody crashes). A sender that dies in the middle of a multicast has told some
and not others. Whoever is told of a death multicasts HAVE, how much of each sender has arrived, and from then on takes
nothing from the dead, so what it has of the dead grows no more but by this exchange. A member that hears HAVE of more
messages of the dead than it has ASKs the one that told it; one that has more itself answers HAVE_TOO, so that the other
can ask. Of two survivors one is told of the death last, and the other has its HAVE after that: so each pair compares,
and what one survivor has all get. When one that was asked dies, everybody says HAVE again; so does a member in which an
answer closes the gap before messages that had overtaken it, since nobody else counted those.

| field | shape    | meaning                                                                      |
|-------|----------|------------------------------------------------------------------------------|
| order | –        | what arrived, and what waits: `protocols.causal.hold_back`                   |
| asked | rows × m | messages of a dead sender up to this one were asked for since the last death |

A message of a dead sender that happened after one that nobody left has is never delivered: it stays in the buffer.
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
    asked: np.ndarray


def build(group: GroupState, context: Context, parameters: NoParameters) -> TimestampState:
    """Nothing sent; a delivery buffer holds up to `context.room` messages."""
    sizes = message_sizes(MESSAGES, context)
    keeps = not context.is_live
    return TimestampState(
        group=group,
        sizes=sizes,
        order=new_hold_back(group, sizes=sizes, room=context.room, window=context.window, keeps_stamps=keeps),
        asked=np.zeros(group.received.shape, np.int32),
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
    """A message; or, after a death, what another has, or wants to have."""
    source = mail.heads[slot].source
    if not rank_sets.contains(state.group.members[row], source):
        return  # the others were told already what this member has of the dead
    kind = mail.heads[slot].kind
    if kind == DATA:
        _take_in(state, row, mail, slot)
    elif kind == ASK:
        _send_again(state, row, mail, slot, source)
    else:
        _compare(state, row, mail, slot, source)


@linked
def _take_in(state, row, mail, slot):
    status = accept(state.order, state.group, row, mail, slot)
    hold_back(mail, state.order.waiting[row], status == WAITS)
    sender = mail.heads[slot].sender
    closed_a_gap = status != KNOWN and state.order.have[row, sender] > mail.heads[slot].sequence
    if closed_a_gap and not rank_sets.contains(state.group.members[row], sender):
        multicast(mail, draft_have(state.order, row, mail, HAVE))


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Tell everybody what has arrived here: some may lack messages of the dead."""
    for sender in range(state.asked.shape[1]):
        state.asked[row, sender] = 0
    multicast(mail, draft_have(state.order, row, mail, HAVE))


@linked
def _compare(state, row, mail, slot, source):
    """Ask for what the other has more of the dead; if it has less, let it ask."""
    lacks = False
    has_more = False
    for sender in range(state.asked.shape[1]):
        if not rank_sets.contains(state.group.members[row], sender):
            lacks = lacks or _is_wanted(state, row, sender, mail.numbers[slot, sender])
            has_more = has_more or state.order.have[row, sender] > mail.numbers[slot, sender]
    if lacks:
        _ask(state, row, mail, slot, source)
    if has_more and mail.heads[slot].kind == HAVE:
        send(mail, draft_have(state.order, row, mail, HAVE_TOO), source)


@linked
def _is_wanted(state, row, sender, told):
    return told > state.order.have[row, sender] and told > state.asked[row, sender]


@linked
def _ask(state, row, mail, slot, source):
    """ASK(v): send me what you have beyond v."""
    wish = draft_have(state.order, row, mail, ASK)
    for sender in range(state.asked.shape[1]):
        told = mail.numbers[slot, sender]
        if not rank_sets.contains(state.group.members[row], sender) and _is_wanted(state, row, sender, told):
            state.asked[row, sender] = told
        else:
            mail.numbers[wish, sender] = NOTHING_MORE
    send(mail, wish, source)


@linked
def _send_again(state, row, mail, slot, source):
    """What is stable the other has got since it asked, and nobody keeps it any more."""
    for sender in range(state.asked.shape[1]):
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

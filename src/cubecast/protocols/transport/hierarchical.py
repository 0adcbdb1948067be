"""Hierarchical reliable multicast: designated receivers repair and report for their subtree (guo §2.1.4, RMTP).

All members form one tree (breadth first by rank, `degree` children), and each sender is the root for its own messages:
a member's *designated receiver* for a sender is its next live neighbour on the path to that sender; a member that has
members behind it is their designated receiver. Senders multicast to all. While messages of a sender are not released, a
member reports to its designated receiver every `report_ns`: STATUS(what it misses; what it and all members behind it
hold). The designated receiver sends the missing messages that it holds to that member alone, and merges the minimum
into its own report. The sender releases the minimum of the reports it receives, and announces its last number until all
is released. Neither repairs nor acknowledgements implode.

| field     | shape            | meaning                                                                      |
|-----------|------------------|------------------------------------------------------------------------------|
| reporting | rows             | is the report timer running?                                                 |
| turns     | rows             | reports so far, to try others in turn if there is no neighbour on the path   |
| child     | rows × places    | the members whose reports are kept, −1 for an empty place                    |
| claimed   | rows × m × places| the messages that each reported to be held by it and all members behind it   |

Invariant: a claim remains true, because R never decreases. A member that is adopted after a crash is not covered by a
claim until its own report arrives; so the minimum over the *present* children is never premature.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    PAYLOAD,
    draft,
    multicast,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.overlays import paper_tree_degree
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below, new_stream
from cubecast.protocols.transport.window import (
    ANNOUNCE,
    ANNOUNCE_AGAIN,
    MASK_BITS,
    MASK_BYTES,
    REPORT,
    STATUS,
    Window,
    draft_announcement,
    draft_payload,
    holds,
    keep,
    learn_released,
    mark_missing,
    new_window,
    released_of,
    send_next,
)

REPAIR_BURST = 16  # messages that one report may bring back
SPARE_PLACES = 8  # for members adopted when designated receivers crash


REPORT_NS = 20_000_000  # between two reports to a designated receiver, where nothing is lost


MESSAGES = (
    message("PAYLOAD", PAYLOAD, released=4, payload=payload()),
    message("ANNOUNCE", ANNOUNCE, last=4, released=4),
    message("STATUS", STATUS, sender=4, first=4, held_behind=4, missing=MASK_BYTES),
)


@dataclass(frozen=True, kw_only=True)
class HierarchicalParameters:
    """Parameters of the hierarchical transport."""

    tree_degree: int | None = parameter(
        None, "Children of a designated receiver.", at_least=1, otherwise="⌈log2 n⌉; on a wan-tree, the network's"
    )


class HierarchicalState(NamedTuple):
    """Designated receivers, one row per local member."""

    group: GroupState
    members: int
    sizes: np.ndarray
    degree: int
    announce_ns: int
    report_ns: int
    window: Window
    reporting: np.ndarray
    turns: np.ndarray
    child: np.ndarray
    claimed: np.ndarray
    random: np.ndarray


def build(group: GroupState, context: Context, parameters: HierarchicalParameters) -> HierarchicalState:
    """Nothing sent, nothing reported. `repeat_ns = 0` is the form for links that lose nothing."""
    degree = parameters.tree_degree or paper_tree_degree(context.members)
    rows, senders = group.received.shape
    places = min(degree + 1 + SPARE_PLACES, context.members)
    return HierarchicalState(
        group=group,
        members=context.members,
        sizes=message_sizes(MESSAGES, context),
        degree=degree,
        announce_ns=context.repeat_ns,
        report_ns=context.repeat_ns or REPORT_NS,
        window=new_window(group),
        reporting=np.zeros(rows, np.int8),
        turns=np.zeros(rows, np.int64),
        child=np.full((rows, places), -1, np.int64),
        claimed=np.zeros((rows, senders, places), np.int32),
        random=np.stack([new_stream(context.seed, "reports", int(rank)) for rank in group.rank]),
    )


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member."""
    slot = send_next(state, row, mail)
    multicast(mail, slot)
    if state.announce_ns > 0:
        set_timer(mail, ANNOUNCE_AGAIN, mail.heads[slot].sequence, state.announce_ns)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle data, an announcement of the sender, or the report of a member behind this one."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if kind == STATUS:
        _on_status(state, row, mail, slot)
        return
    if kind == PAYLOAD:
        keep(state, row, mail, sender, sequence)
    elif sequence > state.window.highest[row, sender]:
        state.window.highest[row, sender] = sequence
    learn_released(state, row, mail, sender, released_of(mail, slot))
    if state.reporting[row] == 0:
        state.reporting[row] = 1
        set_timer(mail, REPORT, 0, np.int64(below(state.random[row], state.report_ns)))


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Report on messages that are not released, or announce that they exist."""
    if timer == REPORT:
        _report(state, row, mail)
        return
    me = state.group.rank[row]
    if state.group.received[row, me] == tag and state.group.stable[row, me] < tag:
        multicast(mail, draft_announcement(state, row, mail))
        set_timer(mail, ANNOUNCE_AGAIN, tag, state.announce_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for the report of a member that left."""
    _release_if_sender(state, row, mail, state.group.rank[row])


@linked
def _report(state, row, mail):
    """Send one STATUS for each sender with messages that are not released; without any, stop the timer."""
    me = state.group.rank[row]
    state.reporting[row] = 0
    state.turns[row] += 1
    for sender in range(state.group.received.shape[1]):
        if sender == me or state.group.stable[row, sender] >= state.window.highest[row, sender]:
            continue
        state.reporting[row] = 1
        to = _designated(state, row, me, sender)
        if to >= 0:
            _send_status(state, row, mail, sender, to)
    if state.reporting[row] == 1:
        set_timer(mail, REPORT, 0, state.report_ns)


@linked
def _send_status(state, row, mail, sender, to):
    first = np.int64(state.group.received[row, sender]) + 1
    slot = draft(mail, STATUS, -1, state.sizes[STATUS])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = first
    _set_claim(mail, slot, _held_behind(state, row, sender))
    mark_missing(state, row, mail, slot, sender, first)
    send(mail, slot, to)


@linked
def _claim_in(mail, slot):
    """The claim in a STATUS: what its sender and all members behind it hold."""
    return mail.heads[slot].field_1


@linked
def _set_claim(mail, slot, sequence):
    mail.heads[slot].field_1 = sequence


@linked
def _on_status(state, row, mail, slot):
    """Send what that member misses; record what it and all members behind it hold."""
    sender = mail.heads[slot].sender
    first = mail.heads[slot].sequence
    source = mail.heads[slot].source
    left = REPAIR_BURST
    for k in range(MASK_BITS):
        if left > 0 and rank_sets.contains(mail.bits[slot], k) and holds(state, row, sender, first + k):
            left -= 1
            send(mail, draft_payload(state, row, mail, sender, first + k), source)
    place = _place_of(state, row, source)
    if place >= 0 and _claim_in(mail, slot) > state.claimed[row, sender, place]:
        state.claimed[row, sender, place] = _claim_in(mail, slot)
        _release_if_sender(state, row, mail, sender)


@linked
def _release_if_sender(state, row, mail, sender):
    """As the sender, free the messages that all members hold; if these are all, announce it."""
    me = state.group.rank[row]
    if sender != me or sender >= state.group.received.shape[1]:
        return
    held = _held_behind(state, row, sender)
    if held > state.group.stable[row, sender]:
        learn_released(state, row, mail, sender, held)
        if held == state.group.received[row, sender]:
            multicast(mail, draft_announcement(state, row, mail))


@linked
def _place_of(state, row, rank):
    """The place for the reports of this member: its own, or a free one or that of a member that left; or −1."""
    free = -1
    for place in range(state.child.shape[1]):
        child = state.child[row, place]
        if child == rank:
            return place
        if child < 0 or not rank_sets.contains(state.group.members[row], child):
            free = place
    if free >= 0:
        state.child[row, free] = rank
        for sender in range(state.claimed.shape[1]):
            state.claimed[row, sender, free] = 0
    return free


@linked
def _claim_of(state, row, sender, rank):
    """What a member reported that it and all members behind it hold; 0 before its first report."""
    for place in range(state.child.shape[1]):
        if state.child[row, place] == rank:
            return np.int64(state.claimed[row, sender, place])
    return np.int64(0)


@linked
def _held_behind(state, row, sender):
    """What this member and all members behind it, seen from the sender, hold."""
    me = state.group.rank[row]
    towards = _step(state, me, sender)
    held = np.int64(state.group.received[row, sender])
    orphans = False
    for neighbour in range(-1, state.degree):
        rank = (me - 1) // state.degree if neighbour < 0 else me * state.degree + 1 + neighbour
        if (neighbour < 0 and me == 0) or rank >= state.members or rank == towards:
            continue
        if rank_sets.contains(state.group.members[row], rank):
            held = min(held, _claim_of(state, row, sender, rank))
        else:
            orphans = True
    if orphans:
        for rank in range(state.members):
            if rank != me and rank_sets.contains(state.group.members[row], rank):
                if _designated(state, row, rank, sender) == me:
                    held = min(held, _claim_of(state, row, sender, rank))
    return held


@linked
def _designated(state, row, rank, sender):
    """The next live neighbour of `rank` on the path to the sender or, if that has left, to the lowest live rank.

    The lowest rank itself requests from the others in turn: any of them may hold messages of the sender that left.
    """
    members = state.group.members[row]
    goal = sender
    if not rank_sets.contains(members, sender):
        goal = rank_sets.lowest(members)
        if rank == goal:
            return _next_in_turn(state, row, rank)
    while rank != goal:
        rank = _step(state, rank, goal)
        if rank_sets.contains(members, rank):
            return rank
    return np.int64(-1)


@linked
def _step(state, rank, goal):
    """The neighbour of `rank` on the tree path to `goal`; `rank` itself if it is the goal."""
    below_goal = goal
    while below_goal > rank:
        parent = (below_goal - 1) // state.degree
        if parent == rank:
            return below_goal
        below_goal = parent
    return np.int64(rank) if rank == goal else np.int64((rank - 1) // state.degree)


@linked
def _next_in_turn(state, row, rank):
    for step in range(state.members):
        other = (rank + 1 + state.turns[row] + step) % state.members
        if other != rank and rank_sets.contains(state.group.members[row], other):
            return np.int64(other)
    return np.int64(-1)


def _resolve(parameters: HierarchicalParameters, context: Context) -> HierarchicalParameters:
    degree = parameters.tree_degree or context.network.tree_children or paper_tree_degree(context.members)
    return replace(parameters, tree_degree=degree)


PROTOCOL = Protocol(
    name="hierarchical",
    title="Hierarchical",
    family="transport",
    paper="guo §2.1.4",
    summary="designated receivers repair and report for their subtree",
    state=HierarchicalState,
    messages=MESSAGES,
    parameters=HierarchicalParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda _context, _parameters: 0,
)

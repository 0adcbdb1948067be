"""Overlay: causal broadcast by constrained flooding over the hypercube, without any control data (causal §3.2, Fig 2).

A member that receives a message for the first time delivers it and forwards it to every neighbour except the one it
came from. Links are FIFO and reliable, so a message from a neighbour arrives after everything that the neighbour
delivered before: first receipts are in causal order (Theorem 3.1), and no message ever waits.

**More crashes than the cube is connected** (beyond the paper, which tolerates fewer than log2 n). When the neighbour
p = i ⊕ 2^s of member i is reported dead, i looks for the first live rank in i ⊕ 2^s, i ⊕ 2^s ⊕ 1, i ⊕ 2^s ⊕ 2, … below
2^s (the cluster order of VCube: Duarte, Bona and Ruoso 2014) and opens a link to it. The survivors stay connected: take
any subcube with live ranks in both halves, and a live k in the upper one. Its partner in the lower half is a rank that
exists; if it is alive the two are neighbours, and if not, k opened a link into the lower half.

A new link must not let a message overtake its causes, and messages lost with the crashed members' queues must be
recovered. OPEN carries R of the member that opens the link. The other side first sends, in the order of its own
deliveries, everything it delivered beyond that R, and from then on forwards over the link whatever it delivers; it
sends OPEN back in the same way. Every cause of a message on the link is then in R, or before it on the link. A new link
costs one vector, a message none.

**Eager tree.** All this holds for any connected overlay, and a tree needs one copy per delivery where the cube needs
log2 n. `eager_tree` names a spanning tree to flood (`protocols/causal/eager_tree.py`); all other links stay lazy, and
are opened when a crash requires a new parent. The price is latency: a message routed through a crashed member waits
until the crash is reported, whereas the cube delivers it over another path.

| field      | shape        | meaning                                                                            |
|------------|--------------|------------------------------------------------------------------------------------|
| neighbours | rows × links | the members to which this member forwards; the first `degree[row]` are in use      |
| degree     | rows         | how many                                                                           |
| asked      | rows × words | the members asked to forward to this one (the initial neighbours need no message)  |
| log        | rows × room  | deliveries in order, sender << 32 | sequence; a ring buffer of `room` entries      |
| logged     | rows         | deliveries ever logged                                                             |

Invariants: each link i → j carries, in order, everything i delivered except what j reported in OPEN; R of a member is
`group.received`; a message is delivered and forwarded in one step. A log too short for a newcomer ends the run with an
error.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import LiveData, Protocol
from cubecast.protocol.group import GroupState, copy_numbers, raise_numbers
from cubecast.protocol.mail import (
    BUFFER_FULL,
    OVERFLOW,
    deliver,
    draft,
    send,
)
from cubecast.protocol.messages import message, message_sizes, payload, per_sender
from cubecast.protocol.overlays import Overlay, hypercube, hypercube_dimension, of_ranks
from cubecast.protocol.parameters import NoParameters
from cubecast.protocol.traffic import over_links
from cubecast.protocols.causal.eager_tree import BINOMIAL, NO_TREE, STAR, first_live, live_parent, tree_overlay

DATA, OPEN = range(2)
MESSAGES = (message("DATA", payload=payload()), message("OPEN", received=per_sender(4)))
LINKS_MAX = 256  # of one member; a cube has log2 n, and each crash of a neighbour may add one


class OverlayState(NamedTuple):
    """Constrained flooding, one row per local member."""

    group: GroupState
    members: int
    dimension: int
    eager_tree: int
    sizes: np.ndarray
    neighbours: np.ndarray
    degree: np.ndarray
    asked: np.ndarray
    log: np.ndarray
    logged: np.ndarray


def _build(group: GroupState, context: Context, links: Overlay, eager_tree: int) -> OverlayState:
    """Nothing sent; `links` are the first neighbours of all ranks."""
    rows, members = len(group.rank), context.members
    overlay = of_ranks(links, group.rank)
    neighbours = np.full((rows, min(members, LINKS_MAX)), -1, np.int32)
    asked = rank_sets.empty(len(group.rank), context.members)
    degree = np.diff(overlay.offsets).astype(np.int64)
    for row in range(rows):
        first = overlay.neighbours[overlay.offsets[row] : overlay.offsets[row + 1]]
        neighbours[row, : len(first)] = first
        for rank in first:
            asked[row, rank >> 6] |= np.uint64(1) << np.uint64(rank & 63)
    return OverlayState(
        group=group,
        members=members,
        dimension=hypercube_dimension(members),
        eager_tree=eager_tree,
        sizes=message_sizes(MESSAGES, context),
        neighbours=neighbours,
        degree=degree,
        asked=asked,
        log=np.zeros((rows, max(context.room, 1)), np.int64),
        logged=np.zeros(rows, np.int64),
    )


@linked
def publish(state, row, now_ns, mail):
    """Fig 2, lines 9–11."""
    me = state.group.rank[row]
    _deliver_and_forward(state, row, mail, me, np.int64(state.group.received[row, me]) + 1, -1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Fig 2, lines 1–8; or a member opens a new link."""
    source = mail.heads[slot].source
    if mail.heads[slot].kind == OPEN:
        _open_towards(state, row, mail, slot, source)
        return
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if sequence > state.group.received[row, sender]:
        _deliver_and_forward(state, row, mail, sender, sequence, source)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop forwarding to the crashed member; in every dimension without its partner, link to the next live rank."""
    _unlink(state, row, rank)
    me = state.group.rank[row]
    if state.eager_tree != NO_TREE:
        parent = live_parent(state.group.members[row], state.members, me, state.dimension, state.eager_tree)
        if parent >= 0 and not rank_sets.contains(state.asked[row], parent):
            _ask(state, row, mail, parent)
        return
    for place in range(state.dimension):
        partner = me ^ (np.int64(1) << place)
        if partner < state.members and not rank_sets.contains(state.group.members[row], partner):
            stand_in = first_live(state.group.members[row], state.members, partner, place)
            if stand_in >= 0 and not rank_sets.contains(state.asked[row], stand_in):
                _ask(state, row, mail, stand_in)


@linked
def _deliver_and_forward(state, row, mail, sender, sequence, source):
    """Forward before delivering in the outbox: a member that delivers has forwarded (Fig 2 against its text, §3.2)."""
    state.group.received[row, sender] = sequence
    room = state.log.shape[1]
    state.log[row, state.logged[row] % room] = sender << 32 | sequence
    state.logged[row] += 1
    slot = _draft_data(state, mail, sender, sequence)
    for k in range(state.degree[row]):
        if state.neighbours[row, k] != source:
            send(mail, slot, np.int64(state.neighbours[row, k]))
    deliver(mail, sender, sequence)


@linked
def _draft_data(state, mail, sender, sequence):
    slot = draft(mail, DATA, -1, state.sizes[DATA])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    return slot


@linked
def _unlink(state, row, rank):
    """Remove a rank from the neighbours; the order of the others does not matter."""
    for k in range(state.degree[row]):
        if state.neighbours[row, k] == rank:
            state.degree[row] -= 1
            state.neighbours[row, k] = state.neighbours[row, state.degree[row]]
            return


@linked
def _ask(state, row, mail, rank):
    """Send OPEN(R): forward to me what I lack beyond R, and all later messages."""
    rank_sets.add(state.asked[row], rank)
    senders = state.group.received.shape[1]
    slot = draft(mail, OPEN, -1, state.sizes[OPEN])
    copy_numbers(mail.numbers[slot, :senders], state.group.received[row])
    send(mail, slot, rank)


@linked
def _open_towards(state, row, mail, slot, source):
    """Send what the other side lacks, in the order of delivery here, and forward to it from now on."""
    if not rank_sets.contains(state.group.members[row], source):
        return
    if state.degree[row] >= state.neighbours.shape[1]:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return
    _send_log_beyond(state, row, mail, slot, source)
    _unlink(state, row, source)
    state.neighbours[row, state.degree[row]] = source
    state.degree[row] += 1
    if not rank_sets.contains(state.asked[row], source):
        _ask(state, row, mail, source)


@linked
def _send_log_beyond(state, row, mail, slot, source):
    """Send the logged deliveries beyond the numbers of `slot`.

    The other side has received every stable message since its request, and stable messages are no longer stored.
    """
    raise_numbers(mail.numbers[slot, : state.group.stable.shape[1]], state.group.stable[row])
    lacking = np.int64(0)
    for sender in range(state.group.received.shape[1]):
        lacking += max(np.int64(state.group.received[row, sender]) - mail.numbers[slot, sender], 0)
    room = state.log.shape[1]
    for place in range(max(state.logged[row] - room, 0), state.logged[row]):
        if lacking == 0:
            return
        sender = state.log[row, place % room] >> 32
        sequence = state.log[row, place % room] & 0xFFFFFFFF
        if sequence > mail.numbers[slot, sender]:
            send(mail, _draft_data(state, mail, sender, sequence), source)
            lacking -= 1
    if lacking > 0:
        mail.counts[OVERFLOW] = BUFFER_FULL


def build(group: GroupState, context: Context, parameters: NoParameters) -> OverlayState:
    """Nothing sent; messages flood the hypercube."""
    return _build(group, context, hypercube(context.members), NO_TREE)


def _build_tree(group: GroupState, context: Context, parameters: NoParameters) -> OverlayState:
    return _build(group, context, tree_overlay(context.members, BINOMIAL), BINOMIAL)


def _build_star(group: GroupState, context: Context, parameters: NoParameters) -> OverlayState:
    return _build(group, context, tree_overlay(context.members, STAR), STAR)


def _neighbours(state: OverlayState) -> list[int]:
    return list(state.neighbours[0, : int(state.degree[0])].tolist())


PROTOCOLS = (
    Protocol(
        name="overlay",
        title="Overlay",
        family="causal",
        paper="causal §3.2",
        summary="causal order by flooding the hypercube, without control data",
        state=OverlayState,
        messages=MESSAGES,
        build=build,
        links="fifo",
        floods=True,
        sends_per_member=lambda _members, _parameters: 2.0,
        traffic=lambda context, _parameters: over_links(hypercube(context.members)),
        live=LiveData(linked=_neighbours, overlay=hypercube),
        colour="#D55E00",
    ),
    Protocol(
        name="tree",
        title="Overlay tree",
        family="causal",
        paper="causal §3.2 over a spanning tree",
        summary="causal order by flooding a tree of the hypercube, one copy per delivery",
        state=OverlayState,
        messages=MESSAGES,
        build=_build_tree,
        links="fifo",
        sends_per_member=lambda _members, _parameters: 1.0,
        traffic=lambda context, _parameters: over_links(tree_overlay(context.members, BINOMIAL)),
        live=LiveData(linked=_neighbours, overlay=lambda members: tree_overlay(members, BINOMIAL)),
        auto_from=33,  # up to 32 a member can hold a connection to every other, and a stamp is as long as a message
        colour="#009E73",
    ),
    Protocol(
        name="star",
        title="Overlay star",
        family="causal",
        paper="causal §3.2 over a star",
        summary="causal order by one member that forwards everything, two hops and one copy per delivery",
        state=OverlayState,
        messages=MESSAGES,
        build=_build_star,
        links="fifo",
        sends_per_member=lambda _members, _parameters: 1.0,
        traffic=lambda context, _parameters: over_links(tree_overlay(context.members, STAR)),
        live=LiveData(linked=_neighbours, overlay=lambda members: tree_overlay(members, STAR)),
        colour="#CC79A7",
    ),
)

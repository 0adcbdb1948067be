"""Plumtree: epidemic broadcast trees (Leitão, Pereira and Rodrigues 2007; rasm §3.2 compares with it).

A member pushes a message *eagerly* to the peers in its tree and announces it *lazily* (IHAVE) to its other neighbours.
It answers a duplicate with PRUNE, which makes the link lazy: the link that delivered first stays, so the tree follows
the lowest latency. A member that does not receive an announced message in time sends GRAFT to one of the members that
announced it; that member sends the message and puts the link back into the tree. There is one tree per sender.

| field     | shape         | meaning                                                                             |
|-----------|---------------|-------------------------------------------------------------------------------------|
| peers     | –             | neighbours, trees and messages seen: `protocols.broadcast.peers`                    |
| carried   | –             | numbers that a message carries unchanged from hop to hop                            |
| graft_ns  | 1             | how long to wait for an announced message; half of it between two GRAFTs            |
| announced | links × m × W | the message announced over this link and not requested yet, at sequence mod W       |
| requested | rows × m × W  | the message for which a GRAFT timer runs                                            |

Departures: announcements are sent at once, not batched; of several members that announced a message, the one on the
first link gets the first GRAFT; the optional optimisation of the tree by hop counts is left out.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import (
    draft,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, payload
from cubecast.protocol.overlays import Overlay
from cubecast.protocols.broadcast.peers import (
    AGAIN,
    NEW,
    WINDOW,
    MulticastTreeParameters,
    Peers,
    is_reliable,
    is_wanted,
    link_to,
    network_links,
    new_peers,
    note_seen,
    send_counted,
    set_eager,
    set_provider,
    share_out,
    take,
    takes_over,
    want,
    window_of,
)

GOSSIP, PRUNE, IHAVE, GRAFT = range(4)
KINDS = 4
MESSAGES = (
    message("GOSSIP", payload=payload()),
    message("PRUNE", sequence=4),
    message("IHAVE", sequence=4),
    message("GRAFT", sequence=4),
)

GRAFT_NS = 10_000_000  # ten rounds of 1 ms, longer than any path in the trees of the rasm study, except the ring's


class PlumtreeState(NamedTuple):
    """Plumtree, one row per local member."""

    group: GroupState
    sizes: np.ndarray
    carried: int
    graft_ns: int
    peers: Peers
    announced: np.ndarray
    requested: np.ndarray


def new_state(
    group: GroupState,
    overlay: Overlay,
    failure: np.ndarray,
    *,
    sizes: np.ndarray,
    quota: bool,
    graft_ns: int,
    carried: int = 0,
    window: int = WINDOW,
) -> PlumtreeState:
    """No tree yet: the first message floods. With `graft_ns` = 0 links lose nothing, and nothing is announced."""
    rows, senders = group.received.shape
    announced = window if graft_ns > 0 else 1
    return PlumtreeState(
        group=group,
        sizes=sizes,
        carried=carried,
        graft_ns=graft_ns,
        peers=new_peers(group, overlay, failure, quota=quota, kinds=KINDS, window=window, reliable=graft_ns == 0),
        announced=np.zeros((len(overlay.neighbours), senders, announced), np.int32),
        requested=np.zeros((rows, senders, announced), np.int32),
    )


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member."""
    me = state.group.rank[row]
    slot = _draft(state, mail, GOSSIP, me, np.int64(state.group.received[row, me]) + 1)
    take(state, row, mail, slot)
    push_own(state, row, mail, slot)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle a message, new or duplicate, or a control message about one."""
    if mail.heads[slot].kind != GOSSIP:
        receive_control(state, row, now_ns, mail, slot)
        return
    status = note_seen(state.peers, row, mail.heads[slot].sender, mail.heads[slot].sequence)
    if status == NEW:
        take(state, row, mail, slot)
        push_on(state, row, now_ns, mail, slot)
    else:
        refuse(state, row, now_ns, mail, slot, status)


@linked
def push_own(state, row, mail, slot):
    """Push a new message of this member from its draft."""
    note_seen(state.peers, row, mail.heads[slot].sender, mail.heads[slot].sequence)
    _push(state, row, mail, slot, np.int64(-1))


@linked
def push_on(state, row, now_ns, mail, slot):
    """Forward a message that is new here: the link it came over joins the tree."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    if is_wanted(state.peers, row, sender, source):
        set_provider(state.peers, row, sender, source, now_ns)
    if not is_reliable(state.peers):
        set_eager(state.peers, row, sender, source, 1, now_ns)
    pushed = _draft(state, mail, GOSSIP, sender, mail.heads[slot].sequence)
    copy_numbers(mail.numbers[pushed, : state.carried], mail.numbers[slot])
    _push(state, row, mail, pushed, source)


@linked
def refuse(state, row, now_ns, mail, slot, status):
    """Handle a duplicate: its sender leaves the tree, unless it is the provider."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    known = status == AGAIN or is_reliable(state.peers)
    if known and state.peers.provider[row, sender] == source:
        return  # a further copy of the quota, over the same link
    if takes_over(state, row, sender, source, now_ns):
        return
    if not is_reliable(state.peers):
        set_eager(state.peers, row, sender, source, 0, now_ns)
    if is_wanted(state.peers, row, sender, source):
        want(state.peers, link_to(state.peers, row, source), sender, 0)
        _send_about(state, mail, PRUNE, sender, np.int64(0), source)


@linked
def receive_control(state, row, now_ns, mail, slot):
    """Handle PRUNE, IHAVE or GRAFT."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    sequence = mail.heads[slot].sequence
    if kind == PRUNE:
        set_eager(state.peers, row, sender, source, 0, now_ns)
    elif kind == IHAVE:
        _note_announced(state, row, mail, sender, sequence, source)
    elif kind == GRAFT:
        set_eager(state.peers, row, sender, source, 1, now_ns)
        if state.peers.seen[row, sender, sequence % state.peers.seen.shape[2]] == sequence:
            _send_about(state, mail, GOSSIP, sender, sequence, source)


@linked
def put_path(state, row, mail, slot, link):
    """Does nothing: a message carries no data about its path."""


@linked
def forget_link(state, link):
    """Clear the announcements of a removed link: they do not apply to the next link in its place."""
    for sender in range(state.announced.shape[1]):
        for place in range(state.announced.shape[2]):
            state.announced[link, sender, place] = 0


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """The message tagged sender << 32 | sequence is overdue: request it from the next member that announced it."""
    sender = tag >> 32
    sequence = tag & 0xFFFFFFFF
    place = sequence % state.requested.shape[2]
    if state.requested[row, sender, place] != sequence:
        return
    state.requested[row, sender, place] = 0
    if state.peers.seen[row, sender, place] >= sequence:
        return
    for link in range(state.peers.offsets[row], state.peers.offsets[row + 1]):
        if state.announced[link, sender, place] == sequence:
            state.announced[link, sender, place] = 0
            rank = np.int64(state.peers.neighbours[link])
            set_eager(state.peers, row, sender, rank, 1, now_ns)
            _send_about(state, mail, GRAFT, sender, sequence, rank)
            state.requested[row, sender, place] = sequence
            set_timer(mail, 0, tag, state.graft_ns // 2)
            return


@linked
def _note_announced(state, row, mail, sender, sequence, source):
    place = sequence % state.requested.shape[2]
    if state.peers.seen[row, sender, place] >= sequence:
        return
    link = link_to(state.peers, row, source)
    if link >= 0:
        state.announced[link, sender, place] = sequence
    if state.requested[row, sender, place] < sequence:
        state.requested[row, sender, place] = sequence
        set_timer(mail, 0, sender << 32 | sequence, state.graft_ns)


@linked
def _push(state, row, mail, pushed, source):
    """Push a draft eagerly, announce it lazily."""
    peers = state.peers
    sender = mail.heads[pushed].sender
    share_out(peers, row, sender, source)
    announced = _draft(state, mail, IHAVE, sender, mail.heads[pushed].sequence)
    count = 0
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        rank = np.int64(peers.neighbours[link])
        if rank == source:
            continue
        if peers.eager[link, sender] != 0:
            for _ in range(peers.scratch[count]):
                send_counted(peers, mail, pushed, rank, GOSSIP)
            count += 1
        elif state.graft_ns > 0:
            send_counted(peers, mail, announced, rank, IHAVE)


@linked
def _draft(state, mail, kind, sender, sequence):
    slot = draft(mail, kind, -1, state.sizes[kind])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    return slot


@linked
def _send_about(state, mail, kind, sender, sequence, rank):
    send_counted(state.peers, mail, _draft(state, mail, kind, sender, sequence), rank, kind)


def build(group: GroupState, context: Context, parameters: MulticastTreeParameters) -> PlumtreeState:
    """No tree yet."""
    return new_state(
        group,
        *network_links(context),
        sizes=message_sizes(MESSAGES, context),
        quota=parameters.quota,
        graft_ns=context.repeat_ns or GRAFT_NS,
        window=window_of(context),
    )


PROTOCOL = Protocol(
    name="plumtree",
    title="Plumtree",
    family="broadcast",
    paper="rasm §3.2",
    summary="a tree of the fastest paths by eager push and PRUNE, repaired by IHAVE and GRAFT",
    state=PlumtreeState,
    messages=MESSAGES,
    parameters=MulticastTreeParameters,
    build=build,
    sends_per_member=lambda _members, _parameters: 1.0,
    colour="#0072B2",
)

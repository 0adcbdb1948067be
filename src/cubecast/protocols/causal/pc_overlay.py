"""Overlay on a changing overlay: causal flooding while members join and leave (causal §7's open problem).

Causal flooding over links that are opened and closed as the group changes (`pc_links`): there is no flush, no member
stops sending, and no message carries data that grows with the group.

**Joining**: the newcomer sends HELLO to a member. The answer, WELCOME, carries R of that host; the newcomer starts from
it, and the link between the two is safe both ways at once, as neither has delivered anything that the other lacks. The
newcomer then announces itself by flooding a ping for itself, and pings open the other links. If the membership service
reports that the host has left, or the host has not joined itself yet, the newcomer tries other members, one at a time.

**Leaving**: a leaving member stops multicasting, and otherwise behaves like any other. Its neighbours open the links
that replace it. A neighbour sends CAN_GO once all its links to members that stay are safe both ways. When the member
has CAN_GO from all its neighbours, it sends GONE, the last message over each of its links, and has left. So no member
ever loses its last safe link into a half of a subcube, and by the argument of `overlay` the safe links connect all
members at every moment; removing a link does not affect order. A newcomer sends CAN_GO to its host only when it has
links of its own.

| field   | shape           | meaning                                                                               |
|---------|-----------------|---------------------------------------------------------------------------------------|
| links   | rows × degree   | one record per link: peer, state of each direction, ping, where its buffer begins     |
| degree  | rows            | links of this member                                                                  |
| pinged  | rows            | pings this member has flooded                                                         |
| pings   | rows × n        | the newest ping of each member that was seen                                          |
| log     | rows × room × 2 | what was flooded, in order: (sender, sequence), or (−1 − origin, ping << 32 | target) |
| logged  | rows            | entries ever logged                                                                   |
| joined  | rows            | does this member take part?                                                           |
| present | rows × words    | the members known to take part                                                        |
| going   | rows × words    | the members known to leave                                                            |
| leaving | rows            | is this member leaving?                                                               |
| unsent  | rows            | messages its application sent before it had joined                                    |
| host    | rows            | the member a newcomer sent HELLO to; −1 = none                                        |

Invariants: a safe link i → j carries, in order, everything that i flooded since the link was opened, and j has all that
i flooded before. The log is the buffer of all opening links at once; when it is too short the run ends with an error.
Crashes are not repaired here: use `overlay` for those.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import (
    adopt,
    deliver,
    depart,
    draft,
    send,
)
from cubecast.protocol.messages import member_set, message, message_sizes, payload, per_sender
from cubecast.protocol.overlays import hypercube, hypercube_dimension
from cubecast.protocol.parameters import NoParameters
from cubecast.protocol.traffic import over_links
from cubecast.protocols.causal.pc_links import (
    LINK,
    LINKS_MAX,
    PING,
    PONG,
    READY,
    add_link,
    announce,
    drop_link,
    find_link,
    first_peers,
    flood,
    make_safe,
    open_wanted,
    pass_ping,
    send_control,
    target_of,
)

CAN_GO, GONE, HELLO, NOT_YET, WELCOME = range(4, 9)
MESSAGES = (
    message("DATA", payload=payload()),
    message("PING", number=4, target=4),
    *(message(name, number=4) for name in ("PONG", "READY", "CAN_GO", "GONE", "HELLO", "NOT_YET")),
    message("WELCOME", received=per_sender(4), present=member_set()),
)


class PcOverlayState(NamedTuple):
    """PC-broadcast, one row per local member."""

    group: GroupState
    members: int
    dimension: int
    sizes: np.ndarray
    links: np.recarray
    degree: np.ndarray
    pinged: np.ndarray
    pings: np.ndarray
    log: np.ndarray
    logged: np.ndarray
    joined: np.ndarray
    leaving: np.ndarray
    unsent: np.ndarray
    present: np.ndarray
    going: np.ndarray
    host: np.ndarray


def build(group: GroupState, context: Context, parameters: NoParameters) -> PcOverlayState:
    """Link the members that each row sees in the group; a row that is not among them has yet to join."""
    rows, members = len(group.rank), context.members
    # Pings are logged too: one per link that is opened, and a join or leave opens few.
    room = context.room + min(512 * members, 1 << 14)
    state = PcOverlayState(
        group=group,
        members=members,
        dimension=hypercube_dimension(members),
        sizes=message_sizes(MESSAGES, context),
        links=np.zeros((rows, min(members, LINKS_MAX)), LINK).view(np.recarray),
        degree=np.zeros(rows, np.int64),
        pinged=np.zeros(rows, np.int64),
        pings=np.zeros((rows, members), np.int32),
        log=np.zeros((rows, room, 2), np.int64),
        logged=np.zeros(rows, np.int64),
        joined=np.zeros(rows, np.int8),
        leaving=np.zeros(rows, np.int8),
        unsent=np.zeros(rows, np.int64),
        present=np.array(group.members),
        going=rank_sets.empty(len(group.rank), context.members),
        host=np.full(rows, -1, np.int64),
    )
    for row in range(rows):
        rank = int(group.rank[row])
        present = {other for other in range(members) if rank_sets.contains(group.members[row], other)}
        state.joined[row] = rank in present
        if rank in present:
            peers = first_peers(present, state.dimension)[rank]
            for place, peer in enumerate(sorted(peers)):
                state.links[row, place] = (peer, 1, 1, 1, 0, 0, 0, 0)
            state.degree[row] = len(peers)
    return state


@linked
def start(state, row, now_ns, mail):
    """A newcomer asks to join."""
    if state.joined[row] == 0:
        _ask_next(state, row, mail)


@linked
def publish(state, row, now_ns, mail):
    """Multicast the next message of this member, once it has joined and unless it is leaving."""
    if state.joined[row] == 0:
        state.unsent[row] += 1
    elif state.leaving[row] == 0:
        _publish(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle the messages of a join; all others come over a link."""
    kind = mail.heads[slot].kind
    source = mail.heads[slot].source
    if kind == HELLO:
        _welcome(state, row, mail, source)
    elif kind == NOT_YET:
        if state.host[row] == source:  # otherwise the host was reported to have left, and another was asked
            _ask_next(state, row, mail)
    elif kind == WELCOME:
        _enter(state, row, mail, slot, source)
    elif kind == GONE:
        rank_sets.discard(state.present[row], source)
        drop_link(state, row, source)
    else:
        place = find_link(state, row, source)
        if place >= 0:
            _receive_over(state, row, mail, slot, place)
    _let_members_leave(state, row, mail)


@linked
def _receive_over(state, row, mail, slot, place):
    """Handle a message from a link; accept floods only after a ping of the other side was answered."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    link = state.links[row, place]
    if kind == PONG:
        make_safe(state, row, mail, place, sequence)
    elif kind == READY:
        link.ready = 1
    elif kind == CAN_GO:
        link.approved = 1
    elif link.heard == 0:
        return
    elif kind == PING:
        pass_ping(state, row, mail, sender, sequence, target_of(mail, slot), link.peer)
    elif sequence > state.group.received[row, sender]:
        _deliver(state, row, mail, sender, sequence, link.peer)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Member `tag` has left for good. If it never learned of a link to it, no GONE will arrive over that link."""
    if state.joined[row] == 0:
        if state.host[row] == tag:
            _ask_next(state, row, mail)
        return
    rank_sets.discard(state.present[row], tag)
    place = find_link(state, row, tag)
    if place >= 0 and state.links[row, place].safe == 0 and state.links[row, place].heard == 0:
        drop_link(state, row, tag)
    open_wanted(state, row, mail)
    _let_members_leave(state, row, mail)


@linked
def on_join(state, row, now_ns, mail, rank):
    """Link to a newcomer that is nearer than the present neighbour of its dimension."""
    open_wanted(state, row, mail)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Replace a neighbour that leaves; if this member is asked to leave, leave."""
    rank_sets.add(state.going[row], rank)
    if rank == state.group.rank[row]:
        state.leaving[row] = 1
    open_wanted(state, row, mail)
    _let_members_leave(state, row, mail)


@linked
def _publish(state, row, mail):
    me = state.group.rank[row]
    _deliver(state, row, mail, me, np.int64(state.group.received[row, me]) + 1, np.int64(-1))


@linked
def _deliver(state, row, mail, sender, sequence, source):
    state.group.received[row, sender] = sequence
    flood(state, row, mail, sender, sequence, source)
    deliver(mail, sender, sequence)


@linked
def _let_members_leave(state, row, mail):
    """Send CAN_GO to the leaving neighbours that may go; leave once all neighbours have sent it."""
    if state.joined[row] == 0:
        return
    if _is_covered(state, row):
        for place in range(state.degree[row]):
            link = state.links[row, place]
            # Until a ping or a pong of the peer arrives, the peer may not know of the link, and would miss CAN_GO.
            if link.released == 0 and link.safe + link.heard > 0 and rank_sets.contains(state.going[row], link.peer):
                link.released = 1
                send_control(state, mail, CAN_GO, 0, link.peer)
    if state.leaving[row] == 1 and _is_released(state, row):
        for place in range(state.degree[row]):
            send_control(state, mail, GONE, 0, state.links[row, place].peer)
        state.degree[row] = 0
        state.joined[row] = 0
        depart(mail)


@linked
def _is_covered(state, row):
    """Are all links to members that stay safe both ways? (All wanted links exist; some may be new.)"""
    for place in range(state.degree[row]):
        link = state.links[row, place]
        if not rank_sets.contains(state.going[row], link.peer) and (link.safe == 0 or link.ready == 0):
            return False
    return True


@linked
def _is_released(state, row):
    for place in range(state.degree[row]):
        if state.links[row, place].approved == 0:
            return False
    return True


@linked
def _ask_next(state, row, mail):
    """Send HELLO to the next member in turn."""
    me = state.group.rank[row]
    last = state.host[row] if state.host[row] >= 0 else me
    for step in range(1, state.members + 1):
        rank = (last + step) % state.members
        if rank != me and rank_sets.contains(state.group.members[row], rank):
            state.host[row] = rank
            send_control(state, mail, HELLO, 0, rank)
            return


@linked
def _welcome(state, row, mail, source):
    """Admit a newcomer: it starts from R of this member, so both have delivered the same messages."""
    if state.joined[row] == 0:
        send_control(state, mail, NOT_YET, 0, source)
        return
    senders = state.group.received.shape[1]
    slot = draft(mail, WELCOME, -1, state.sizes[WELCOME])
    copy_numbers(mail.numbers[slot, :senders], state.group.received[row])
    rank_sets.copy(mail.bits[slot], state.present[row])
    send(mail, slot, source)
    add_link(state, row, mail, source, 1)


@linked
def _enter(state, row, mail, slot, source):
    """As a newcomer, take over R of the host, announce this member, and send the messages that had to wait."""
    state.joined[row] = 1
    copy_numbers(state.group.received[row], mail.numbers[slot])
    for sender in range(state.group.received.shape[1]):
        if state.group.received[row, sender] > 0:
            adopt(mail, sender, np.int64(state.group.received[row, sender]), source)
    rank_sets.copy(state.present[row], mail.bits[slot])
    rank_sets.add(state.present[row], state.group.rank[row])
    add_link(state, row, mail, source, 1)
    announce(state, row, mail)
    for _ in range(state.unsent[row]):
        _publish(state, row, mail)
    state.unsent[row] = 0
    open_wanted(state, row, mail)


PROTOCOL = Protocol(
    name="pc_overlay",
    title="PC-Overlay",
    family="causal",
    paper="causal §7; Nédelec, Molli and Mostéfaoui 2018",
    summary="causal order by flooding an overlay that changes as members join and leave",
    state=PcOverlayState,
    messages=MESSAGES,
    build=build,
    links="fifo",
    admits_joins=True,
    floods=True,
    sends_per_member=lambda _members, _parameters: 1.0,
    traffic=lambda context, _parameters: over_links(hypercube(context.members)),
    colour="#8C8C8C",
)

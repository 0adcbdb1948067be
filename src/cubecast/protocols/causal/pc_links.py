"""Links of a changing overlay that never let a message overtake its causes.

PC-broadcast (Nédelec, Molli and Mostéfaoui 2018): flooding over FIFO links keeps causal order as long as links never
change. A *new* link is the only danger: a message may travel over it ahead of causes that are still in transit over the
old links. So a link i → j is not used at once. Member i floods a *ping* for j over its old links; j answers it directly
with a *pong*. Whatever i delivered before the ping reaches j before the ping does; what i delivers after the ping is
buffered and sent over the new link first. Then the link is *safe*.

**Which members to link to**: in every dimension s the first member of i ⊕ 2^s, i ⊕ 2^s ⊕ 1, … (VCube order, as in
`overlay`) among those known to take part. A link is opened in both directions. The membership service reports joins
and leaves to each member at a different time.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.mail import (
    BUFFER_FULL,
    OVERFLOW,
    draft,
    send,
)

DATA, PING, PONG, READY = range(4)
# safe: may this member use the link? ready: has the peer declared the other direction safe?
# heard: was a ping of the peer answered, so that messages over the link are in order? released: was CAN_GO sent to
# the peer? approved: did the peer send CAN_GO?
_FIELDS = ("peer", "safe", "ready", "heard", "released", "approved", "ping", "begin")
LINK = np.dtype([(name, np.int64) for name in _FIELDS])
LINKS_MAX = 256


def first_peers(present: set[int], dimension: int) -> dict[int, set[int]]:
    """The links between the initial members: each member and the nearest one of every dimension, both ways."""
    peers: dict[int, set[int]] = {rank: set() for rank in present}
    for rank in present:
        for place in range(dimension):
            half = (rank ^ 1 << place ^ step for step in range(1 << place))
            stand_in = next((other for other in half if other in present), None)
            if stand_in is not None:
                peers[rank].add(stand_in)
                peers[stand_in].add(rank)
    return peers


@linked
def find_link(state, row, rank):
    """The place of the link to `rank`, or −1."""
    for place in range(state.degree[row]):
        if state.links[row, place].peer == rank:
            return np.int64(place)
    return np.int64(-1)


@linked
def add_link(state, row, mail, rank, safe):
    """Add a link to `rank`, safe in both directions or in neither; return its place."""
    place = state.degree[row]
    if place >= state.links.shape[1]:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return np.int64(0)
    state.degree[row] = place + 1
    state.links[row, place].peer = rank
    state.links[row, place].safe = safe
    state.links[row, place].ready = safe
    state.links[row, place].heard = safe
    state.links[row, place].released = 0
    state.links[row, place].approved = 0
    return place


@linked
def drop_link(state, row, rank):
    place = find_link(state, row, rank)
    if place >= 0:
        state.degree[row] -= 1
        state.links[row, place] = state.links[row, state.degree[row]]


@linked
def open_wanted(state, row, mail):
    """Link to the first member of every dimension."""
    if state.joined[row] == 0:
        return
    for dimension in range(state.dimension):
        rank = _first_member(state, row, dimension)
        if rank >= 0 and find_link(state, row, rank) < 0:
            _open(state, row, mail, rank)


@linked
def _first_member(state, row, dimension):
    partner = state.group.rank[row] ^ (np.int64(1) << dimension)
    for step in range(np.int64(1) << dimension):
        rank = partner ^ step
        if rank < state.members and rank_sets.contains(state.group.members[row], rank):
            if rank_sets.contains(state.present[row], rank):
                return rank
    return np.int64(-1)


@linked
def _open(state, row, mail, rank):
    _ping(state, row, mail, add_link(state, row, mail, rank, 0))


@linked
def _ping(state, row, mail, place):
    """Flood a ping for the peer over the safe links; later floods are buffered for it."""
    me = state.group.rank[row]
    number = state.pinged[row] + 1
    state.pinged[row] = number
    state.pings[row, me] = number
    flood(state, row, mail, -1 - me, number << 32 | state.links[row, place].peer, np.int64(-1))
    state.links[row, place].ping = number
    state.links[row, place].begin = state.logged[row]


@linked
def announce(state, row, mail):
    """Flood a ping for this member itself, so that all others learn that it takes part."""
    me = state.group.rank[row]
    state.pinged[row] += 1
    state.pings[row, me] = state.pinged[row]
    flood(state, row, mail, -1 - me, state.pinged[row] << 32 | me, np.int64(-1))


@linked
def flood(state, row, mail, a, b, source):
    """Log an entry for the links that are being opened, and send it over the safe links."""
    room = state.log.shape[1]
    state.log[row, state.logged[row] % room, 0] = a
    state.log[row, state.logged[row] % room, 1] = b
    state.logged[row] += 1
    slot = _draft_logged(state, mail, a, b)
    for place in range(state.degree[row]):
        if state.links[row, place].safe == 1 and state.links[row, place].peer != source:
            send(mail, slot, state.links[row, place].peer)


@linked
def _draft_logged(state, mail, a, b):
    if a >= 0:
        slot = draft(mail, DATA, -1, state.sizes[DATA])
        mail.heads[slot].sender = a
        mail.heads[slot].sequence = b
    else:
        slot = draft(mail, PING, -1, state.sizes[PING])
        mail.heads[slot].sender = -1 - a
        mail.heads[slot].sequence = b >> 32
        _set_target(mail, slot, b & 0xFFFFFFFF)
    return slot


@linked
def target_of(mail, slot):
    """The member that a ping is for."""
    return mail.heads[slot].field_1


@linked
def _set_target(mail, slot, rank):
    mail.heads[slot].field_1 = rank


@linked
def pass_ping(state, row, mail, origin, number, target, source):
    """Answer a ping for this member, and open the other direction; forward any other ping once."""
    if number <= state.pings[row, origin]:
        return
    state.pings[row, origin] = number
    if target != state.group.rank[row]:
        flood(state, row, mail, -1 - origin, number << 32 | target, source)
        if target == origin:
            rank_sets.add(state.present[row], origin)
            open_wanted(state, row, mail)
        return
    if not rank_sets.contains(state.present[row], origin):
        return  # it has left: its ping arrived after its GONE
    place = find_link(state, row, origin)
    if place < 0:
        _open(state, row, mail, origin)
        place = state.degree[row] - 1
    state.links[row, place].heard = 1
    send_control(state, mail, PONG, number, origin)


@linked
def make_safe(state, row, mail, place, number):
    """The ping has arrived: send the buffered entries, and use the link from now on."""
    if state.links[row, place].safe == 1 or state.links[row, place].ping != number:
        return
    room = state.log.shape[1]
    begin = state.links[row, place].begin
    if state.logged[row] - begin > room:
        mail.counts[OVERFLOW] = BUFFER_FULL
        return
    for entry in range(begin, state.logged[row]):
        slot = _draft_logged(state, mail, state.log[row, entry % room, 0], state.log[row, entry % room, 1])
        send(mail, slot, state.links[row, place].peer)
    state.links[row, place].safe = 1
    send_control(state, mail, READY, 0, state.links[row, place].peer)


@linked
def send_control(state, mail, kind, number, rank):
    slot = draft(mail, kind, -1, state.sizes[kind])
    mail.heads[slot].sequence = number
    send(mail, slot, rank)

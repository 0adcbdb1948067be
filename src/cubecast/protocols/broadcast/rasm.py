"""RASM: a multicast tree of the most reliable paths, grown by flooding and pruning (rasm §3, Algorithm 1).

A GOSSIP message carries the probability that it reached its receiver. A member keeps as *provider* the neighbour whose
copy had the highest probability; every other neighbour that sends it a copy gets PRUNE and stops pushing. A member that
is pruned by its own provider answers REPAIR. There is one tree per sender.

| field   | shape        | meaning                                                                             |
|---------|--------------|-------------------------------------------------------------------------------------|
| peers   | –            | neighbours, trees and messages seen: `protocols.broadcast.peers`                    |
| carried | –            | numbers that a message carries unchanged from hop to hop; its cost comes after them |
| costs   | links        | −ln((1 − P_i)(1 − L_ij)(1 − P_j)) of each link, as a whole number of 1e-7           |
| best    | rows × m × W | the cost of the best copy of a message so far                                       |
| giver   | rows × m × W | the neighbour that sent that copy (oldSender)                                       |

Probabilities multiply along a path, so their negative logarithms add; in whole numbers sums are exact and equal paths
tie. A higher probability is a lower cost.

Departures from the printed code: line 12 computes the probability afresh for each peer (as printed it would compound
over the loop); a quota may send a peer several copies (§3.3). On reliable links PRUNE concerns only the direction from
its receiver to its sender, so a provider never loses a member it provides for, and REPAIR is not needed.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import draft
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

GOSSIP, PRUNE, REPAIR = range(3)
KINDS = 3
MESSAGES = (message("GOSSIP", cost=4, payload=payload()), message("PRUNE"), message("REPAIR"))
COST_SCALE = 1e7
COST_MAX = 1 << 28  # the cost of eight links that lose everything still fits a 32-bit number


class RasmState(NamedTuple):
    """RASM, one row per local member."""

    group: GroupState
    sizes: np.ndarray
    carried: int
    peers: Peers
    costs: np.ndarray
    best: np.ndarray
    giver: np.ndarray


def link_costs(failure: np.ndarray) -> np.ndarray:
    """−ln(1 − failure) of each link in whole numbers."""
    with np.errstate(divide="ignore"):
        costs = np.rint(-np.log1p(-np.asarray(failure, np.float64)) * COST_SCALE)
    return np.minimum(costs, COST_MAX).astype(np.int64)


def new_state(
    group: GroupState,
    overlay: Overlay,
    failure: np.ndarray,
    *,
    sizes: np.ndarray,
    quota: bool,
    carried: int = 0,
    window: int = WINDOW,
    reliable: bool = False,
) -> RasmState:
    """No tree yet: the first message floods. `reliable` links lose nothing and keep order."""
    rows, senders = group.received.shape
    return RasmState(
        group=group,
        sizes=sizes,
        carried=carried,
        peers=new_peers(group, overlay, failure, quota=quota, kinds=KINDS, window=window, reliable=reliable),
        costs=link_costs(failure),
        best=np.zeros((rows, senders, window), np.int64),
        giver=np.full((rows, senders, window), -1, np.int64),
    )


def set_link_failure(state: RasmState, row: int, rank: int, failure: float) -> None:
    """Set the failure probability of the link to a neighbour; without such a link nothing happens."""
    peers = state.peers
    for link in range(int(peers.offsets[row]), int(peers.offsets[row + 1])):
        if peers.neighbours[link] == rank:
            peers.failure[link] = failure
            state.costs[link] = link_costs(np.array(failure))


@linked
def publish(state, row, now_ns, mail):
    """Algorithm 1, lines 5–9."""
    me = state.group.rank[row]
    slot = _draft(state, mail, me, np.int64(state.group.received[row, me]) + 1)
    take(state, row, mail, slot)
    push_own(state, row, mail, slot)


@linked
def receive(state, row, now_ns, mail, slot):
    """Algorithm 1, lines 14–39."""
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
    """Push a new message of this member from its draft, lines 5–9."""
    note_seen(state.peers, row, mail.heads[slot].sender, mail.heads[slot].sequence)
    _note_path(state, row, mail, slot, np.int64(0), np.int64(-1))
    _eager_push(state, row, mail, slot, np.int64(-1))


@linked
def push_on(state, row, now_ns, mail, slot):
    """Lines 14–19: forward a message that is new here; the link it came over joins the tree."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    if is_wanted(state.peers, row, sender, source):
        set_provider(state.peers, row, sender, source, now_ns)
    if not is_reliable(state.peers):
        set_eager(state.peers, row, sender, source, 1, now_ns)
    _note_path(state, row, mail, slot, np.int64(mail.numbers[slot, state.carried]), source)
    _eager_push(state, row, mail, slot, source)


@linked
def refuse(state, row, now_ns, mail, slot, status):
    """Lines 20–32: of two neighbours that sent the message, the one with the better path stays in the tree."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    cost = np.int64(mail.numbers[slot, state.carried])
    place = mail.heads[slot].sequence % state.best.shape[2]
    old = state.giver[row, sender, place]
    if status == AGAIN and source == old:
        return  # a further copy of the quota, over the same link
    if takes_over(state, row, sender, source, now_ns):
        return
    better = status == AGAIN and cost < state.best[row, sender, place]
    if is_reliable(state.peers):
        _choose(state, row, now_ns, mail, slot, better)
    elif better:
        _note_path(state, row, mail, slot, cost, source)
        set_eager(state.peers, row, sender, source, 1, now_ns)
        set_eager(state.peers, row, sender, old, 0, now_ns)
        set_provider(state.peers, row, sender, source, now_ns)
        _send_control(state, row, mail, PRUNE, sender, old)
    else:
        set_eager(state.peers, row, sender, source, 0, now_ns)
        _send_control(state, row, mail, PRUNE, sender, source)


@linked
def _choose(state, row, now_ns, mail, slot, better):
    """Lines 20–32 where links lose nothing: PRUNE each neighbour whose messages are wanted, except the provider."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    provider = state.peers.provider[row, sender]
    if source == provider or not is_wanted(state.peers, row, sender, source):
        return
    stops = source
    if better:
        _note_path(state, row, mail, slot, np.int64(mail.numbers[slot, state.carried]), source)
        set_provider(state.peers, row, sender, source, now_ns)
        stops = provider
    want(state.peers, link_to(state.peers, row, stops), sender, 0)
    _send_control(state, row, mail, PRUNE, sender, stops)


@linked
def receive_control(state, row, now_ns, mail, slot):
    """Lines 33–39: handle PRUNE or REPAIR for one sender."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    if kind == REPAIR:
        set_eager(state.peers, row, sender, source, 1, now_ns)
    elif kind == PRUNE:
        if state.peers.provider[row, sender] == source and not is_reliable(state.peers):
            _send_control(state, row, mail, REPAIR, sender, source)
        else:
            set_eager(state.peers, row, sender, source, 0, now_ns)


@linked
def put_path(state, row, mail, slot, link):
    """Write into a draft of a message held here the cost of its path including this link."""
    place = mail.heads[slot].sequence % state.best.shape[2]
    step = state.costs[link] if link >= 0 else np.int64(0)
    mail.numbers[slot, state.carried] = state.best[row, mail.heads[slot].sender, place] + step


@linked
def forget_link(state, link):
    """Clear what is recorded for a removed link, so that the next link in its place starts fresh."""
    state.costs[link] = 0


@linked
def _note_path(state, row, mail, slot, cost, source):
    place = mail.heads[slot].sequence % state.best.shape[2]
    state.best[row, mail.heads[slot].sender, place] = cost
    state.giver[row, mail.heads[slot].sender, place] = source


@linked
def _eager_push(state, row, mail, message, source):
    """Lines 10–13; the probability is computed anew for each peer."""
    peers = state.peers
    sender = mail.heads[message].sender
    share_out(peers, row, sender, source)
    count = 0
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.eager[link, sender] == 0 or peers.neighbours[link] == source:
            continue
        rank = np.int64(peers.neighbours[link])
        slot = _draft(state, mail, sender, mail.heads[message].sequence)
        copy_numbers(mail.numbers[slot, : state.carried], mail.numbers[message])
        put_path(state, row, mail, slot, link)
        for _ in range(peers.scratch[count]):
            send_counted(peers, mail, slot, rank, GOSSIP)
        count += 1


@linked
def _draft(state, mail, sender, sequence):
    slot = draft(mail, GOSSIP, -1, state.sizes[GOSSIP])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    return slot


@linked
def _send_control(state, row, mail, kind, sender, rank):
    """Send PRUNE or REPAIR for the tree of one sender."""
    if rank < 0 or not rank_sets.contains(state.group.members[row], rank):
        return  # the member's own message has no provider, and a provider may be gone
    slot = draft(mail, kind, -1, state.sizes[kind])
    mail.heads[slot].sender = sender
    send_counted(state.peers, mail, slot, rank, kind)


def build(group: GroupState, context: Context, parameters: MulticastTreeParameters) -> RasmState:
    """No tree yet."""
    sizes = message_sizes(MESSAGES, context)
    return new_state(group, *network_links(context), sizes=sizes, quota=parameters.quota, window=window_of(context))


PROTOCOL = Protocol(
    name="rasm",
    title="RASM",
    family="broadcast",
    paper="rasm §3",
    summary="a tree of the most reliable paths by eager push, PRUNE and REPAIR",
    state=RasmState,
    messages=MESSAGES,
    parameters=MulticastTreeParameters,
    build=build,
    sends_per_member=lambda _members, _parameters: 1.0,
    colour="#D55E00",
)

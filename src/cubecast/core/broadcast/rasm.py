"""RASM: a multicast tree of the most reliable paths, grown by flooding and pruning (rasm §3, Algorithm 1).

A GOSSIP message carries the probability that it got as far as its receiver. A member keeps as *provider* the neighbour
whose copy had the highest; every other neighbour that sends it a copy gets PRUNE and is not pushed to any more. A
member that is pruned by its own provider answers REPAIR. One tree for each sender.

| field | shape        | meaning                                                                                  |
|-------|--------------|------------------------------------------------------------------------------------------|
| peers | –            | neighbours, trees and what was seen: `core.broadcast.peers`                              |
| costs | links        | −ln((1 − P_i)(1 − L_ij)(1 − P_j)) of each link, as a whole number of 1e-7                |
| best  | rows × m × W | the cost of the best copy of a message so far                                            |
| giver | rows × m × W | who sent that copy (oldSender)                                                           |

Probabilities multiply along a path, so their negative logarithms add; in whole numbers sums are exact and equal paths
tie. A higher probability is a lower cost.

Departures from the printed code: line 12 computes the probability afresh for each peer (as printed it would compound
over the loop); a quota may send a peer several copies (§3.3).
"""

from typing import NamedTuple

import numpy as np

from cubecast.core.broadcast.peers import (
    AGAIN,
    NEW,
    WINDOW,
    Peers,
    look,
    new_peers,
    send_counted,
    set_eager,
    set_provider,
    share_out,
)
from cubecast.core.compiled import internal
from cubecast.core.group import Group
from cubecast.core.mail import HEADER_BYTES, NUMBER_BYTES, deliver, draft
from cubecast.core.overlays import Overlay

GOSSIP, PRUNE, REPAIR = range(3)
KINDS = 3
COST_SCALE = 1e7
COST_MAX = 1 << 28  # eight links that never get anything across still fit a 32-bit number


class RasmState(NamedTuple):
    """RASM, one row per local member."""

    group: Group
    message_bytes: int
    peers: Peers
    costs: np.ndarray
    best: np.ndarray
    giver: np.ndarray


def link_costs(failure: np.ndarray) -> np.ndarray:
    """−ln(1 − failure) of each link in whole numbers."""
    with np.errstate(divide="ignore"):
        costs = np.rint(-np.log1p(-np.asarray(failure, np.float64)) * COST_SCALE)
    return np.minimum(costs, COST_MAX).astype(np.int64)


def new_state(group: Group, overlay: Overlay, failure: np.ndarray, *, payload_bytes: int, quota: bool) -> RasmState:
    """No tree yet: the first message floods."""
    rows, senders = group.received.shape
    return RasmState(
        group=group,
        message_bytes=HEADER_BYTES + NUMBER_BYTES + payload_bytes,
        peers=new_peers(group, overlay, failure, quota=quota, kinds=KINDS),
        costs=link_costs(failure),
        best=np.zeros((rows, senders, WINDOW), np.int64),
        giver=np.full((rows, senders, WINDOW), -1, np.int64),
    )


@internal
def publish(state, row, now_ns, mail):
    """Algorithm 1, lines 5–9."""
    me = state.group.rank[row]
    sequence = np.int64(state.group.received[row, me]) + 1
    look(state.peers, row, me, sequence)
    _accept(state, row, mail, me, sequence, np.int64(0), np.int64(-1))


@internal
def receive(state, row, now_ns, mail, slot):
    """Algorithm 1, lines 14–39."""
    kind = mail.heads[slot].kind
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    if kind == REPAIR:
        set_eager(state.peers, row, sender, source, 1, now_ns)
    elif kind == PRUNE:
        if state.peers.provider[row, sender] == source:
            _tell(state, mail, REPAIR, sender, source)
        else:
            set_eager(state.peers, row, sender, source, 0, now_ns)
    else:
        _gossip(state, row, now_ns, mail, slot)


@internal
def _gossip(state, row, now_ns, mail, slot):
    """Lines 14–32."""
    sender = mail.heads[slot].sender
    source = mail.heads[slot].source
    sequence = mail.heads[slot].sequence
    cost = np.int64(mail.numbers[slot, 0])
    place = sequence % WINDOW
    status = look(state.peers, row, sender, sequence)
    if status == NEW:
        set_provider(state.peers, row, sender, source, now_ns)
        set_eager(state.peers, row, sender, source, 1, now_ns)
        _accept(state, row, mail, sender, sequence, cost, source)
        return
    old = state.giver[row, sender, place]
    if status == AGAIN and source == old:
        return  # a further copy of the quota, over the same link
    if status == AGAIN and cost < state.best[row, sender, place]:
        state.best[row, sender, place] = cost
        state.giver[row, sender, place] = source
        set_eager(state.peers, row, sender, source, 1, now_ns)
        set_eager(state.peers, row, sender, old, 0, now_ns)
        set_provider(state.peers, row, sender, source, now_ns)
        _tell(state, mail, PRUNE, sender, old)
    else:
        set_eager(state.peers, row, sender, source, 0, now_ns)
        _tell(state, mail, PRUNE, sender, source)


@internal
def _accept(state, row, mail, sender, sequence, cost, source):
    """Deliver, remember the path's cost, push on."""
    state.group.received[row, sender] = max(np.int64(state.group.received[row, sender]), sequence)
    state.best[row, sender, sequence % WINDOW] = cost
    state.giver[row, sender, sequence % WINDOW] = source
    deliver(mail, sender, sequence)
    _eager_push(state, row, mail, sender, sequence, cost, source)


@internal
def _eager_push(state, row, mail, sender, sequence, cost, source):
    """Lines 10–13, the probability afresh for each peer."""
    peers = state.peers
    share_out(peers, row, sender, source)
    count = 0
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.eager[link, sender] == 0 or peers.neighbours[link] == source:
            continue
        slot = draft(mail, GOSSIP, -1, state.message_bytes)
        mail.heads[slot].sender = sender
        mail.heads[slot].sequence = sequence
        mail.numbers[slot, 0] = cost + state.costs[link]
        for _ in range(peers.scratch[count]):
            send_counted(peers, mail, slot, np.int64(peers.neighbours[link]), GOSSIP)
        count += 1


@internal
def _tell(state, mail, kind, sender, rank):
    """PRUNE or REPAIR: it concerns the tree of one sender."""
    if rank < 0:
        return  # the member is the source itself: its own copy came from nobody
    slot = draft(mail, kind, -1, HEADER_BYTES)
    mail.heads[slot].sender = sender
    send_counted(state.peers, mail, slot, rank, kind)

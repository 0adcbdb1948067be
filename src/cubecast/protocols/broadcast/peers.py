"""State that trees over a neighbour graph share: the push targets for each source, and the messages seen.

| field      | shape          | meaning                                                                             |
|------------|----------------|-------------------------------------------------------------------------------------|
| offsets    | rows + 1       | the links of a row are offsets[row] … offsets[row + 1] − 1                          |
| neighbours | links          | the rank at the other end; −1: an unused place for a later link                     |
| failure    | links          | the probability that a message does not get across (known, or estimated)            |
| quota      | 1              | messages that a member may send per multicast; 0: one to each peer                  |
| eager      | links × m      | is the link in the tree of that sender (eagerPushPeers)?                            |
| wanted     | links × m or 0 | does this member want that sender's messages over the link? See below               |
| provider   | rows × m       | the neighbour that provides that sender's messages; −1 = none yet                   |
| seen       | rows × m × W   | the sequence number seen last at place sequence mod W                               |
| sent       | kinds          | messages sent, by kind                                                              |
| changed_ns | 1              | when a tree last changed                                                            |
| scratch    | degree         | room for the shares of a quota                                                      |

W, the window, bounds how far messages of one sender may overtake each other; an older one counts as a duplicate.

**Wanted.** Where links may lose a PRUNE, a member infers the tree from the messages that arrive. Where links lose
nothing and keep order (`reliable`), it knows what it last requested from each neighbour, and the neighbour's `eager`
follows that request: a message that arrives over an unwanted link was in transit when the link was pruned, and says
nothing about the tree. So two PRUNEs that cross do not disconnect a member.

Invariants: an unused place is eager for no sender; a provider is a neighbour, or was one when it sent the message; on
reliable links a provider's messages are wanted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import linked
from cubecast.models.quota import share_quota
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    BUFFER_FULL,
    OVERFLOW,
    deliver,
    send,
)
from cubecast.protocol.overlays import Overlay
from cubecast.protocol.parameters import parameter

WINDOW = 32
NEW, AGAIN, OLD = range(3)


class Peers(NamedTuple):
    """Neighbours and trees, one row per local member."""

    offsets: np.ndarray
    neighbours: np.ndarray
    failure: np.ndarray
    quota: np.ndarray
    eager: np.ndarray
    wanted: np.ndarray
    provider: np.ndarray
    seen: np.ndarray
    sent: np.ndarray
    changed_ns: np.ndarray
    scratch: np.ndarray
    scratch_failure: np.ndarray


def with_spare_links(overlay: Overlay, links: int) -> Overlay:
    """The same neighbours, with room for `links` at every row."""
    rows = len(overlay.offsets) - 1
    neighbours = np.full((rows, links), -1, np.int32)
    for row in range(rows):
        first = overlay.neighbours[overlay.offsets[row] : overlay.offsets[row + 1]]
        neighbours[row, : len(first)] = first
    return Overlay(np.arange(rows + 1, dtype=np.int32) * np.int32(links), neighbours.reshape(-1))


def new_peers(
    group: GroupState,
    overlay: Overlay,
    failure: np.ndarray,
    *,
    quota: bool,
    kinds: int,
    window: int = WINDOW,
    reliable: bool = False,
) -> Peers:
    """Every neighbour is an eager peer (rasm Algorithm 1, line 4); with `quota` a member may send `degree` messages."""
    rows, senders = group.received.shape
    degree = int(np.diff(overlay.offsets).max())
    return Peers(
        offsets=overlay.offsets,
        neighbours=overlay.neighbours,
        failure=np.ascontiguousarray(failure, np.float64),
        quota=np.array([degree if quota else 0], np.int64),
        eager=np.repeat((overlay.neighbours >= 0).astype(np.int8)[:, None], senders, axis=1),
        wanted=np.ones((len(overlay.neighbours) if reliable else 0, senders), np.int8),
        provider=np.full((rows, senders), -1, np.int64),
        seen=np.zeros((rows, senders, window), np.int32),
        sent=np.zeros(kinds, np.int64),
        changed_ns=np.zeros(1, np.int64),
        scratch=np.zeros(degree, np.int64),
        scratch_failure=np.zeros(degree, np.float64),
    )


@linked
def note_seen(peers, row, sender, sequence):
    """Is this message new here, seen before, or too old to decide? Record a new one."""
    place = sequence % peers.seen.shape[2]
    if peers.seen[row, sender, place] == sequence:
        return AGAIN
    if peers.seen[row, sender, place] > sequence:
        return OLD
    peers.seen[row, sender, place] = sequence
    return NEW


@linked
def take(state, row, mail, slot):
    """Deliver a message that is new here. R becomes the highest number seen; earlier messages may be missing."""
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    state.group.received[row, sender] = max(np.int64(state.group.received[row, sender]), sequence)
    deliver(mail, sender, sequence)


@linked
def link_to(peers, row, rank):
    """The link of this row that leads to `rank`, or −1."""
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if rank >= 0 and peers.neighbours[link] == rank:
            return np.int64(link)
    return np.int64(-1)


@linked
def add_link(peers, row, mail, rank):
    """Add a neighbour as an eager peer for every sender, as at the start. Return the link, or −1."""
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.neighbours[link] < 0:
            peers.neighbours[link] = rank
            peers.failure[link] = 0.0
            for sender in range(peers.eager.shape[1]):
                peers.eager[link, sender] = 1
                want(peers, link, sender, 1)
            return np.int64(link)
    mail.counts[OVERFLOW] = BUFFER_FULL
    return np.int64(-1)


@linked
def drop_link(peers, row, rank):
    """Remove a neighbour: this member pushes nothing to it, and it provides nothing."""
    link = link_to(peers, row, rank)
    for sender in range(peers.eager.shape[1]):
        if link >= 0:
            peers.eager[link, sender] = 0
        if peers.provider[row, sender] == rank:
            peers.provider[row, sender] = -1
    if link >= 0:
        peers.neighbours[link] = -1


@linked
def set_eager(peers, row, sender, rank, eager, now_ns):
    """Add a neighbour to the sender's tree, or remove it."""
    link = link_to(peers, row, rank)
    if link >= 0 and peers.eager[link, sender] != eager:
        peers.eager[link, sender] = eager
        peers.changed_ns[0] = now_ns


@linked
def is_reliable(peers):
    """Do links lose nothing, so that a member knows which neighbours push to it?"""
    return peers.wanted.shape[0] > 0


@linked
def want(peers, link, sender, wanted):
    """Record whether this member wants the sender's messages over the link."""
    if link >= 0 and is_reliable(peers):
        peers.wanted[link, sender] = wanted


@linked
def is_wanted(peers, row, sender, rank):
    """May the neighbour keep pushing that sender's messages?"""
    if not is_reliable(peers):
        return True
    link = link_to(peers, row, rank)
    return link >= 0 and peers.wanted[link, sender] != 0


@linked
def set_provider(peers, row, sender, rank, now_ns):
    """Make `rank` the provider of the sender's messages."""
    if peers.provider[row, sender] != rank:
        peers.provider[row, sender] = rank
        peers.changed_ns[0] = now_ns


@linked
def takes_over(state, row, sender, source, now_ns):
    """On reliable links: replace a provider that has left by a neighbour that pushes. Return whether there is one."""
    peers = state.peers
    vacant = is_reliable(peers) and peers.provider[row, sender] < 0 and sender != state.group.rank[row]
    if vacant and is_wanted(peers, row, sender, source):
        set_provider(peers, row, sender, source, now_ns)
        return True
    return False


@linked
def share_out(peers, row, sender, source):
    """Write into `scratch` how many copies to send to each eager peer except `source`, in the order of the links."""
    count = 0
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.eager[link, sender] != 0 and peers.neighbours[link] != source:
            peers.scratch_failure[count] = peers.failure[link]
            count += 1
    share_quota(peers.scratch_failure, peers.scratch, count, max(peers.quota[0], count))


@linked
def send_counted(peers, mail, slot, rank, kind):
    """Send a message, and count it by kind."""
    peers.sent[kind] += 1
    send(mail, slot, rank)


@dataclass(frozen=True, kw_only=True)
class MulticastTreeParameters:
    """Parameters of a multicast tree."""

    quota: bool = parameter(
        False, "A member sends as many copies of a message as it has neighbours, where they help most (rasm Eq 2)."
    )


def window_of(context: Context) -> int:
    """The window: how far messages of one sender may overtake each other, at most the number of messages of a run."""
    return min(WINDOW, context.window)


def network_links(context: Context) -> tuple[Overlay, np.ndarray]:
    """The links of the network, and the failure probability of each."""
    if context.overlay is None or context.link_failure is None:
        raise LocalProtocolError("a multicast tree follows links between members: choose a network whose nodes are all")
    return context.overlay, context.link_failure

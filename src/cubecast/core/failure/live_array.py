"""Gossip-style failure detection of a live group: L goes to overlay neighbours, and all agree whom they drop.

L is aged, merged and judged as by every other detector (`silence`, guo §3.1.2 and §3.3, van Renesse et al. 1998). What
differs from `gossip` is who is told and what a suspicion means:

- L goes to all overlay neighbours in place of a random subset, because a live member has links to no one else. News
  travels one hop a step, so a live member's entry stays at or below the diameter plus what messages are late; K_fail
  is above that.
- A suspicion is final and rides on the gossip, so that all members exclude the same ranks; one that finds itself
  suspected must stop. Whoever learns of a suspicion passes it on at once, not at its next step. `gossip` must not do
  so: what is studied of it is each member's own opinion, and K_fail comes from a formula that takes opinions to be
  independent.
- A member that leaves says goodbye in place of gossip, every step until it stops, and is suspected at once by whoever
  hears it.
- The sum of R rides along, so that every member can name those who hold stability back.
- Anything that arrives on a link is a sign of life of the neighbour at its other end, as a data message is for
  `gossip`: under load the gossip itself may be late.
- Members take time to start: all have `grace_steps` to appear.
- When a member goes, so do the ways through it, and news of others may have to come another way (`survivors`). So
  nobody is suspected within the next `NEWS_STEPS`.

Besides the fields of `silence`:

| field     | shape        | meaning                                                                            |
|-----------|--------------|------------------------------------------------------------------------------------|
| neighbours| links        | to whom each row gossips, `offsets[row]` … `offsets[row + 1] − 1`                  |
| progress  | rows × n     | how many messages each member has delivered, as far as known here                  |
| suspected | rows × words | who is to be taken out of the membership; only grows                               |
| leaving   | rows         | does this member say goodbye?                                                      |
"""

from typing import NamedTuple

import numpy as np

from cubecast.core import bits
from cubecast.core.compiled import internal
from cubecast.core.failure.silence import STEP, age, hear, merge
from cubecast.core.group import Group, copy_numbers
from cubecast.core.mail import HEADER_BYTES, NUMBER_BYTES, draft, send, set_timer, suspect
from cubecast.core.overlays import Overlay

GOSSIP, GOODBYE = range(2)
NEWS_STEPS = 4
"""Steps in which a new link is made and news comes over it."""


class LiveArrayState(NamedTuple):
    """The live array, one row per local member."""

    group: Group
    step_ns: int
    threshold: int
    message_bytes: int
    offsets: np.ndarray
    neighbours: np.ndarray
    silent: np.ndarray
    progress: np.ndarray
    suspected: np.ndarray
    leaving: np.ndarray


def new_state(
    group: Group, overlay: Overlay, *, members: int, step_ns: int, threshold: int, grace_steps: int
) -> LiveArrayState:
    """Nobody suspected; every other member has `grace_steps` more than K_fail = `threshold` to appear."""
    rows = len(group.rank)
    silent = np.full((rows, members), -grace_steps, np.int32)
    silent[np.arange(rows), group.rank] = 0
    return LiveArrayState(
        group=group,
        step_ns=step_ns,
        threshold=threshold,
        message_bytes=HEADER_BYTES + 2 * NUMBER_BYTES * members + (members + 7) // 8,
        offsets=overlay.offsets,
        neighbours=overlay.neighbours,
        silent=silent,
        progress=np.zeros((rows, members), np.int32),
        suspected=np.zeros_like(group.members),
        leaving=np.zeros(rows, np.bool_),
    )


@internal
def start(state, row, now_ns, mail):
    """The first gossip, so that neighbours hear of this member at once."""
    _tell_neighbours(state, row, mail)
    set_timer(mail, STEP, 0, state.step_ns)


@internal
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: all others are a step older, and may be too old."""
    age(state, row, mail)
    for rank in range(state.silent.shape[1]):
        if state.silent[row, rank] >= state.threshold:
            bits.add(state.suspected[row], rank)
    _tell_neighbours(state, row, mail)


@internal
def receive(state, row, now_ns, mail, slot):
    """Merge what a neighbour knows; pass on at once a suspicion that is new here."""
    source = mail.heads[slot].source
    if not bits.contains(state.group.members[row], source):
        return
    merge(state, row, mail.numbers[slot])
    members = state.silent.shape[1]
    learns = mail.heads[slot].kind == GOODBYE and _believe(state, row, mail, source)
    for rank in range(members):
        state.progress[row, rank] = max(state.progress[row, rank], mail.numbers[slot, members + rank])
        if bits.contains(mail.bits[slot], rank) and _believe(state, row, mail, rank):
            learns = True
    if learns:
        _tell_neighbours(state, row, mail)


@internal
def on_heard(state, row, now_ns, mail, rank):
    """Something came from this neighbour: L[rank] = 0."""
    if bits.contains(state.group.members[row], rank):
        hear(state, row, rank)


@internal
def on_leave(state, row, now_ns, mail, rank):
    """News of the others may have to come another way now: give it time, and tell the new neighbours."""
    for other in range(state.silent.shape[1]):
        state.silent[row, other] = min(state.silent[row, other], state.threshold - NEWS_STEPS)
    _tell_neighbours(state, row, mail)


@internal
def publish(state, row, now_ns, mail):
    """This member leaves: from now on it says goodbye."""
    state.leaving[row] = True
    _tell_neighbours(state, row, mail)


@internal
def _believe(state, row, mail, rank):
    """Suspect a member because of what was said; was that new?"""
    if bits.contains(state.suspected[row], rank):
        return False
    bits.add(state.suspected[row], rank)
    suspect(mail, rank)
    return True


@internal
def _tell_neighbours(state, row, mail):
    """Send L, the progress and the suspicions, or goodbye, to every live neighbour."""
    me = state.group.rank[row]
    total = np.int64(0)
    for sender in range(state.group.received.shape[1]):
        total += state.group.received[row, sender]
    state.progress[row, me] = total
    slot = draft(mail, GOODBYE if state.leaving[row] else GOSSIP, -1, state.message_bytes)
    members = state.silent.shape[1]
    copy_numbers(mail.numbers[slot, :members], state.silent[row])
    copy_numbers(mail.numbers[slot, members : 2 * members], state.progress[row])
    bits.copy(mail.bits[slot], state.suspected[row])
    for link in range(state.offsets[row], state.offsets[row + 1]):
        if bits.contains(state.group.members[row], state.neighbours[link]):
            send(mail, slot, np.int64(state.neighbours[link]))

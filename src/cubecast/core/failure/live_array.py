"""Failure detection by gossiping a live array between hypercube neighbours (guo §3.3, van Renesse et al. 1998).

Every step a member adds 1 to every entry of its live array L but its own, and sends L to its live neighbours; a
receiver takes the element-wise minimum. An entry that reaches K_fail is suspected. News travels one hop a step, so a
live member's entry stays at or below the diameter of the cube plus what messages are late; K_fail is above that.

| field     | shape        | meaning                                                                            |
|-----------|--------------|------------------------------------------------------------------------------------|
| neighbours| links        | to whom each row gossips, `offsets[row]` … `offsets[row + 1] − 1`                  |
| ages      | rows × n     | L: steps since the newest sign of life of each member that reached this one        |
| progress  | rows × n     | how many messages each member has delivered, as far as known here                  |
| suspected | rows × words | who is to be taken out of the membership; the driver reads it after every call     |

Departures from `gossip`: L goes to all overlay neighbours in place of a random subset, because a live member has links
to no one else. A suspicion is final and rides on the gossip, so that all members exclude the same ranks; one that
finds itself suspected must stop. Whoever learns of a suspicion passes it on at once, not at its next step. `progress`
(the sum of R) rides along so that every member can name those who hold stability back. A member that says goodbye is
suspected at once. Anything that arrives on a link is a sign of life of the neighbour at its other end, as a data
message is for `gossip`: under load the gossip itself may be late.

Why this is a core beside `gossip` and not a setting of it. `gossip` is the paper's detector, and what is studied of it
is each member's own opinion: how long a crash stays unnoticed and how often the living are suspected, for members drawn
at random, where K_fail comes from a formula that takes opinions to be independent. A live group needs one opinion: here
a suspicion is final and contagious, which makes mistakes common to all and would falsify exactly what is measured
there. It also needs what a simulated group does not: links that exist, time for processes to start, goodbyes, progress.

Invariants: `ages` of the own rank is 0; `suspected` only grows. A negative entry means that no sign of life has come
yet and how many steps of grace its member still has to appear; the first sign of life, however old, replaces it.
"""

from typing import NamedTuple

import numpy as np

from cubecast.core import bits
from cubecast.core.compiled import internal
from cubecast.core.group import Group
from cubecast.core.mail import HEADER_BYTES, NUMBER_BYTES, draft, send, set_timer
from cubecast.core.overlays import Overlay

GOSSIP, GOODBYE = range(2)
STEP = 0


class LiveArrayState(NamedTuple):
    """The live array, one row per local member."""

    group: Group
    step_ns: int
    steps_max: int
    message_bytes: int
    offsets: np.ndarray
    neighbours: np.ndarray
    ages: np.ndarray
    progress: np.ndarray
    suspected: np.ndarray


def new_state(
    group: Group, overlay: Overlay, *, members: int, step_ns: int, steps_max: int, grace_steps: int
) -> LiveArrayState:
    """Nobody suspected; every other member has `grace_steps` more than K_fail = `steps_max` to appear."""
    rows = len(group.rank)
    ages = np.full((rows, members), -grace_steps, np.int32)
    ages[np.arange(rows), group.rank] = 0
    return LiveArrayState(
        group=group,
        step_ns=step_ns,
        steps_max=steps_max,
        message_bytes=HEADER_BYTES + 2 * NUMBER_BYTES * members + (members + 7) // 8,
        offsets=overlay.offsets,
        neighbours=overlay.neighbours,
        ages=ages,
        progress=np.zeros((rows, members), np.int32),
        suspected=np.zeros_like(group.members),
    )


@internal
def start(state, row, now_ns, mail):
    """The first gossip, so that neighbours hear of this member at once."""
    _gossip(state, row, mail)
    set_timer(mail, STEP, 0, state.step_ns)


@internal
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: all others are a step older, and may be too old."""
    me = state.group.rank[row]
    for rank in range(state.ages.shape[1]):
        if rank != me and bits.contains(state.group.members[row], rank):
            state.ages[row, rank] += 1
            if state.ages[row, rank] >= state.steps_max:
                bits.add(state.suspected[row], rank)
    _gossip(state, row, mail)
    set_timer(mail, STEP, 0, state.step_ns)


@internal
def receive(state, row, now_ns, mail, slot):
    """Merge what a neighbour knows; pass on at once a suspicion that is new here."""
    source = mail.heads[slot].source
    if not bits.contains(state.group.members[row], source):
        return
    if mail.heads[slot].kind == GOODBYE:
        bits.add(state.suspected[row], source)
        _gossip(state, row, mail)
        return
    members = state.ages.shape[1]
    for rank in range(members):
        state.ages[row, rank] = _younger(state.ages[row, rank], mail.numbers[slot, rank])
        state.progress[row, rank] = max(state.progress[row, rank], mail.numbers[slot, members + rank])
    if not bits.covers(state.suspected[row], mail.bits[slot]):
        bits.merge(state.suspected[row], mail.bits[slot])
        _gossip(state, row, mail)


@internal
def on_heard(state, row, now_ns, mail, rank):
    """Something came from this neighbour: L[rank] = 0."""
    if bits.contains(state.group.members[row], rank):
        state.ages[row, rank] = 0


@internal
def _younger(mine, theirs):
    """The newer sign of life; of two members who never heard any, the longer grace."""
    if (mine < 0) == (theirs < 0):
        return min(mine, theirs)
    return max(mine, theirs)


@internal
def publish(state, row, now_ns, mail):
    """This member leaves: say goodbye to the neighbours."""
    slot = draft(mail, GOODBYE, -1, HEADER_BYTES)
    for place in range(2 * state.ages.shape[1]):
        mail.numbers[slot, place] = 0
    bits.clear(mail.bits[slot])
    _send_to_neighbours(state, row, mail, slot)


@internal
def _gossip(state, row, mail):
    """Send L, the progress and the suspicions to every live neighbour."""
    me = state.group.rank[row]
    total = np.int64(0)
    for sender in range(state.group.received.shape[1]):
        total += state.group.received[row, sender]
    state.progress[row, me] = total
    slot = draft(mail, GOSSIP, -1, state.message_bytes)
    members = state.ages.shape[1]
    for rank in range(members):
        mail.numbers[slot, rank] = state.ages[row, rank]
        mail.numbers[slot, members + rank] = state.progress[row, rank]
    bits.copy(mail.bits[slot], state.suspected[row])
    _send_to_neighbours(state, row, mail, slot)


@internal
def _send_to_neighbours(state, row, mail, slot):
    for link in range(state.offsets[row], state.offsets[row + 1]):
        if bits.contains(state.group.members[row], state.neighbours[link]):
            send(mail, slot, np.int64(state.neighbours[link]))

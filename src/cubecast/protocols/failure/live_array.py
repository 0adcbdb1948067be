"""Gossip-style failure detection of live groups: members send L to overlay neighbours, and each suspects on its own.

L is aged, merged and judged as in every other detector (`silence`, guo §3.1.2, Fig 3.1, van Renesse et al. 1998). The
differences from `gossip`:

- A member sends L to all overlay neighbours instead of a random subset, because a live member has links to few others.
  News travels one hop per step, so a live member's entry stays at or below the diameter plus the delay of messages;
  K_fail is above that.
- A suspicion ends with the next sign of life. Membership decides what follows from suspicions; within a view no member
  is excluded by one member's suspicion.
- Anything that arrives on a link is a sign of life of the neighbour at its other end, as a data message is for
  `gossip`: under load the gossip itself may be late.
- When a member leaves, the paths through it disappear, and news of others may need another path. So no member is
  suspected during the next `NEWS_STEPS`.

Besides the fields of `silence`:

| field     | shape        | meaning                                                                            |
|-----------|--------------|------------------------------------------------------------------------------------|
| neighbours| links        | the members each row gossips to, `offsets[row]` … `offsets[row + 1] − 1`           |
| progress  | rows × n     | how many messages each member has delivered, as far as known here                  |
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.models.failure import misses_allowed
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import (
    draft,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, per_member
from cubecast.protocol.overlays import hypercube, hypercube_dimension, of_ranks
from cubecast.protocols.failure.silence import (
    STEP,
    DetectorParameters,
    age,
    hear,
    merge,
)

GOSSIP = 0
MESSAGES = (message("GOSSIP", silent=per_member(4), progress=per_member(4)),)
NEWS_STEPS = 4
"""Steps until a new link is open and news arrives over it."""


class LiveArrayState(NamedTuple):
    """The live array, one row per local member."""

    group: GroupState
    step_ns: int
    threshold: int
    sizes: np.ndarray
    offsets: np.ndarray
    neighbours: np.ndarray
    silent: np.ndarray
    progress: np.ndarray


def build(group: GroupState, context: Context, parameters: DetectorParameters) -> LiveArrayState:
    """No member is suspected; every other member has K_fail = `threshold` steps to appear."""
    rows, members = len(group.rank), context.members
    overlay = of_ranks(hypercube(members), group.rank)
    return LiveArrayState(
        group=group,
        step_ns=round(parameters.step_ms * 1e6),
        threshold=parameters.threshold or 1,
        sizes=message_sizes(MESSAGES, context),
        offsets=overlay.offsets,
        neighbours=overlay.neighbours,
        silent=np.zeros((rows, members), np.int32),
        progress=np.zeros((rows, members), np.int32),
    )


@linked
def start(state, row, now_ns, mail):
    """Gossip at once, so that neighbours learn of this member."""
    _send_to_neighbours(state, row, mail)
    set_timer(mail, STEP, 0, state.step_ns)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: age all other entries, and suspect those that are too old."""
    age(state, row, mail)
    _send_to_neighbours(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Merge the live array of a neighbour."""
    source = mail.heads[slot].source
    if not rank_sets.contains(state.group.members[row], source):
        return
    merge(state, row, mail.numbers[slot])
    members = state.silent.shape[1]
    for rank in range(members):
        state.progress[row, rank] = max(state.progress[row, rank], mail.numbers[slot, members + rank])


@linked
def on_heard(state, row, now_ns, mail, rank):
    """A message arrived from this neighbour: L[rank] = 0."""
    hear(state, row, rank)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """News of other members may now need another path: allow time for it, and gossip to the new neighbours."""
    for other in range(state.silent.shape[1]):
        if rank_sets.contains(state.group.members[row], other):
            state.silent[row, other] = min(state.silent[row, other], state.threshold - NEWS_STEPS)
    state.silent[row, rank] = state.threshold  # a young entry, relayed, would keep it alive at other members
    _send_to_neighbours(state, row, mail)


@linked
def _send_to_neighbours(state, row, mail):
    """Send L and the progress to every live neighbour."""
    me = state.group.rank[row]
    total = np.int64(0)
    for sender in range(state.group.received.shape[1]):
        total += state.group.received[row, sender]
    state.progress[row, me] = total
    slot = draft(mail, GOSSIP, -1, state.sizes[GOSSIP])
    members = state.silent.shape[1]
    copy_numbers(mail.numbers[slot, :members], state.silent[row])
    copy_numbers(mail.numbers[slot, members : 2 * members], state.progress[row])
    for link in range(state.offsets[row], state.offsets[row + 1]):
        if rank_sets.contains(state.group.members[row], state.neighbours[link]):
            send(mail, slot, np.int64(state.neighbours[link]))


def _resolve(parameters: DetectorParameters, context: Context) -> DetectorParameters:
    if parameters.threshold is not None:
        return parameters
    # The arrays of all neighbours count as one heartbeat that takes a step for every hop.
    allowed = misses_allowed(members=context.members, p_mistake=parameters.p_mistake, arrival=context.network.arrival)
    return replace(parameters, threshold=hypercube_dimension(context.members) + allowed)


PROTOCOL = Protocol(
    name="live_array",
    title="Live array",
    family="failure",
    paper="guo §3.1.2",
    summary="members send live arrays to hypercube neighbours; the detector of live groups",
    state=LiveArrayState,
    messages=MESSAGES,
    parameters=DetectorParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda context, _parameters: 2 * context.members,
    by_neighbour=("neighbours",),
    auto_from=2,
)

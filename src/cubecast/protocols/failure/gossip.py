"""Gossip-style failure detection (guo §3.1.2, Fig 3.1).

In every step a member adds one to every entry of its live array L except its own, and sends L to a random subset of
the members. A member that receives an L' takes the element-wise minimum; a data message from j sets L[j] = 0. A member
whose entry reaches K_fail is suspected. `cubecast.models.failure.k_fail` computes K_fail for a probability of mistake.

State and invariants: `silence` (L is `silent`), and

| field         | shape  | meaning                                                             |
|---------------|--------|---------------------------------------------------------------------|
| chosen        | subset | room for the ranks drawn in one step                                |

Each member suspects independently and can be wrong independently; a live group, whose members must exclude the same
ones, runs `live_array`.

Departure: entries of members that have left are neither aged nor merged, so late reports about an excluded member
change nothing.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.models.failure import k_fail
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import draft, send
from cubecast.protocol.messages import Size, message, message_sizes
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below
from cubecast.protocols.failure.silence import (
    DetectorParameters,
    age,
    begin_steps,
    hear,
    merge,
    new_silence,
    new_streams,
)

GOSSIP = 0
DRAWS = 32  # draws before the next eligible rank is taken instead; reached only when most members have crashed


@dataclass(frozen=True, kw_only=True)
class GossipDetectorParameters(DetectorParameters):
    """Parameters of gossip-style detection."""

    subset: int = parameter(1, "How many members a member sends to in one step; at most all others.", at_least=1)


def _entry_bytes(parameters: GossipDetectorParameters) -> int:
    """Bytes per entry: as many as K_fail needs."""
    return max(1, -(-(parameters.threshold or 1).bit_length() // 8))


_SILENT = Size("n · bytes of K_fail", lambda context, parameters: context.members * _entry_bytes(parameters))
MESSAGES = (message("GOSSIP", silent=_SILENT),)


class GossipDetectorState(NamedTuple):
    """Gossip-style failure detection, one row per local member."""

    group: GroupState
    step_ns: int
    threshold: int
    sizes: np.ndarray
    silent: np.ndarray
    random: np.ndarray
    chosen: np.ndarray


def build(group: GroupState, context: Context, parameters: GossipDetectorParameters) -> GossipDetectorState:
    """No member has been silent yet."""
    return GossipDetectorState(
        group=group,
        step_ns=round(parameters.step_ms * 1e6),
        threshold=parameters.threshold or 1,
        sizes=message_sizes(MESSAGES, context, parameters),
        silent=new_silence(group, context.members),
        random=new_streams(group, context.seed),
        chosen=np.zeros(parameters.subset, np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Send the first gossip within a step."""
    begin_steps(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """L = ArrayMin(L, L')."""
    merge(state, row, mail.numbers[slot])


@linked
def on_heard(state, row, now_ns, mail, rank):
    """A data message from j: L[j] = 0."""
    hear(state, row, rank)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: age the entries, suspect silent members, and gossip L to a random subset."""
    age(state, row, mail)
    slot = draft(mail, GOSSIP, -1, state.sizes[GOSSIP])
    copy_numbers(mail.numbers[slot, : state.silent.shape[1]], state.silent[row])
    for k in range(_choose(state, row)):
        send(mail, slot, state.chosen[k])


@linked
def _choose(state, row):
    """Draw distinct members other than this one; return how many were drawn."""
    for k in range(state.chosen.shape[0]):
        rank = _draw_one(state, row, k)
        if rank < 0:
            return k
        state.chosen[k] = rank
    return state.chosen.shape[0]


@linked
def _draw_one(state, row, drawn):
    members = state.silent.shape[1]
    rank = 0
    for _ in range(DRAWS):
        rank = below(state.random[row], members)
        if _is_eligible(state, row, rank, drawn):
            return rank
    for step in range(members):
        other = (rank + step) % members
        if _is_eligible(state, row, other, drawn):
            return other
    return -1


@linked
def _is_eligible(state, row, rank, drawn):
    if rank == state.group.rank[row] or not rank_sets.contains(state.group.members[row], rank):
        return False
    for k in range(drawn):
        if state.chosen[k] == rank:
            return False
    return True


def _resolve(parameters: GossipDetectorParameters, context: Context) -> GossipDetectorParameters:
    subset = max(1, min(parameters.subset, context.members - 1))
    if parameters.threshold is not None:
        return replace(parameters, subset=subset)
    found = k_fail(
        members=context.members,
        p_mistake=parameters.p_mistake,
        step_s=parameters.step_ms / 1e3,
        subset=subset,
        arrival=context.network.arrival,
    )
    return replace(parameters, subset=subset, threshold=found.k_fail)


PROTOCOL = Protocol(
    name="gossip",
    title="Gossip-style detection",
    family="failure",
    paper="guo §3.1.2",
    summary="live arrays spread by gossip and merge by minimum",
    state=GossipDetectorState,
    messages=MESSAGES,
    parameters=GossipDetectorParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda context, _parameters: context.members,
)

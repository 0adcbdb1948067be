"""Gossip-style failure detection in local groups: a hierarchy of two levels (guo §3.1.2).

"A hierarchical structure can be employed in the failure detection protocol to reduce gossip message sizes and improve
scalability"; the paper says no more. This is the multi-level gossip of van Renesse, Minsky and Hayden (1998) with the
local groups of S_Gossip (guo §4.3.3), which follow the network:

- *Within a local group* members gossip as in `gossip`, with the live array L of their own group only. A member whose
  entry reaches K_fail is suspected, and put into the set F of failed members.
- *Between local groups* a live array L2 has one entry per group. In each step a member sends (L2, F) to a random member
  of another group with probability 1 / (members of its group that are up), so about one message leaves each group. A
  group whose entry reaches the second threshold is suspected as a whole.
- Local messages carry L2 and F too. A member that receives F suspects its members: "this information is propagated
  throughout the group" (guo §3.2). A member does not forward its suspicion of a whole group: every member judges for
  itself.

A message carries g entries of its local group, n / g entries of groups and n bits, instead of n entries.

State: `silence`, in which only the entries of the own local group are used, and

| field           | shape         | meaning                                                          |
|-----------------|---------------|------------------------------------------------------------------|
| group_threshold | –             | suspect a group after this many steps without news of it         |
| order, first    | n, groups + 1 | the ranks of local group k: order[first[k] : first[k + 1]]       |
| local_group     | n             | the local group of each rank                                     |
| local_bytes     | groups        | the size of a LOCAL message; shorter in a smaller group          |
| silent_groups   | rows × groups | L2: steps since the last news of each group; the own entry is 0  |
| failed          | rows × words  | F                                                                |
| chosen          | subset        | room for the ranks drawn in one step                             |

Invariants: `silent` ≤ threshold, `silent_groups` ≤ group_threshold; F only grows; a member is in F only if a member of
its local group found it silent for K_fail steps.

Thresholds: K_fail is that of a group of the size of the largest local group. News of a group spreads between groups
and then within each local group; a whole K_fail is allowed for each doubling of the groups that have the news, and one
more at the end. So a member of another group learns of a crash within K_fail · (2 + ⌈log2 groups⌉) steps, and most
learn of it much sooner.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.models.failure import k_fail
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.local_groups import as_arrays
from cubecast.protocol.mail import draft, send, set_timer, suspect
from cubecast.protocol.messages import Size, member_set, message, message_sizes
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below
from cubecast.protocols.failure.silence import (
    STEP,
    DetectorParameters,
    begin_steps,
    new_silence,
    new_streams,
)

LOCAL, AMONG_GROUPS = range(2)
DRAWS = 32  # draws before the next eligible rank is taken instead; reached only when most members have crashed


@dataclass(frozen=True, kw_only=True)
class StructuredGossipParameters(DetectorParameters):
    """Parameters of gossip-style detection in local groups."""

    group_size: int | None = parameter(
        None, "The largest size of a local group.", at_least=2, otherwise="⌈√n⌉, for the shortest messages"
    )
    group_threshold: int | None = parameter(
        None, "Silent steps before a whole group is suspected.", at_least=1, otherwise="K_fail · (1 + ⌈log2 groups⌉)"
    )
    subset: int = parameter(1, "How many members of its local group a member sends to in one step.", at_least=1)


def _divide(context: Context, parameters: StructuredGossipParameters) -> list[np.ndarray]:
    """The ranks of every local group."""
    size = parameters.group_size or _shortest(context)
    if context.local_groups is not None:
        return [np.array(group) for group in context.local_groups(size)]
    return [np.arange(first, min(first + size, context.members)) for first in range(0, context.members, size)]


def _shortest(context: Context) -> int:
    return max(2, int(np.ceil(np.sqrt(context.members))))


def _largest(context: Context, parameters: StructuredGossipParameters) -> int:
    return max(map(len, _divide(context, parameters)))


def _entry_bytes(threshold: int | None) -> int:
    """Bytes per entry: as many as its threshold needs."""
    return max(1, -(-(threshold or 1).bit_length() // 8))


_SILENT = Size(
    "local group · bytes of K_fail",
    lambda context, parameters: _largest(context, parameters) * _entry_bytes(parameters.threshold),
)
_SILENT_GROUPS = Size(
    "local groups · bytes of their threshold",
    lambda context, parameters: len(_divide(context, parameters)) * _entry_bytes(parameters.group_threshold),
)
MESSAGES = (
    message("LOCAL", silent=_SILENT, silent_groups=_SILENT_GROUPS, failed=member_set()),
    message("AMONG_GROUPS", silent_groups=_SILENT_GROUPS, failed=member_set()),
)


class StructuredGossipState(NamedTuple):
    """Gossip-style detection in local groups, one row per local member."""

    group: GroupState
    step_ns: int
    threshold: int
    group_threshold: int
    sizes: np.ndarray
    order: np.ndarray
    first: np.ndarray
    local_group: np.ndarray
    local_bytes: np.ndarray
    silent: np.ndarray
    silent_groups: np.ndarray
    failed: np.ndarray
    random: np.ndarray
    chosen: np.ndarray


def build(group: GroupState, context: Context, parameters: StructuredGossipParameters) -> StructuredGossipState:
    """No member has been silent yet."""
    local = as_arrays(_divide(context, parameters))
    sizes = message_sizes(MESSAGES, context, parameters)
    return StructuredGossipState(
        group=group,
        step_ns=round(parameters.step_ms * 1e6),
        threshold=parameters.threshold or 1,
        group_threshold=parameters.group_threshold or 1,
        sizes=sizes,
        order=local.order,
        first=local.first,
        local_group=local.of_rank,
        local_bytes=sizes[LOCAL] - (local.lengths.max() - local.lengths) * _entry_bytes(parameters.threshold),
        silent=new_silence(group, context.members),
        silent_groups=new_silence(group, len(local.lengths)),
        failed=rank_sets.empty(len(group.rank), context.members),
        random=new_streams(group, context.seed),
        chosen=np.zeros(parameters.subset, np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Send the first gossip within a step."""
    begin_steps(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """L = ArrayMin(L, L'), L2 = ArrayMin(L2, L2'), and suspect the members in F'."""
    own = state.local_group[state.group.rank[row]]
    entries = 0
    if mail.heads[slot].kind == LOCAL:
        entries = state.first[own + 1] - state.first[own]
        _merge_local(state, row, own, mail.numbers[slot])
    for k in range(state.silent_groups.shape[1]):
        if k != own:
            state.silent_groups[row, k] = min(state.silent_groups[row, k], mail.numbers[slot, entries + k])
    _suspect_failed(state, row, mail, mail.bits[slot])


@linked
def on_heard(state, row, now_ns, mail, rank):
    """A data message from j: L[j] = 0, or L2 of its group."""
    if state.local_group[rank] == state.local_group[state.group.rank[row]]:
        state.silent[row, rank] = 0
    else:
        state.silent_groups[row, state.local_group[rank]] = 0


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: age the entries, suspect silent members, gossip in the local group, and sometimes to another."""
    me = state.group.rank[row]
    own = state.local_group[me]
    up = _age_local(state, row, mail, own)
    _age_groups(state, row, mail, own)
    set_timer(mail, STEP, 0, state.step_ns)
    chosen = _choose(state, row, state.first[own], state.first[own + 1])
    if chosen > 0:
        slot = _draft(state, row, mail, LOCAL, own, state.local_bytes[own])
        for k in range(chosen):
            send(mail, slot, state.chosen[k])
    if state.silent_groups.shape[1] > 1 and below(state.random[row], up) == 0:
        rank = _draw_elsewhere(state, row, own)
        if rank >= 0:
            send(mail, _draft(state, row, mail, AMONG_GROUPS, own, state.sizes[AMONG_GROUPS]), rank)


@linked
def _age_local(state, row, mail, own):
    """Age the others of the local group, suspect the silent ones; return how many are up, this member included."""
    me = state.group.rank[row]
    up = 1
    for place in range(state.first[own], state.first[own + 1]):
        rank = state.order[place]
        if rank != me and rank_sets.contains(state.group.members[row], rank):
            up += 1
            state.silent[row, rank] += 1
            if state.silent[row, rank] >= state.threshold:
                rank_sets.add(state.failed[row], rank)
                suspect(mail, rank)
    return up


@linked
def _age_groups(state, row, mail, own):
    """Age the other groups, and suspect all members of one that was silent too long.

    The entry of a group without members here ages too: a late message may have reset it, and a young entry would keep
    the group alive at other members.
    """
    for k in range(state.silent_groups.shape[1]):
        if k == own:
            continue
        state.silent_groups[row, k] = min(state.silent_groups[row, k] + 1, state.group_threshold)
        if state.silent_groups[row, k] == state.group_threshold:
            for place in range(state.first[k], state.first[k + 1]):
                if rank_sets.contains(state.group.members[row], state.order[place]):
                    suspect(mail, state.order[place])


@linked
def _merge_local(state, row, own, numbers):
    for place in range(state.first[own], state.first[own + 1]):
        rank = state.order[place]
        if rank_sets.contains(state.group.members[row], rank):
            state.silent[row, rank] = min(state.silent[row, rank], numbers[place - state.first[own]])


@linked
def _suspect_failed(state, row, mail, failed):
    """Suspect the failed members that another member reports, except this one, and add them to F."""
    me = state.group.rank[row]
    for k in range(state.failed.shape[1]):
        if (failed[k] & ~state.failed[row, k]) != np.uint64(0):
            for rank in range(64 * k, min(64 * (k + 1), state.silent.shape[1])):
                if rank != me and rank_sets.contains(failed, rank) and not rank_sets.contains(state.failed[row], rank):
                    rank_sets.add(state.failed[row], rank)
                    if rank_sets.contains(state.group.members[row], rank):
                        suspect(mail, rank)


@linked
def _draft(state, row, mail, kind, own, size):
    """Draft a message with L2 and F, and with L if it is local."""
    slot = draft(mail, kind, -1, size)
    entries = 0
    if kind == LOCAL:
        for place in range(state.first[own], state.first[own + 1]):
            mail.numbers[slot, entries] = state.silent[row, state.order[place]]
            entries += 1
    for k in range(state.silent_groups.shape[1]):
        mail.numbers[slot, entries + k] = state.silent_groups[row, k]
    for k in range(state.failed.shape[1]):
        mail.bits[slot, k] = state.failed[row, k]
    return slot


@linked
def _choose(state, row, begin, end):
    """Draw distinct other members from order[begin : end]; return how many were drawn."""
    for k in range(state.chosen.shape[0]):
        rank = _draw_one(state, row, begin, end, k)
        if rank < 0:
            return k
        state.chosen[k] = rank
    return state.chosen.shape[0]


@linked
def _draw_one(state, row, begin, end, drawn):
    size = end - begin
    place = 0
    for _ in range(DRAWS):
        place = below(state.random[row], size)
        if _is_eligible(state, row, state.order[begin + place], drawn):
            return state.order[begin + place]
    for step in range(size):
        rank = state.order[begin + (place + step) % size]
        if _is_eligible(state, row, rank, drawn):
            return rank
    return -1


@linked
def _is_eligible(state, row, rank, drawn):
    if rank == state.group.rank[row] or not rank_sets.contains(state.group.members[row], rank):
        return False
    for k in range(drawn):
        if state.chosen[k] == rank:
            return False
    return True


@linked
def _draw_elsewhere(state, row, own):
    """A member of another local group, or −1."""
    members = state.silent.shape[1]
    rank = 0
    for _ in range(DRAWS):
        rank = below(state.random[row], members)
        if state.local_group[rank] != own and rank_sets.contains(state.group.members[row], rank):
            return rank
    for step in range(members):
        other = (rank + step) % members
        if state.local_group[other] != own and rank_sets.contains(state.group.members[row], other):
            return other
    return -1


def _resolve(parameters: StructuredGossipParameters, context: Context) -> StructuredGossipParameters:
    sized = replace(parameters, group_size=parameters.group_size or _shortest(context))
    largest, groups = _largest(context, sized), len(_divide(context, sized))
    subset = max(1, min(parameters.subset, largest - 1))
    threshold = parameters.threshold
    if threshold is None:
        threshold = k_fail(
            members=max(largest, 2),
            p_mistake=parameters.p_mistake / groups,
            step_s=parameters.step_ms / 1e3,
            subset=subset,
            arrival=context.network.arrival,
        ).k_fail
    doublings = int(np.ceil(np.log2(groups)))
    group_threshold = parameters.group_threshold or threshold * (1 + doublings)
    return replace(sized, subset=subset, threshold=threshold, group_threshold=group_threshold)


PROTOCOL = Protocol(
    name="structured_gossip",
    title="Structured gossip detection",
    family="failure",
    paper="guo §3.1.2",
    summary="live arrays spread by gossip in local groups, failed members between the groups",
    state=StructuredGossipState,
    messages=MESSAGES,
    parameters=StructuredGossipParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda context, parameters: _largest(context, parameters) + len(_divide(context, parameters)),
)

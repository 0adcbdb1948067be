"""S_Gossip: gossip in local groups, then among their controllers (guo §4.3.3, Fig 4.13).

The group is divided into local groups of at most `group_size` members, "according to their location on the network":
each fills branches of the network's tree (`Context.local_groups`). Without a network, or with `shuffled`, they are
equal slices of a list. In the first phase every member gossips (M, W, r) inside its local group. A stability controller
(the first G live members of each local group are its controllers) that has heard from its whole local group begins the
second phase: it gossips the local minima it has gathered, and the set of their local groups, to controllers of all
groups. The first controller that holds all of them multicasts INFO(S).

| field         | shape        | meaning                                                                       |
|---------------|--------------|-------------------------------------------------------------------------------|
| order         | n            | the members, one local group after the other                                  |
| first         | groups + 1   | the local group g is order[first[g] : first[g + 1]]                           |
| local_group   | n            | the local group of every member                                               |
| local_bytes   | groups       | the size of a LOCAL message in each local group                               |
| round, done   | rows         | r, and the newest round whose S this member knows                             |
| minimum       | rows × m     | M: the minimum of R over the members in `heard`                               |
| heard         | rows × words | W: the members of the local group it has heard from                           |
| gathered      | rows × m     | the minimum over the local groups in `groups`                                 |
| groups        | rows × words | the local groups whose minimum is in `gathered`                               |
| stream        | rows × 2     | each member's own random numbers                                              |
| targets       | subset       | the subset being chosen                                                       |

Invariants: `minimum ≤ R_k` for every k in `heard`; `gathered ≤ R_k` for every live k of a local group in `groups`.

Steps, offsets, the ending (optimised), Δ and the answer to a late member are those of Gossip. A message of the first
phase costs 36 + 4m + ⌈g/8⌉ bytes for a local group of g members, a message of the second 36 + 4m + ⌈G/8⌉ for G local
groups.

Faults: the next live member of a local group replaces a controller that has left; it has gossiped from the start, so it
knows what the others know. No member waits for a local group without live members.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol, Steps
from cubecast.protocol.group import (
    GroupState,
    copy_numbers,
    fold,
    learn_stable,
)
from cubecast.protocol.local_groups import as_arrays
from cubecast.protocol.mail import (
    begin_round,
    draft,
    end_round,
    multicast,
    rest,
    send,
    set_timer,
)
from cubecast.protocol.messages import bit_set, message, message_sizes, per_sender
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below, new_streams, uniform
from cubecast.protocols.stability.gossiping import (
    TRIES,
    choose_subset,
    is_among,
    merge_news,
    others_at_most,
    resolve_step_s,
)
from cubecast.protocols.stability.logical_tree import logical_order

LOCAL, AMONG_CONTROLLERS, INFO = range(3)
STEP, NEXT_ROUND = range(2)


LOCAL_GROUP = 50  # members of a local group (guo §5.4)


@dataclass(frozen=True, kw_only=True)
class SGossipParameters:
    """Parameters of S_Gossip."""

    group_size: int = parameter(LOCAL_GROUP, "The largest size of a local group (guo §5.4).", at_least=2, search=(10,))
    controllers: int = parameter(2, "Stability controllers of a local group.", at_least=1)
    subset: int = parameter(
        1, "How many members a member sends to in one step; at most all others.", at_least=1, search=(2,)
    )
    step_s: float | None = parameter(
        None,
        "The step interval, in seconds.",
        at_least=1e-9,
        otherwise="by step_rule",
        search_factors=(0.5, 2.0),
    )
    step_rule: Literal["automatic", "table", "group-table"] = parameter(
        "automatic",
        "Without step_s: as the busiest link needs, or guo Table 5.1 (its row for a local group or for the group).",
    )
    step_scale: float = parameter(1.0, "Factor on the step interval of step_rule.", at_least=1e-9)
    shuffled: bool = parameter(False, "Local groups ignore where members are.")


def _divide(context: Context, parameters: SGossipParameters) -> list[np.ndarray]:
    """The ranks of every local group."""
    size = parameters.group_size
    if context.local_groups is not None and not parameters.shuffled:
        return [np.array(group) for group in context.local_groups(size)]
    order = logical_order(context, shuffled=parameters.shuffled)
    return [order[first : first + size] for first in range(0, len(order), size)]


_GROUP = bit_set("local group", lambda context, parameters: max(map(len, _divide(context, parameters))))
_GROUPS = bit_set("local groups", lambda context, parameters: len(_divide(context, parameters)))
MESSAGES = (
    message("LOCAL", round=4, minimum=per_sender(4), heard=_GROUP),
    message("AMONG_CONTROLLERS", round=4, gathered=per_sender(4), groups=_GROUPS),
    message("INFO", round=4, stable=per_sender(4)),
)


class SGossipState(NamedTuple):
    """S_Gossip, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    step_ns: int
    controllers: int
    sizes: np.ndarray
    order: np.ndarray
    first: np.ndarray
    local_group: np.ndarray
    local_bytes: np.ndarray
    round: np.ndarray
    done: np.ndarray
    minimum: np.ndarray
    heard: np.ndarray
    gathered: np.ndarray
    groups: np.ndarray
    stream: np.ndarray
    targets: np.ndarray


def build(group: GroupState, context: Context, parameters: SGossipParameters) -> SGossipState:
    """S_Gossip before its first round."""
    rows = len(group.rank)
    local = as_arrays(_divide(context, parameters))
    sizes = message_sizes(MESSAGES, context, parameters)
    return SGossipState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        step_ns=round((parameters.step_s or 0) * 1e9),
        controllers=parameters.controllers,
        sizes=sizes,
        order=local.order,
        first=local.first,
        local_group=local.of_rank,
        # The bitmap of a smaller local group is shorter.
        local_bytes=sizes[LOCAL] - (local.lengths.max() + 7) // 8 + (local.lengths + 7) // 8,
        round=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        minimum=np.zeros_like(group.received),
        heard=rank_sets.empty(len(group.rank), context.members),
        gathered=np.zeros_like(group.received),
        groups=np.zeros((rows, rank_sets.words_for(len(local.lengths))), np.uint64),
        stream=new_streams(context.seed, "s_gossip", group.rank),
        targets=np.zeros(parameters.subset, np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Begin the first round, and gossip first at a random offset inside the step."""
    _enter_round(state, row, mail, state.done[row] + 1)
    set_timer(mail, STEP, 0, np.int64(uniform(state.stream[row]) * state.step_ns))
    _advance(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle gossip of the local group, gossip among controllers, or the result."""
    kind = mail.heads[slot].kind
    number = mail.heads[slot].round_number
    if kind == INFO:
        learn_stable(state.group, row, mail.numbers[slot])
        _end_rounds(state, row, mail, number)
    elif number <= state.done[row]:
        if state.repeat_ns > 0:
            send(mail, _draft_info(state, row, mail), mail.heads[slot].source)
    elif number >= state.round[row]:
        if number > state.round[row]:
            _enter_round(state, row, mail, number)
        if kind == LOCAL:
            merge_news(state.group, state.minimum[row], state.heard[row], mail.numbers[slot], mail.bits[slot])
        else:
            words = state.groups.shape[1]
            merge_news(state.group, state.gathered[row], state.groups[row], mail.numbers[slot], mail.bits[slot, :words])
        _advance(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Gossip at the end of a step, or begin the next round when Δ is over."""
    if timer == STEP:
        if state.done[row] < state.round[row]:
            _gossip(state, row, mail)
        set_timer(mail, STEP, 0, state.step_ns)
    elif state.done[row] == tag and state.round[row] == tag:
        _enter_round(state, row, mail, tag + 1)
        _advance(state, row, mail)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for a member that left; the present controllers continue."""
    if state.done[row] < state.round[row]:
        _advance(state, row, mail)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    copy_numbers(state.minimum[row], state.group.received[row])
    rank_sets.only(state.heard[row], state.group.rank[row])
    rank_sets.clear(state.groups[row])
    begin_round(mail, number)


@linked
def _advance(state, row, mail):
    """Add a complete local result to the second phase, and end the round when all local results are there."""
    mine = state.local_group[state.group.rank[row]]
    if not rank_sets.contains(state.groups[row], mine):
        if not _is_controller(state, row) or not _has_heard_group(state, row, mine):
            return
        _gather(state, row, mine)
    if _has_all_groups(state, row):
        number = state.round[row]
        learn_stable(state.group, row, state.gathered[row])
        multicast(mail, _draft_array(state, mail, INFO, number, state.group.stable[row]))
        _end_rounds(state, row, mail, number)


@linked
def _gather(state, row, mine):
    """Merge the local minimum into those gathered."""
    if rank_sets.lowest(state.groups[row]) < 0:
        copy_numbers(state.gathered[row], state.minimum[row])
    else:
        fold(state.group, state.gathered[row], state.minimum[row])
    rank_sets.add(state.groups[row], mine)


@linked
def _has_heard_group(state, row, which):
    members = state.group.members[row]
    for place in range(state.first[which], state.first[which + 1]):
        rank = state.order[place]
        if rank_sets.contains(members, rank) and not rank_sets.contains(state.heard[row], rank):
            return False
    return True


@linked
def _has_all_groups(state, row):
    for which in range(_group_count(state)):
        if not rank_sets.contains(state.groups[row], which) and _controller(state, row, which, 0) >= 0:
            return False
    return True


@linked
def _group_count(state):
    return state.local_bytes.shape[0]


@linked
def _controller(state, row, which, turn):
    """The `turn`-th controller of a local group; −1 if it has fewer live members."""
    members = state.group.members[row]
    for place in range(state.first[which], state.first[which + 1]):
        if rank_sets.contains(members, state.order[place]):
            if turn == 0:
                return state.order[place]
            turn -= 1
    return np.int64(-1)


@linked
def _is_controller(state, row):
    me = state.group.rank[row]
    mine = state.local_group[me]
    for turn in range(state.controllers):
        if _controller(state, row, mine, turn) == me:
            return True
    return False


@linked
def _end_rounds(state, row, mail, number):
    """End this round and every earlier one, whose S is now known; rest for Δ."""
    if number <= state.done[row]:
        return
    state.done[row] = number
    end_round(mail, number)
    if state.round[row] <= number:
        state.round[row] = number
        rest(mail, NEXT_ROUND, number, state.delta_ns)


@linked
def _gossip(state, row, mail):
    me = state.group.rank[row]
    mine = state.local_group[me]
    if rank_sets.contains(state.groups[row], mine) and _is_controller(state, row):
        _gossip_to_controllers(state, row, mail)
        return
    first = state.first[mine]
    size = state.first[mine + 1] - first
    slot = _draft_array(state, mail, LOCAL, state.round[row], state.minimum[row])
    mail.heads[slot].size_bytes = state.local_bytes[mine]
    rank_sets.copy(mail.bits[slot], state.heard[row])
    chosen = choose_subset(state.stream[row], state.order, first, size, state.group.members[row], me, state.targets)
    for k in range(chosen):
        send(mail, slot, state.targets[k])


@linked
def _gossip_to_controllers(state, row, mail):
    slot = _draft_array(state, mail, AMONG_CONTROLLERS, state.round[row], state.gathered[row])
    rank_sets.clear(mail.bits[slot])
    for k in range(state.groups.shape[1]):
        mail.bits[slot, k] = state.groups[row, k]
    for chosen in range(state.targets.shape[0]):
        rank = _choose_controller(state, row, chosen)
        if rank < 0:
            break
        state.targets[chosen] = rank
        send(mail, slot, rank)


@linked
def _choose_controller(state, row, chosen):
    """Draw a live controller other than this member and those chosen; −1 if there is none."""
    me = state.group.rank[row]
    count = _group_count(state)
    for _ in range(TRIES):
        rank = _controller(state, row, below(state.stream[row], count), below(state.stream[row], state.controllers))
        if rank >= 0 and rank != me and not is_among(state.targets, chosen, rank):
            return rank
    for which in range(count):
        for turn in range(state.controllers):
            rank = _controller(state, row, which, turn)
            if rank >= 0 and rank != me and not is_among(state.targets, chosen, rank):
                return rank
    return np.int64(-1)


@linked
def _draft_info(state, row, mail):
    return _draft_array(state, mail, INFO, state.done[row], state.group.stable[row])


@linked
def _draft_array(state, mail, kind, number, numbers):
    width = numbers.shape[0]
    slot = draft(mail, kind, number, state.sizes[kind])
    copy_numbers(mail.numbers[slot, :width], numbers)
    return slot


def _resolve(parameters: SGossipParameters, context: Context) -> SGossipParameters:
    """Local groups that follow the network are apart: a link carries the gossip of one of them.

    The rows of Table 5.1 are by group size, and the study does not say which one S_Gossip uses (§5.6.1).
    """
    subset = others_at_most(parameters.subset, context.members)
    together = parameters.shuffled or parameters.step_rule == "group-table"
    gossiping = context.members if together else min(context.members, parameters.group_size)
    step_s = resolve_step_s(parameters, context, gossiping, subset)
    return replace(parameters, subset=subset, step_s=step_s)


def _steps(parameters: SGossipParameters, context: Context) -> Steps:
    return Steps(round((parameters.step_s or 0) * 1e9), context.members * parameters.subset)


PROTOCOL = Protocol(
    name="s_gossip",
    title="S_Gossip",
    family="stability",
    paper="guo §4.3.3",
    summary="gossip in local groups, then among their controllers",
    state=SGossipState,
    messages=MESSAGES,
    parameters=SGossipParameters,
    build=build,
    resolve=_resolve,
    steps=_steps,
    colour="#F0E442",
)

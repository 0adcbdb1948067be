"""Gossip: in every step, every member sends what it has gathered to a random subset (guo §4.2.4, Figs 4.5–4.6).

State M (the minimum so far), W (the members heard from), S and the round r. Every step interval a member sends
(M, W, r) to `subset` members drawn at random; members begin at random offsets inside the first step. A member merges
the M and W of a message of its own round; when W covers the membership, M is S.

| field   | shape        | meaning                                                                             |
|---------|--------------|-------------------------------------------------------------------------------------|
| round   | rows         | r: the current round                                                                |
| done    | rows         | the newest round whose S this member knows                                          |
| minimum | rows × m     | M: the minimum of R over the members in `heard`                                     |
| heard   | rows × words | W: the members whose R is in `minimum`                                              |
| stream  | rows × 2     | each member's own random numbers                                                    |
| order   | n, or scopes | the ranks to choose from; with `ttl` the ranks in scope of each row, row after row  |
| first   | rows         | where in `order` the ranks for a row begin                                          |
| choice  | rows         | the number of these ranks                                                           |
| targets | subset       | the subset being chosen                                                             |

Invariants: `minimum ≤ R_k` for every k in `heard`, so a covering W is never premature; `done ≤ round`.

Two endings. *Piggyback*: a member whose W covers the membership begins the next round at once, and piggybacks S on
every gossip from then on; if no further round is wanted, it still gossips its full W. *Optimised*: it multicasts
INFO(S); all members rest until Δ is over, then the next round begins. If messages can be lost (`repeat_ns > 0`), a
member that hears gossip of a finished round answers with its S, instead of the paper's occasional piggyback. Nothing
else is repeated: gossip repeats itself.

With `ttl` a member does not choose: like an IP packet with that time-to-live, gossip reaches all members within that
many hops of the network, which a member need not know by name. News then travels `ttl` hops per step, and the members
that are up must be connected by such hops.

Size (guo §5.2): 36 + 4m + ⌈n/8⌉ bytes: header, round, M and W. The paper's figure has no room for S; when S is
piggybacked (from the second round on), its 4m bytes are added.

Departures: a gossip of limited scope is one message to each member in it, where IP would send one copy per link. A
member that enters a later round merges its own R (Fig 4.6 as printed would certify a round it took no part in). A
message more than one round ahead, possible once messages are lost, is treated like one of the next round.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol, Steps
from cubecast.protocol.group import GroupState, copy_numbers, learn_stable
from cubecast.protocol.mail import (
    begin_round,
    draft,
    end_round,
    multicast,
    rest,
    send,
    set_timer,
)
from cubecast.protocol.messages import member_set, message, message_sizes, per_sender
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import new_streams, uniform
from cubecast.protocols.stability.gossiping import choose_subset, merge_news, others_at_most, resolve_step_s, scope

GOSSIP, INFO, GOSSIP_AND_RESULT = range(3)
STEP, NEXT_ROUND = range(2)
MESSAGES = (
    message("GOSSIP", round=4, minimum=per_sender(4), heard=member_set()),
    message("INFO", round=4, stable=per_sender(4)),
    # The size of GOSSIP with a piggybacked S; it is of the same kind.
    message("GOSSIP_AND_RESULT", round=4, minimum=per_sender(4), heard=member_set(), stable=per_sender(4)),
)


@dataclass(frozen=True, kw_only=True)
class GossipParameters:
    """Parameters of Gossip."""

    subset: int = parameter(
        1, "How many members a member sends to in one step; at most all others.", at_least=1, search=(2, 4)
    )
    step_s: float | None = parameter(
        None,
        "The step interval, in seconds.",
        at_least=1e-9,
        otherwise="by step_rule",
        search_factors=(0.5, 2.0),
    )
    step_rule: Literal["automatic", "table"] = parameter(
        "automatic",
        "Without step_s: the time that the busiest link needs for a step, or guo Table 5.1 (50 to 500 members).",
    )
    step_scale: float = parameter(1.0, "Factor on the step interval of step_rule.", at_least=1e-9)
    ttl: int | None = parameter(
        None,
        "Gossip goes to all members within this many hops of the network (guo §4.2.4); the step interval is the same.",
        at_least=1,
        otherwise="to a random subset",
    )
    ending: Literal["optimised", "piggyback"] = parameter(
        "optimised", "The result is multicast, or piggybacked on later gossip.", search=("piggyback",)
    )


class GossipState(NamedTuple):
    """Gossip, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    step_ns: int
    piggyback: int
    sizes: np.ndarray
    round: np.ndarray
    done: np.ndarray
    minimum: np.ndarray
    heard: np.ndarray
    stream: np.ndarray
    order: np.ndarray
    first: np.ndarray
    choice: np.ndarray
    targets: np.ndarray


def _choices(group: GroupState, context: Context, ttl: int | None) -> list[np.ndarray]:
    """For each row the ranks to choose from; one list for all rows if every member may be chosen."""
    if ttl is None:
        return [np.arange(context.members)]
    if context.overlay is None:
        raise LocalProtocolError("ttl: hops are known where every node of the network is a member", setting="ttl")
    return [np.array(scope(context.overlay, int(rank), ttl), np.int64) for rank in group.rank]


def build(group: GroupState, context: Context, parameters: GossipParameters) -> GossipState:
    """Gossip before its first round."""
    rows = len(group.rank)
    choices = _choices(group, context, parameters.ttl)
    lengths = np.array([len(one) for one in choices])
    targets = parameters.subset if parameters.ttl is None else max(1, int(lengths.max()))
    return GossipState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        step_ns=round((parameters.step_s or 0) * 1e9),
        piggyback=int(parameters.ending == "piggyback"),
        sizes=message_sizes(MESSAGES, context),
        round=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        minimum=np.zeros_like(group.received),
        heard=rank_sets.empty(len(group.rank), context.members),
        stream=new_streams(context.seed, "gossip", group.rank),
        order=np.concatenate(choices),
        first=np.broadcast_to(np.cumsum(lengths) - lengths, rows).copy(),
        choice=np.broadcast_to(lengths, rows).copy(),
        targets=np.zeros(targets, np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Begin the first round, and gossip first at a random offset inside the step."""
    _enter_round(state, row, mail, state.done[row] + 1)
    set_timer(mail, STEP, 0, np.int64(uniform(state.stream[row]) * state.step_ns))
    _finish_if_covered(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle gossip (Fig 4.6), or the multicast result."""
    number = mail.heads[slot].round_number
    if mail.heads[slot].kind == INFO:
        learn_stable(state.group, row, mail.numbers[slot])
        _end_rounds(state, row, mail, number)
        return
    if state.piggyback != 0:
        learn_stable(state.group, row, mail.numbers[slot, state.minimum.shape[1] :])
        if number > state.round[row]:
            _end_rounds(state, row, mail, number - 1)
    elif number <= state.done[row]:
        if state.repeat_ns > 0:
            send(mail, _draft_info(state, row, mail), mail.heads[slot].source)
        return
    if number < state.round[row] or number <= state.done[row]:
        return
    if number > state.round[row]:
        _enter_round(state, row, mail, number)
    merge_news(state.group, state.minimum[row], state.heard[row], mail.numbers[slot], mail.bits[slot])
    _finish_if_covered(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Gossip at the end of a step, or begin the next round when Δ is over."""
    if timer == STEP:
        if state.done[row] < state.round[row] or state.piggyback != 0:
            _gossip(state, row, mail)
        set_timer(mail, STEP, 0, state.step_ns)
    elif state.done[row] == tag and state.round[row] == tag:
        _enter_round(state, row, mail, tag + 1)
        _finish_if_covered(state, row, mail)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for the bit of a member that left."""
    if state.done[row] < state.round[row]:
        _finish_if_covered(state, row, mail)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    copy_numbers(state.minimum[row], state.group.received[row])
    rank_sets.only(state.heard[row], state.group.rank[row])
    begin_round(mail, number)


@linked
def _finish_if_covered(state, row, mail):
    if not rank_sets.covers(state.heard[row], state.group.members[row]):
        return
    number = state.round[row]
    learn_stable(state.group, row, state.minimum[row])
    if state.piggyback == 0:
        multicast(mail, _draft_array(state, mail, number, state.group.stable[row]))
    _end_rounds(state, row, mail, number)


@linked
def _end_rounds(state, row, mail, number):
    """End this round and every earlier one, whose S is now known; rest for Δ, except with the piggyback ending."""
    if number <= state.done[row]:
        return
    state.done[row] = number
    end_round(mail, number)
    if state.round[row] <= number:
        state.round[row] = number
        # Otherwise a member that is alone would end rounds without any delay between them.
        alone = rank_sets.count(state.group.members[row]) == 1
        rest(mail, NEXT_ROUND, number, 0 if state.piggyback != 0 and not alone else state.delta_ns)


@linked
def _gossip(state, row, mail):
    width = state.minimum.shape[1]
    slot = draft(mail, GOSSIP, state.round[row], state.sizes[GOSSIP])
    copy_numbers(mail.numbers[slot, :width], state.minimum[row])
    rank_sets.copy(mail.bits[slot], state.heard[row])
    if state.piggyback != 0:
        copy_numbers(mail.numbers[slot, width : 2 * width], state.group.stable[row])
        if state.done[row] > 0:
            mail.heads[slot].size_bytes = state.sizes[GOSSIP_AND_RESULT]
    chosen = choose_subset(
        state.stream[row],
        state.order,
        state.first[row],
        state.choice[row],
        state.group.members[row],
        state.group.rank[row],
        state.targets,
    )
    for k in range(chosen):
        send(mail, slot, state.targets[k])


@linked
def _draft_info(state, row, mail):
    return _draft_array(state, mail, state.done[row], state.group.stable[row])


@linked
def _draft_array(state, mail, number, numbers):
    width = numbers.shape[0]
    slot = draft(mail, INFO, number, state.sizes[INFO])
    copy_numbers(mail.numbers[slot, :width], numbers)
    return slot


def _resolve(parameters: GossipParameters, context: Context) -> GossipParameters:
    subset = others_at_most(parameters.subset, context.members)
    step_s = resolve_step_s(parameters, context, context.members, subset)
    return replace(parameters, subset=subset, step_s=step_s)


def _steps(parameters: GossipParameters, context: Context) -> Steps:
    return Steps(round((parameters.step_s or 0) * 1e9), context.members * parameters.subset)


PROTOCOL = Protocol(
    name="gossip",
    title="Gossip",
    family="stability",
    paper="guo §4.2.4",
    summary="minima spread to random members, step by step",
    state=GossipState,
    messages=MESSAGES,
    parameters=GossipParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda context, parameters: (2 if parameters.ending == "piggyback" else 1) * context.senders,
    steps=_steps,
    sends_per_member=lambda _members, parameters: 12 * parameters.subset,
    colour="#56B4E9",
)

"""Dissemination: the dissemination barrier with a minimum instead of a signal (Hensgen, Finkel and Manber 1988).

A round: in step k a member sends the minimum it knows to the members r·bᵏ places ahead, r = 1 … b−1, and waits for the
members as many places behind. A minimum that covers bᵏ places then covers bᵏ⁺¹; after ⌈log_b n⌉ steps it covers all
places, and is S. This takes at most (b−1)·n·⌈log_b n⌉ messages for any n, each of a size that does not depend on n.

| field   | shape | meaning                                                                              |
|---------|-------|--------------------------------------------------------------------------------------|
| links   |       | places, inputs, outputs and minima of every step (`aggregation`)                     |
| round   | rows  | the newest round this member has begun                                               |
| ended   | rows  | the newest round that it ended with the present membership                           |
| done    | rows  | the newest round whose S it knows                                                    |
| skipped | rows  | rounds that the driver requested while nothing was unstable: ended without a message |

Invariants: `ended ≤ round`, `done ≤ round`. To the driver round w is round w + `skipped`.

*Soundness* is that of `aggregation`: a vector heard in any round is at most the present R of all members it covers, so
rounds only determine when to send. A vector of a later round counts for an earlier one too, and a member that hears of
a later round joins it: no member waits for a round that others have left.

*Repair.* When a member is excluded or joins, places are re-indexed over the current members, what was heard is
discarded, and the round starts again from R, also at members that had ended it: others need their minima in the new
places. A member that starts again asks its inputs, since their messages of the new view may have arrived too early.
Lossy form (`repeat_ns > 0`): a member that has not ended its round asks again, every `repeat_ns`, for what it has not
heard. A member that is asked joins the round, and answers once it has reached that step. A quiet group sends nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, learn_stable
from cubecast.protocol.mail import begin_round, end_round, rest, set_timer
from cubecast.protocol.messages import message, message_sizes, per_sender
from cubecast.protocol.parameters import parameter
from cubecast.protocols.stability.aggregation import (
    ASK,
    DISSEMINATION,
    IDLE_NS,
    RADIX_MAX,
    Aggregation,
    aggregation_traffic,
    answer,
    ask_missing,
    compute_minima,
    is_unstable,
    link,
    new_aggregation,
    send_ready,
    take,
    view_of,
)

MESSAGES = (
    message("MINIMUM", round=4, view=4, minimum=per_sender(4)),
    message("ASK", round=4, view=4, ready=4, heard=4, minimum=per_sender(4)),
)
NEXT_ROUND, REPEAT = range(2)


@dataclass(frozen=True, kw_only=True)
class DisseminationParameters:
    """Parameters of Dissemination."""

    radix: int = parameter(
        2,
        "Each step multiplies the members that a member covers by this factor: more messages, fewer steps.",
        at_least=2,
        at_most=RADIX_MAX,
        search=(4, 8),
    )


class DisseminationState(NamedTuple):
    """Dissemination, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    links: Aggregation
    round: np.ndarray
    ended: np.ndarray
    done: np.ndarray
    skipped: np.ndarray


def build(group: GroupState, context: Context, parameters: DisseminationParameters) -> DisseminationState:
    """Dissemination before its first round. `repeat_ns = 0` is the reliable form."""
    rows = len(group.rank)
    sizes = message_sizes(MESSAGES, context)
    return DisseminationState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        links=new_aggregation(group, context, overlay=DISSEMINATION, fanout=parameters.radix, sizes=sizes),
        round=np.zeros(rows, np.int64),
        ended=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        skipped=np.zeros(rows, np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Open the first round, as every member does; a newcomer asks for the round in progress."""
    link(state.links, state.group, row)
    if now_ns > 0:
        ask_missing(state.links, state.group, row, mail, 1)
    if state.round[row] == 0:
        _enter_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle the minimum of an input, or a request for this member's."""
    if view_of(mail, slot) != state.links.view_seen[row]:
        return
    take(state.links, row, mail, slot)
    number = mail.heads[slot].round_number
    if number > state.round[row]:
        _enter_round(state, row, mail, number)
        return
    if mail.heads[slot].kind == ASK:
        answer(state.links, state.group, row, mail, slot, state.round[row], state.repeat_ns > 0)
    _advance(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Begin the next round when Δ is over; ask for overdue minima of this round."""
    if timer == NEXT_ROUND:
        if tag == state.done[row] + state.skipped[row] and state.round[row] == state.done[row]:
            _enter_or_skip(state, row, mail)
    elif state.round[row] == tag and state.ended[row] < tag:
        ask_missing(state.links, state.group, row, mail, tag)
        set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """The places change."""
    _restart(state, row, mail)


@linked
def on_join(state, row, now_ns, mail, rank):
    """The places change."""
    _restart(state, row, mail)


@linked
def _restart(state, row, mail):
    """Start again in a new view: the members that the minima heard so far cover are no longer known."""
    link(state.links, state.group, row)
    if state.round[row] == 0:
        return
    had_ended = state.ended[row] == state.round[row]
    state.ended[row] = 0
    ask_missing(state.links, state.group, row, mail, state.round[row])
    if had_ended and state.repeat_ns > 0:
        set_timer(mail, REPEAT, state.round[row], state.repeat_ns)
    _advance(state, row, mail)


@linked
def _enter_or_skip(state, row, mail):
    """Begin the next round; while nothing is unstable, end it without a message."""
    if is_unstable(state.group, row):
        _enter_round(state, row, mail, state.round[row] + 1)
        return
    state.skipped[row] += 1
    number = state.round[row] + state.skipped[row]
    begin_round(mail, number)
    end_round(mail, number)
    rest(mail, NEXT_ROUND, number, max(state.delta_ns, IDLE_NS))


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    begin_round(mail, number + state.skipped[row])
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)
    _advance(state, row, mail)


@linked
def _advance(state, row, mail):
    """Take the steps whose minima have arrived; once all places are covered, the minimum is S.

    This may end a round before the newest: otherwise a member that always hears of the next round first would end none.
    """
    ready = send_ready(state.links, state.group, row, mail, state.round[row])
    if ready <= state.ended[row]:
        return
    state.ended[row] = ready
    compute_minima(state.links, state.group, row)
    learn_stable(state.group, row, state.links.minimum[state.links.top[row]])
    if ready > state.done[row]:
        state.done[row] = ready
        end_round(mail, ready + state.skipped[row])
        rest(mail, NEXT_ROUND, ready + state.skipped[row], state.delta_ns)


def _sends(members: int, parameters: DisseminationParameters) -> float:
    """(b−1)·⌈log_b n⌉."""
    steps, covered = 0, 1
    while covered < members:
        steps, covered = steps + 1, covered * parameters.radix
    return float((parameters.radix - 1) * steps)


PROTOCOL = Protocol(
    name="dissemination",
    title="Dissemination",
    family="stability",
    paper="own, after Hensgen, Finkel and Manber 1988",
    summary="minima travel ahead in strides that grow by a radix",
    state=DisseminationState,
    messages=MESSAGES,
    parameters=DisseminationParameters,
    build=build,
    sends_per_member=_sends,
    traffic=lambda context, parameters: aggregation_traffic(context.members, DISSEMINATION, parameters.radix),
    colour="#56B4E9",
)

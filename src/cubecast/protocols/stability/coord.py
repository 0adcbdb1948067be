"""Coord: one coordinator collects every member's R and multicasts the minimum (cube §2.1, Fig 1; guo §4.2.1).

A round: the coordinator multicasts START; each member answers ACK(R); when the coordinator has every member's ACK, it
multicasts INFO(S). The coordinator is the lowest rank alive.

| field    | shape        | meaning                                                                        |
|----------|--------------|--------------------------------------------------------------------------------|
| round    | rows         | the newest round this member knows of                                          |
| done     | rows         | the newest round whose S this member knows                                     |
| phase    | rows         | as coordinator: IDLE, COLLECTING ACKs, INFORMING, or WAITING for Δ             |
| minimum  | rows × m     | M: as coordinator, the minimum of the ACKs of this round                       |
| acked    | rows × words | as coordinator: the members whose ACK has arrived                              |
| informed | rows × words | as coordinator: the members whose ACK_INFO has arrived (lossy form)            |

Invariants: `done ≤ round`; a coordinator holds `minimum ≤ R` of every member in `acked`, so S is never premature.

CoordP of guo is this protocol; the two papers differ in what they repeat. Lossy form (cube §3.5), when `repeat_ns >
0`: every message carries its round; the coordinator repeats START to the members whose ACK is missing, and INFO to
those whose ACK_INFO is missing. With `repeat_acks` members also repeat their ACK without a request, until they know S
(guo §4.2.1, which leaves START and INFO to a reliable multicast). Departures from the paper: repeats are sent only to
the members whose answer is missing, not to all; and when the coordinator leaves the membership, the next lowest rank
runs the unfinished round again (guo §4.1). A member that is ahead of the new coordinator reports its round in its ACK,
and the new coordinator continues with that round.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import (
    GroupState,
    copy_numbers,
    fold,
    is_lowest,
    learn_stable,
)
from cubecast.protocol.mail import (
    begin_round,
    draft,
    end_round,
    multicast,
    rest,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, per_sender, where_lossy
from cubecast.protocol.parameters import parameter
from cubecast.protocol.traffic import Traffic, pairs, to_all, together

START, ACK, INFO, ACK_INFO = range(4)
NEXT_ROUND, REPEAT, REPEAT_ACK = range(3)
IDLE, COLLECTING, INFORMING, WAITING = range(4)
MESSAGES = (
    message("START", round=where_lossy(4)),
    message("ACK", round=where_lossy(4), received=per_sender(4)),
    message("INFO", round=where_lossy(4), stable=per_sender(4)),
    message("ACK_INFO", round=where_lossy(4)),
)


@dataclass(frozen=True, kw_only=True)
class CoordParameters:
    """Parameters of Coord."""

    repeat_acks: bool = parameter(False, "Members repeat their ACKs without a request (guo §4.2.1).")


class CoordState(NamedTuple):
    """Coord, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    repeat_acks: int
    sizes: np.ndarray
    round: np.ndarray
    done: np.ndarray
    phase: np.ndarray
    minimum: np.ndarray
    acked: np.ndarray
    informed: np.ndarray


def build(group: GroupState, context: Context, parameters: CoordParameters) -> CoordState:
    """Coord before its first round. `repeat_ns = 0` is the reliable FIFO form."""
    rows = len(group.rank)
    return CoordState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        repeat_acks=int(parameters.repeat_acks and context.repeat_ns > 0),
        sizes=message_sizes(MESSAGES, context),
        round=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        phase=np.zeros(rows, np.int64),
        minimum=np.zeros_like(group.received),
        acked=rank_sets.empty(len(group.rank), context.members),
        informed=rank_sets.empty(len(group.rank), context.members),
    )


@linked
def start(state, row, now_ns, mail):
    """The coordinator opens the first round."""
    if is_lowest(state.group, row):
        _open_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Fig 1, lines 2 and 8–12."""
    kind = mail.heads[slot].kind
    if kind == START:
        _on_start(state, row, mail, slot)
    elif kind == ACK:
        _on_ack(state, row, mail, slot)
    elif kind == INFO:
        _on_info(state, row, mail, slot)
    else:
        _on_ack_info(state, row, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Open the next round when Δ is over, or repeat what was not answered."""
    if timer == REPEAT_ACK:
        _repeat_ack(state, row, mail, tag)
        return
    if not is_lowest(state.group, row):
        return
    if timer == NEXT_ROUND:
        if state.phase[row] == WAITING and tag == state.done[row]:
            unfinished = state.round[row] > state.done[row]
            _open_round(state, row, mail, state.round[row] if unfinished else state.round[row] + 1)
    elif tag == state.round[row]:
        _repeat(state, row, mail)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Continue the round without the member that left; the lowest live rank coordinates."""
    if not is_lowest(state.group, row):
        return
    if state.phase[row] == COLLECTING:
        _inform_if_collected(state, row, mail)
    elif state.phase[row] == INFORMING:
        _wait_if_informed(state, row, mail)
    elif state.phase[row] == IDLE:
        if state.round[row] > state.done[row]:
            _open_round(state, row, mail, state.round[row])
        else:
            _succeed(state, row, mail)


@linked
def _succeed(state, row, mail):
    """Continue after the last round of a coordinator that left, perhaps before all members knew its result."""
    if state.repeat_ns > 0 and state.done[row] > 0:
        set_timer(mail, REPEAT, state.round[row], state.repeat_ns)
        _inform(state, row, mail)
    else:
        _wait(state, row, mail)


@linked
def _open_round(state, row, mail, number):
    state.round[row] = number
    state.phase[row] = COLLECTING
    copy_numbers(state.minimum[row], state.group.received[row])
    rank_sets.only(state.acked[row], state.group.rank[row])
    begin_round(mail, number)
    multicast(mail, _draft_bare(state, mail, START, number))
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)
    _inform_if_collected(state, row, mail)


@linked
def _on_start(state, row, mail, slot):
    number = mail.heads[slot].round_number
    if number > state.round[row]:
        if is_lowest(state.group, row):  # the last word of one that has left
            _open_round(state, row, mail, number)
            return
        state.round[row] = number
        begin_round(mail, number)
        if state.repeat_acks != 0:
            set_timer(mail, REPEAT_ACK, number, state.repeat_ns)
    answer = _draft_array(state, mail, ACK, state.round[row], state.group.received[row])
    send(mail, answer, mail.heads[slot].source)


@linked
def _repeat_ack(state, row, mail, number):
    """Repeat the ACK: the coordinator may not have received it (guo §4.2.1)."""
    if state.round[row] == number and state.done[row] < number and not is_lowest(state.group, row):
        answer = _draft_array(state, mail, ACK, number, state.group.received[row])
        send(mail, answer, rank_sets.lowest(state.group.members[row]))
        set_timer(mail, REPEAT_ACK, number, state.repeat_ns)


@linked
def _on_ack(state, row, mail, slot):
    number = mail.heads[slot].round_number
    if number > state.round[row]:
        if is_lowest(state.group, row):
            _open_round(state, row, mail, number)
    elif number == state.round[row] and state.phase[row] == COLLECTING:
        fold(state.group, state.minimum[row], mail.numbers[slot])
        rank_sets.add(state.acked[row], mail.heads[slot].source)
        _inform_if_collected(state, row, mail)


@linked
def _inform_if_collected(state, row, mail):
    if not rank_sets.covers(state.acked[row], state.group.members[row]):
        return
    learn_stable(state.group, row, state.minimum[row])
    state.done[row] = state.round[row]
    end_round(mail, state.round[row])
    _inform(state, row, mail)


@linked
def _inform(state, row, mail):
    """Multicast S of the last finished round."""
    number = state.done[row]
    multicast(mail, _draft_array(state, mail, INFO, number, state.group.stable[row]))
    if state.repeat_ns > 0:
        state.phase[row] = INFORMING
        rank_sets.only(state.informed[row], state.group.rank[row])
        _wait_if_informed(state, row, mail)
    else:
        _wait(state, row, mail)


@linked
def _wait_if_informed(state, row, mail):
    if rank_sets.covers(state.informed[row], state.group.members[row]):
        _wait(state, row, mail)


@linked
def _wait(state, row, mail):
    state.phase[row] = WAITING
    rest(mail, NEXT_ROUND, state.done[row], state.delta_ns)


@linked
def _on_info(state, row, mail, slot):
    number = mail.heads[slot].round_number
    learn_stable(state.group, row, mail.numbers[slot])
    state.round[row] = max(state.round[row], number)
    if number > state.done[row]:
        state.done[row] = number
        end_round(mail, number)
        if is_lowest(state.group, row):  # the last word of one that has left
            _succeed(state, row, mail)
    if state.repeat_ns > 0:
        send(mail, _draft_bare(state, mail, ACK_INFO, number), mail.heads[slot].source)


@linked
def _on_ack_info(state, row, mail, slot):
    if mail.heads[slot].round_number == state.round[row] and state.phase[row] == INFORMING:
        rank_sets.add(state.informed[row], mail.heads[slot].source)
        _wait_if_informed(state, row, mail)


@linked
def _repeat(state, row, mail):
    """Repeat the message to the members that have not answered."""
    number = state.round[row]
    if state.phase[row] == COLLECTING:
        _send_to_missing(state, row, mail, _draft_bare(state, mail, START, number), state.acked[row])
    elif state.phase[row] == INFORMING:
        info = _draft_array(state, mail, INFO, number, state.group.stable[row])
        _send_to_missing(state, row, mail, info, state.informed[row])
    else:
        return
    set_timer(mail, REPEAT, number, state.repeat_ns)


@linked
def _send_to_missing(state, row, mail, slot, answered):
    for rank in range(answered.shape[0] * 64):
        if rank_sets.contains(state.group.members[row], rank) and not rank_sets.contains(answered, rank):
            send(mail, slot, rank)


@linked
def _draft_bare(state, mail, kind, number):
    return draft(mail, kind, number, state.sizes[kind])


@linked
def _draft_array(state, mail, kind, number, numbers):
    width = numbers.shape[0]
    slot = draft(mail, kind, number, state.sizes[kind])
    copy_numbers(mail.numbers[slot, :width], numbers)
    return slot


def _traffic(context: Context, _parameters: CoordParameters) -> Traffic:
    """START and INFO to all members, an ACK from each."""
    calls = to_all(0, context.members, 2.0)
    return together(calls, pairs(calls.target, calls.source))


PROTOCOL = Protocol(
    name="coord",
    title="Coord",
    family="stability",
    paper="cube §2.1, guo §4.2.1 (CoordP)",
    summary="one coordinator collects every R and multicasts the minimum",
    state=CoordState,
    messages=MESSAGES,
    parameters=CoordParameters,
    build=build,
    traffic=_traffic,
    colour="#0072B2",
)

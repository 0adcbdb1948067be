"""Doubling: a custom stability protocol in one file, with its own parameter.

    python examples/doubling.py
    cubecast simulate doubling --protocol-file examples/doubling.py --members 33 --radix 4 --crash 3@1ms --check

The idea is the dissemination barrier (Hensgen, Finkel and Manber, 1988) with a minimum in place of a signal. The live
members form a ring in the order of their ranks. In step k each member sends the minimum it knows to the members
r·radix^k places ahead, r = 1 … radix−1, and waits for those as many places behind. A member that knows the minimum of
the radix^k members up to itself then knows that of radix^(k+1). After ⌈log n⌉ steps it is the minimum of all: S.

| field   | shape                       | meaning                                                                     |
|---------|-----------------------------|-----------------------------------------------------------------------------|
| strides | steps+1                     | radix^k                                                                     |
| round   | rows                        | the current round                                                           |
| done    | rows                        | the newest round whose S this member knows                                  |
| step    | rows                        | k: the step whose messages it waits for                                     |
| minimum | rows × steps+1 × m          | what it knew before each step, kept for members that request it             |
| inbox   | rows × 2 × steps × places×m | what came for each step of this round and of the next, by r−1               |
| heard   | rows × 2 × steps × places   | the round in which it came                                                  |

*Soundness.* A message carries the round, the step and the membership of its sender, and is accepted only by members
with the same membership G. Within one G all places on the ring agree, so by induction `minimum[row, k]` is at most the
R of each of the radix^k members of G up to this one, as it was when that member began the round; R only grows. After
the last step all of G is covered, so S is never premature. When the membership changes, all received minima are
discarded and the round starts again: a message of the old membership never mixes with one of the new. A result stays
true: what all of G hold, all remaining members of G hold, and a newcomer begins with what is stable.

*Liveness.* A message that arrived before its receiver knew of a crash was discarded. So a member that has lost another
sends ASK, at each step, to those it waits for. A member that receives ASK sends the minimum again if it has reached
that step with the same membership, or the RESULT if the round is over there. Otherwise it sends the minimum when it
reaches the step. Two things may prevent that: a RESULT ends the round before, or it ends the round with the old
membership. So a member forwards a RESULT to those who would have got its minimum, and sends its own when the membership
changes. No member ends a round that a member of its G has not begun, so rounds are at most one apart and two inboxes
suffice.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cubecast
from cubecast.protocol import (
    Context,
    GroupState,
    begin_round,
    copy_numbers,
    draft,
    end_round,
    fold,
    learn_stable,
    linked,
    member_set,
    message,
    message_sizes,
    parameter,
    per_sender,
    rank_sets,
    rest,
    send,
    set_timer,
)

MINIMUM, ASK, RESULT = range(3)  # kinds of messages
MESSAGES = (
    message("MINIMUM", round=4, step=4, membership=member_set(), minimum=per_sender(4)),
    message("ASK", round=4, step=4, membership=member_set()),
    message("RESULT", round=4, stable=per_sender(4)),
)
NEXT_ROUND, REPEAT = range(2)  # timers


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of Doubling."""

    radix: int = parameter(
        2, "What a member knows grows by this factor per step: more messages, fewer steps.", at_least=2, at_most=16
    )


class DoublingState(NamedTuple):
    """Doubling, one row per local member."""

    group: GroupState
    members: int
    delta_ns: int
    repeat_ns: int
    sizes: np.ndarray
    strides: np.ndarray
    round: np.ndarray
    done: np.ndarray
    step: np.ndarray
    minimum: np.ndarray
    inbox: np.ndarray
    heard: np.ndarray


def build(group: GroupState, context: Context, parameters: Parameters) -> DoublingState:
    """Doubling before its first round."""
    rows, senders = group.received.shape
    strides, places = [1], parameters.radix - 1
    while strides[-1] < context.members:
        strides.append(strides[-1] * parameters.radix)
    steps = len(strides) - 1
    return DoublingState(
        group=group,
        members=context.members,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        sizes=message_sizes(MESSAGES, context),
        strides=np.array(strides, np.int64),
        round=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        step=np.zeros(rows, np.int64),
        minimum=np.zeros((rows, steps + 1, senders), np.int32),
        inbox=np.zeros((rows, 2, steps, places, senders), np.int32),
        heard=np.zeros((rows, 2, steps, places), np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Every member opens the first round by itself."""
    _enter_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle MINIMUM, ASK or RESULT."""
    number = mail.heads[slot].round_number
    kind = mail.heads[slot].kind
    if kind == ASK:
        _answer(state, row, mail, slot)
    elif kind == RESULT:
        if number > state.done[row]:
            untaken = state.step[row] + 1 if number == state.round[row] else np.int64(0)
            _finish_round(state, row, mail, number, mail.numbers[slot])
            _send_result_ahead(state, row, mail, untaken)
    elif kind == MINIMUM:
        if number == state.round[row] + 1 and state.done[row] == state.round[row]:
            _enter_round(state, row, mail, number)
        if number > state.done[row] and 0 <= number - state.round[row] <= 1:
            _take_minimum(state, row, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Δ is over, or messages of a step are overdue."""
    if timer == NEXT_ROUND:
        if state.round[row] == tag and state.done[row] == tag:
            _enter_round(state, row, mail, tag + 1)
    elif state.round[row] == tag and state.done[row] < tag:
        _ask(state, row, mail)
        set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """The places on the ring change."""
    _restart_round(state, row, mail)


@linked
def on_join(state, row, now_ns, mail, rank):
    """The places on the ring change."""
    _restart_round(state, row, mail)


@linked
def _restart_round(state, row, mail):
    """Discard the minima of the old places, and start the round again."""
    for side in range(2):
        for step in range(state.heard.shape[2]):
            for place in range(state.heard.shape[3]):
                state.heard[row, side, step, place] = 0
    if state.done[row] > 0:
        _send_result_ahead(state, row, mail, 0)
    if state.done[row] < state.round[row]:
        _start_round(state, row, mail)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    begin_round(mail, number)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)
    _start_round(state, row, mail)


@linked
def _start_round(state, row, mail):
    """Step 0 with this membership."""
    state.step[row] = 0
    copy_numbers(state.minimum[row, 0], state.group.received[row])
    _begin_step(state, row, mail)
    _go_on(state, row, mail)


@linked
def _begin_step(state, row, mail):
    """Send the minimum ahead; after a crash, ask those behind for theirs."""
    step = state.step[row]
    for r in range(1, _partners(state, row, step) + 1):
        _send_minimum(state, row, mail, step, _ahead(state, row, r * state.strides[step]))
    if rank_sets.count(state.group.members[row]) < state.members:
        _ask(state, row, mail)


@linked
def _go_on(state, row, mail):
    """Take as many steps as there are messages for; once the whole ring is covered, the minimum is S."""
    number = state.round[row]
    side = number & 1
    while _partners(state, row, state.step[row]) > 0:
        step = state.step[row]
        for r in range(1, _partners(state, row, step) + 1):
            if state.heard[row, side, step, r - 1] != number:
                return
        copy_numbers(state.minimum[row, step + 1], state.minimum[row, step])
        for r in range(1, _partners(state, row, step) + 1):
            fold(state.group, state.minimum[row, step + 1], state.inbox[row, side, step, r - 1])
        state.step[row] = step + 1
        _begin_step(state, row, mail)
    if state.done[row] < number:
        _finish_round(state, row, mail, number, state.minimum[row, state.step[row]])


@linked
def _finish_round(state, row, mail, number, numbers):
    state.round[row] = number
    state.done[row] = number
    learn_stable(state.group, row, numbers)
    end_round(mail, number)
    rest(mail, NEXT_ROUND, number, state.delta_ns)


@linked
def _take_minimum(state, row, mail, slot):
    """Keep the minimum of a step if its sender sees the same members. (A live peer may send anything: check it.)"""
    number = mail.heads[slot].round_number
    step = step_of(mail, slot)
    if step >= state.heard.shape[2] or not _is_own_membership(state, row, mail, slot):
        return
    members = state.group.members[row]
    behind = _place(members, state.group.rank[row]) - _place(members, mail.heads[slot].source)
    distance = behind % rank_sets.count(members)
    r = distance // state.strides[step]
    if r * state.strides[step] != distance or not 1 <= r <= _partners(state, row, step):
        return
    copy_numbers(state.inbox[row, number & 1, step, r - 1], mail.numbers[slot])
    state.heard[row, number & 1, step, r - 1] = number
    if number == state.round[row]:
        _go_on(state, row, mail)


@linked
def _ask(state, row, mail):
    """Ask for the messages missing in this step."""
    number = state.round[row]
    step = state.step[row]
    for r in range(1, _partners(state, row, step) + 1):
        if state.heard[row, number & 1, step, r - 1] != number:
            behind = rank_sets.count(state.group.members[row]) - r * state.strides[step]
            send(mail, _draft(state, row, mail, ASK, step), _ahead(state, row, behind))


@linked
def _answer(state, row, mail, slot):
    """A member waits for the message of a step: send it again, or the result when that round is over here."""
    number = mail.heads[slot].round_number
    step = step_of(mail, slot)
    if number <= state.done[row]:
        send(mail, _draft_result(state, row, mail), mail.heads[slot].source)
    elif number == state.round[row] and step <= state.step[row] and _is_own_membership(state, row, mail, slot):
        _send_minimum(state, row, mail, step, mail.heads[slot].source)


@linked
def _send_result_ahead(state, row, mail, first):
    """Members that wait for a minimum this member will not send get the result instead."""
    for step in range(first, state.heard.shape[2]):
        for r in range(1, _partners(state, row, step) + 1):
            send(mail, _draft_result(state, row, mail), _ahead(state, row, r * state.strides[step]))


@linked
def _draft_result(state, row, mail):
    slot = draft(mail, RESULT, state.done[row], state.sizes[RESULT])
    copy_numbers(mail.numbers[slot, : state.minimum.shape[2]], state.group.stable[row])
    return slot


@linked
def _send_minimum(state, row, mail, step, rank):
    slot = _draft(state, row, mail, MINIMUM, step)
    copy_numbers(mail.numbers[slot, : state.minimum.shape[2]], state.minimum[row, step])
    send(mail, slot, rank)


@linked
def _draft(state, row, mail, kind, step):
    slot = draft(mail, kind, state.round[row], state.sizes[kind])
    mail.heads[slot].field_1 = step
    rank_sets.copy(mail.bits[slot], state.group.members[row])
    return slot


@linked
def step_of(mail, slot):
    """The step that a MINIMUM or ASK is about."""
    return mail.heads[slot].field_1


@linked
def _is_own_membership(state, row, mail, slot):
    mine = state.group.members[row]
    return rank_sets.covers(mail.bits[slot], mine) and rank_sets.covers(mine, mail.bits[slot])


@linked
def _partners(state, row, step):
    """How many members a member sends to in a step, and waits for: radix − 1, fewer at the end, 0 when all is known."""
    others = rank_sets.count(state.group.members[row]) - 1
    return min(others // state.strides[step], state.heard.shape[3])


@linked
def _place(members, rank):
    """The place of a rank on the ring of live members."""
    place = 0
    for other in range(rank):
        if rank_sets.contains(members, other):
            place += 1
    return place


@linked
def _ahead(state, row, distance):
    """The live rank this many places ahead on the ring."""
    rank = state.group.rank[row]
    for _ in range(distance):
        rank = rank_sets.following(state.group.members[row], rank)
    return rank


PROTOCOL = cubecast.Protocol(
    name="doubling",
    title="Doubling",
    family="stability",
    paper="Hensgen, Finkel and Manber 1988",
    summary="minima go round a ring in strides that double",
    state=DoublingState,
    messages=MESSAGES,
    parameters=Parameters,
    build=build,
    sends_per_member=lambda members, parameters: (parameters.radix - 1) * np.emath.logn(parameters.radix, members),
)


def main() -> None:
    """Check the guarantees of Doubling, then compare it with the other protocols."""
    cubecast.add_protocol(PROTOCOL)
    trace = Path("results") / "doubling.parquet"
    trace.parent.mkdir(exist_ok=True)
    cubecast.simulate("doubling", members=33, radix=3, network="random:degree=4", loss=0.1, rounds=5, trace=trace)
    print("\n".join(cubecast.check_all(cubecast.read_trace(trace)).lines()))
    comparison = cubecast.compare(members=[32, 64, 128], network="random:degree=5", repeat=3)
    for summary in comparison.summaries:
        rtt, messages = summary.figures["rtt_last_ms"], summary.figures["messages"]
        print(f"{summary.members:4} members {summary.protocol:15} {rtt.value:7.2f} ms {messages.value:9,.0f} messages")
    print("wrote", comparison.plot("results/doubling.html"))


if __name__ == "__main__":
    # Compiled code is cached under the name of its module, and `__main__` is a new module in each process: a file that
    # imports itself by name is compiled once.
    importlib.import_module(Path(__file__).stem).main()

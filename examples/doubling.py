"""A protocol of your own in one file: Doubling, compared with the stability protocols that cubecast has.

    python examples/doubling.py

The idea is the dissemination barrier (Hensgen, Finkel and Manber, 1988) with a minimum in place of a signal. In step k
each member sends the minimum it knows to the member 2^k ranks ahead on a ring, and waits for the one 2^k ranks behind.
What a member knows doubles with each step, so after ⌈log2 n⌉ steps it knows the minimum of all: S. A round costs
n·⌈log2 n⌉ messages, a factor log n less than CubeFullDist, and no message carries a heard-from bitmap. The price:
every message counts. A member that crashes stops the round, where CubeFullDist goes on around it.

| field   | shape              | meaning                                                              |
|---------|--------------------|----------------------------------------------------------------------|
| round   | rows               | the current round                                                    |
| done    | rows               | the newest round whose S this member knows                           |
| step    | rows               | k: the step whose message it waits for                               |
| minimum | rows × steps+1 × m | what it knew before each step, kept for members that lost the message|
| inbox   | rows × 2 × steps×m | what came for each step, of this round and of the next               |
| heard   | rows × 2 × steps   | the round in which it came                                           |

Invariants: `minimum[row, k]` is at most the R of each of the 2^k members up to this one, so the last is never
premature; nobody ends a round that somebody has not begun, so rounds are at most one apart and two inboxes suffice.
"""

import importlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cubecast
from cubecast.protocol import (
    HEADER_BYTES,
    NUMBER_BYTES,
    ROUND_BYTES,
    Context,
    Group,
    NoParameters,
    begin_round,
    copy_numbers,
    draft,
    end_round,
    fold,
    learn_stable,
    linked,
    rest,
    send,
    set_timer,
)

MINIMUM, ASK, RESULT = range(3)  # kinds of messages
NEXT_ROUND, REPEAT = range(2)  # timers


class DoublingState(NamedTuple):
    """Doubling, one row per local member."""

    group: Group
    members: int
    delta_ns: int
    repeat_ns: int
    round: np.ndarray
    done: np.ndarray
    step: np.ndarray
    minimum: np.ndarray
    inbox: np.ndarray
    heard: np.ndarray


def build(group: Group, context: Context, parameters: NoParameters) -> DoublingState:
    """Doubling before its first round."""
    rows, senders = group.received.shape
    steps = (context.members - 1).bit_length()
    return DoublingState(
        group=group,
        members=context.members,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        round=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        step=np.zeros(rows, np.int64),
        minimum=np.zeros((rows, steps + 1, senders), np.int32),
        inbox=np.zeros((rows, 2, steps, senders), np.int32),
        heard=np.zeros((rows, 2, steps), np.int64),
    )


@linked
def start(state, row, now_ns, mail):
    """Every member opens the first round by itself."""
    _enter_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """A minimum for some step, a question for one, or a result."""
    number = mail.heads[slot].round_number
    kind = mail.heads[slot].kind
    if kind == ASK:
        _answer(state, row, mail, slot)
    elif kind == RESULT and state.done[row] < number:
        _finish_round(state, row, mail, mail.numbers[slot])
    elif kind == MINIMUM and state.round[row] <= number:
        step = mail.heads[slot].iteration
        copy_numbers(state.inbox[row, number & 1, step], mail.numbers[slot])
        state.heard[row, number & 1, step] = number
        _go_on(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Δ is over, or the message of a step is overdue."""
    if timer == NEXT_ROUND:
        if state.round[row] == tag and state.done[row] == tag:
            _enter_round(state, row, mail, tag + 1)
    elif state.round[row] == tag and state.done[row] < tag:
        slot = _draft(state, mail, ASK, tag, state.step[row])
        send(mail, slot, _behind(state, row, state.step[row]))
        set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    state.step[row] = 0
    copy_numbers(state.minimum[row, 0], state.group.received[row])
    begin_round(mail, number)
    _send_minimum(state, row, mail, 0)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)
    _go_on(state, row, mail)


@linked
def _go_on(state, row, mail):
    """Take as many steps as messages have come for; after the last, the minimum is S."""
    number = state.round[row]
    side = number & 1
    last = state.heard.shape[2]
    while state.step[row] < last and state.heard[row, side, state.step[row]] == number:
        step = state.step[row]
        copy_numbers(state.minimum[row, step + 1], state.minimum[row, step])
        fold(state.group, state.minimum[row, step + 1], state.inbox[row, side, step])
        state.step[row] = step + 1
        if step + 1 < last:
            _send_minimum(state, row, mail, step + 1)
    if state.step[row] == last and state.done[row] < number:
        _finish_round(state, row, mail, state.minimum[row, last])


@linked
def _finish_round(state, row, mail, numbers):
    state.done[row] = state.round[row]
    learn_stable(state.group, row, numbers)
    end_round(mail, state.round[row])
    rest(mail, NEXT_ROUND, state.round[row], state.delta_ns)


@linked
def _answer(state, row, mail, slot):
    """Someone waits for the message of a step: send it again, or the result when that round is over here."""
    number = mail.heads[slot].round_number
    step = mail.heads[slot].iteration
    source = mail.heads[slot].source
    if number <= state.done[row]:
        answer = _draft(state, mail, RESULT, state.done[row], step)
        copy_numbers(mail.numbers[answer, : state.minimum.shape[2]], state.group.stable[row])
        send(mail, answer, source)
    elif number == state.round[row] and step <= state.step[row]:
        _send_minimum(state, row, mail, step)


@linked
def _send_minimum(state, row, mail, step):
    slot = _draft(state, mail, MINIMUM, state.round[row], step)
    copy_numbers(mail.numbers[slot, : state.minimum.shape[2]], state.minimum[row, step])
    send(mail, slot, (state.group.rank[row] + (1 << step)) % state.members)


@linked
def _behind(state, row, step):
    return (state.group.rank[row] - (1 << step)) % state.members


@linked
def _draft(state, mail, kind, number, step):
    numbers = 0 if kind == ASK else state.minimum.shape[2]
    slot = draft(mail, kind, number, HEADER_BYTES + 2 * ROUND_BYTES + NUMBER_BYTES * numbers)
    mail.heads[slot].iteration = step
    return slot


PROTOCOL = cubecast.Protocol(
    name="doubling",
    title="Doubling",
    family="stability",
    paper="Hensgen, Finkel and Manber 1988",
    summary="minima go round a ring in strides that double",
    state=DoublingState,
    build=build,
)


def main() -> None:
    """Check that Doubling keeps its promises, then compare it with the other protocols."""
    cubecast.add_protocol(PROTOCOL)
    trace = Path("results") / "doubling.parquet"
    trace.parent.mkdir(exist_ok=True)
    cubecast.simulate("doubling", members=33, network="random:degree=4", loss=0.1, rounds=5, trace=trace)
    report = cubecast.check_all(cubecast.read_trace(trace))
    print("\n".join(report.lines()))
    comparison = cubecast.compare(members=[32, 64, 128], network="random:degree=5", repeat=3)
    for summary in comparison.summaries:
        rtt, messages = summary.figures["rtt_last_ms"], summary.figures["messages"]
        print(f"{summary.members:4} members {summary.protocol:15} {rtt.value:7.2f} ms {messages.value:9,.0f} messages")
    print("wrote", comparison.plot("results/doubling.html"))


if __name__ == "__main__":
    # Compiled code is kept under the name of its module, and `__main__` is a new module in each process: a file that
    # imports itself by name is compiled once.
    importlib.import_module(Path(__file__).stem).main()

"""Train: the running minimum goes round the group, then the result does (guo §4.2.3, Fig 4.3).

A round: the trainmaster (lowest rank alive) sends ACK(R) to the next member; each member forwards the minimum of the
train and its own R; back at the trainmaster the train holds S, and INFO(S) goes round the same way. A round takes 2n
unicasts; S is known after n of them.

| field   | shape    | meaning                                                                                   |
|---------|----------|-------------------------------------------------------------------------------------------|
| passed  | rows     | the newest train forwarded: 2r for the ACK of round r, 2r + 1 for its INFO; 0 for none    |
| home    | rows     | as trainmaster: the newest INFO that came back, numbered as in `passed`                   |
| done    | rows     | the newest round whose S this member knows                                                |
| train   | rows × m | the contents of that train when it was forwarded: the running minimum M, or S             |

Invariants: `done ≤ passed / 2`; an ACK train holds at most R of every live member it has passed. It visits the members
in the order of the ranks and skips only members that have left, so when it is back it has passed every live member.

Faults. A member whose successor leaves sends its train again to the next one: the train takes another route. A member
that has forwarded a train ignores it when it arrives again. When the trainmaster leaves, the next lowest rank takes
over; it gives up an unfinished round and opens the next one, whose S covers it. Lossy form (`repeat_ns > 0`): every
member repeats the train it sent last, until a newer one arrives (guo §4.2.3).
"""

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
    rest,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, per_sender, where_lossy
from cubecast.protocol.parameters import NoParameters
from cubecast.protocol.traffic import Traffic, pairs

ACK, INFO = range(2)
NEXT_ROUND, REPEAT = range(2)
MESSAGES = (
    message("ACK", round=where_lossy(4), minimum=per_sender(4)),
    message("INFO", round=where_lossy(4), stable=per_sender(4)),
)


class TrainState(NamedTuple):
    """Train, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    sizes: np.ndarray
    passed: np.ndarray
    home: np.ndarray
    done: np.ndarray
    train: np.ndarray


def build(group: GroupState, context: Context, parameters: NoParameters) -> TrainState:
    """Train before its first round. `repeat_ns = 0` is the reliable FIFO form."""
    rows = len(group.rank)
    return TrainState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        sizes=message_sizes(MESSAGES, context),
        passed=np.zeros(rows, np.int64),
        home=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        train=np.zeros_like(group.received),
    )


@linked
def start(state, row, now_ns, mail):
    """The trainmaster opens the first round."""
    if is_lowest(state.group, row):
        _depart(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle a train that passes, or one that comes back."""
    number = mail.heads[slot].round_number
    stage = 2 * number + mail.heads[slot].kind
    if is_lowest(state.group, row):
        # A train comes back from a higher rank; from a lower one, which has left, it is an older train of this number.
        if stage == state.passed[row] and mail.heads[slot].source > state.group.rank[row]:
            copy_numbers(state.train[row], mail.numbers[slot])
            _come_home(state, row, mail)
        elif stage > state.passed[row]:
            # A train of a trainmaster that left, in a round this member never saw.
            _depart(state, row, mail, number + 1)
    elif stage > state.passed[row]:
        if number > state.passed[row] >> 1:
            begin_round(mail, number)
        copy_numbers(state.train[row], mail.numbers[slot])
        if mail.heads[slot].kind == ACK:
            fold(state.group, state.train[row], state.group.received[row])
        else:
            _learn(state, row, mail, number)
        _send_on(state, row, mail, stage)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Send the next train when Δ is over, or repeat the last one."""
    if timer == NEXT_ROUND:
        if is_lowest(state.group, row) and tag == state.done[row] and tag == state.passed[row] >> 1:
            _depart(state, row, mail, tag + 1)
    elif tag == state.passed[row] and tag > state.home[row]:
        _send_again(state, row, mail)
        set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """The train takes another route; a new trainmaster takes over."""
    me = state.group.rank[row]
    successor = rank_sets.following(state.group.members[row], me)
    if is_lowest(state.group, row) and (rank < me or successor == me):
        _take_over(state, row, mail)
    elif state.passed[row] > 0 and _lies_between(rank, me, successor, state.group.members[row].shape[0] * 64):
        _send_again(state, row, mail)


@linked
def _lies_between(rank, me, successor, size):
    """Does `rank` come before `successor` on the way round from `me`? If so, it was the successor until now."""
    return (rank - me) % size < (successor - me) % size


@linked
def _take_over(state, row, mail):
    """Take over as the lowest rank: a train sent to the old trainmaster is lost."""
    number = state.passed[row] >> 1
    if number > state.done[row] or number == 0:
        _depart(state, row, mail, number + 1)
    elif state.home[row] < state.passed[row] and (state.repeat_ns == 0 or _is_alone(state, row)):
        # INFO is on its way to everyone; it may have been to this member before it was the lowest. Where it can be
        # lost, the last member repeats it, and so it comes home once everyone has it.
        _wait(state, row, mail)


@linked
def _depart(state, row, mail, number):
    begin_round(mail, number)
    copy_numbers(state.train[row], state.group.received[row])
    if _is_alone(state, row):
        _conclude(state, row, mail, number)
    else:
        _send_on(state, row, mail, 2 * number + ACK)


@linked
def _is_alone(state, row):
    return rank_sets.following(state.group.members[row], state.group.rank[row]) == state.group.rank[row]


@linked
def _send_on(state, row, mail, stage):
    state.passed[row] = stage
    _send_again(state, row, mail)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, stage, state.repeat_ns)


@linked
def _send_again(state, row, mail):
    """Send the newest train to the next member."""
    stage = state.passed[row]
    width = state.train.shape[1]
    slot = draft(mail, stage & 1, stage >> 1, state.sizes[stage & 1])
    copy_numbers(mail.numbers[slot, :width], state.train[row])
    send(mail, slot, rank_sets.following(state.group.members[row], state.group.rank[row]))


@linked
def _come_home(state, row, mail):
    """At the trainmaster: an ACK train now holds S, an INFO train has informed all members."""
    if state.passed[row] & 1 == ACK:
        _conclude(state, row, mail, state.passed[row] >> 1)
    elif state.home[row] < state.passed[row]:
        _wait(state, row, mail)


@linked
def _conclude(state, row, mail, number):
    """The train holds S: send it round as INFO, if there are other members."""
    _learn(state, row, mail, number)
    copy_numbers(state.train[row], state.group.stable[row])
    if _is_alone(state, row):
        state.passed[row] = 2 * number + INFO
        _wait(state, row, mail)
    else:
        _send_on(state, row, mail, 2 * number + INFO)


@linked
def _learn(state, row, mail, number):
    learn_stable(state.group, row, state.train[row])
    state.done[row] = number
    end_round(mail, number)


@linked
def _wait(state, row, mail):
    state.home[row] = state.passed[row]
    rest(mail, NEXT_ROUND, state.done[row], state.delta_ns)


def _traffic(context: Context, _parameters: NoParameters) -> Traffic:
    """Two messages per round from every rank to the next."""
    ranks = np.arange(context.members)
    return pairs(ranks, (ranks + 1) % context.members, 2.0)


PROTOCOL = Protocol(
    name="train",
    title="Train",
    family="stability",
    paper="guo §4.2.3",
    summary="the running minimum goes round the group, then the result",
    state=TrainState,
    messages=MESSAGES,
    build=build,
    traffic=_traffic,
    colour="#E69F00",
)

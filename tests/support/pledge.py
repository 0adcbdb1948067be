"""A protocol of a stranger, as the text of a file: tests write it where they want it, outside of the package.

Pledge: every member reports its R to the lowest rank, which multicasts the minimum. Each message is sent `copies`
times, so that a round costs exactly 2 · (n − 1) · copies messages where nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = '''
"""Pledge: everybody reports to rank 0."""
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import cubecast
from cubecast.protocol import (
    Context, GroupState, begin_round, copy_numbers, draft, end_round, fold, learn_stable, linked, message,
    message_sizes, multicast, parameter, per_sender, rank_sets, rest, send, set_timer,
)

REPORT, RESULT = range(2)
MESSAGES = (message("REPORT", round=4, received=per_sender(4)), message("RESULT", round=4, stable=per_sender(4)))
NEXT_ROUND, REPEAT = range(2)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    copies: int = parameter(1, "How often each message is sent.", at_least=1, at_most=8)


class PledgeState(NamedTuple):
    group: GroupState
    copies: int
    delta_ns: int
    repeat_ns: int
    sizes: np.ndarray
    round: np.ndarray
    done: np.ndarray
    minimum: np.ndarray
    heard: np.ndarray


def build(group: GroupState, context: Context, parameters: Parameters) -> PledgeState:
    rows = len(group.rank)
    return PledgeState(
        group=group, copies=parameters.copies, delta_ns=context.delta_ns, repeat_ns=context.repeat_ns,
        sizes=message_sizes(MESSAGES, context), round=np.zeros(rows, np.int64), done=np.zeros(rows, np.int64),
        minimum=np.zeros_like(group.received), heard=rank_sets.empty(len(group.rank), context.members),
    )


@linked
def start(state, row, now_ns, mail):
    _enter_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    number = mail.heads[slot].round_number
    if mail.heads[slot].kind == RESULT:
        if number > state.done[row]:
            _finish(state, row, mail, number, mail.numbers[slot])
        return
    if number <= state.done[row]:
        if state.repeat_ns > 0:
            send(mail, _draft(state, mail, RESULT, state.done[row], state.group.stable[row]), mail.heads[slot].source)
        return
    if number > state.round[row]:
        _enter_round(state, row, mail, number)
    fold(state.group, state.minimum[row], mail.numbers[slot])
    rank_sets.add(state.heard[row], mail.heads[slot].source)
    _finish_if_covered(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    if timer == NEXT_ROUND:
        if state.round[row] == tag and state.done[row] == tag:
            _enter_round(state, row, mail, tag + 1)
    elif state.round[row] == tag and state.done[row] < tag:
        _report(state, row, mail)
        set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    begin_round(mail, number)
    copy_numbers(state.minimum[row], state.group.received[row])
    rank_sets.only(state.heard[row], state.group.rank[row])
    _report(state, row, mail)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)
    _finish_if_covered(state, row, mail)


@linked
def _report(state, row, mail):
    if state.group.rank[row] != 0:
        for _ in range(state.copies):
            send(mail, _draft(state, mail, REPORT, state.round[row], state.group.received[row]), 0)


@linked
def _finish_if_covered(state, row, mail):
    if state.group.rank[row] == 0 and rank_sets.covers(state.heard[row], state.group.members[row]):
        for _ in range(state.copies):
            multicast(mail, _draft(state, mail, RESULT, state.round[row], state.minimum[row]))
        _finish(state, row, mail, state.round[row], state.minimum[row])


@linked
def _finish(state, row, mail, number, numbers):
    state.round[row] = number
    state.done[row] = number
    learn_stable(state.group, row, numbers)
    end_round(mail, number)
    rest(mail, NEXT_ROUND, number, state.delta_ns)


@linked
def _draft(state, mail, kind, number, numbers):
    slot = draft(mail, kind, number, state.sizes[kind])
    copy_numbers(mail.numbers[slot, : numbers.shape[0]], numbers)
    return slot


PROTOCOL = cubecast.Protocol(
    name="pledge", title="Pledge", family="stability", paper="own", summary="everybody reports to rank 0",
    state=PledgeState, messages=MESSAGES, parameters=Parameters, build=build,
)
'''


def write_pledge(folder: Path, *edits: tuple[str, str]) -> Path:
    """Write the protocol into a folder, with words replaced by others."""
    folder.mkdir(parents=True, exist_ok=True)
    text = SOURCE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / "pledge.py"
    path.write_text(text)
    return path


def round_messages(members: int, copies: int) -> int:
    """What a round costs."""
    return 2 * (members - 1) * copies

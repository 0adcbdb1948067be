"""Restart: a member that restarts from its journal delivers again what came after its checkpoint, and nothing else.

Between its restart and restarted rows a member repeats its earlier deliveries in the same order, from its checkpoint to
the last one; new messages may follow them. The restore rows, or else the first delivery, show the checkpoint.

Only members that restart are judged; their deliveries are counted in a first pass over the trace.

| state | shape | meaning |
|---|---|---|
| `place_of` | members | the index among the members that restart, or −1 |
| `log`, `begin`, `length` | deliveries; members that restart | the messages that each delivered, in order |
| `place` | members that restart | how far a restarting member is in its log |
| `checkpoint`, `restored` | members that restart × senders | contents of its restore rows |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    new_findings,
)
from cubecast.trace.checkers.views import Described, without_views
from cubecast.trace.schema import CRASH, DELIVER, RESTART, RESTARTED, RESTORE

NAME = "restart"
PROMISE = "a member that restarts from its journal delivers again, in order, what came after its checkpoint"
WRONG, FORGOTTEN, NOT_A_PREFIX = range(3)
_UNKNOWN = -1


class _State(NamedTuple):
    place_of: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    log: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    restarting: npt.NDArray[np.bool_]
    checkpoint: npt.NDArray[np.int64]
    restored: npt.NDArray[np.bool_]


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about restarts; a run without restarts keeps the promise."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find deliveries after a restart that do not repeat those before it, and missing repetitions."""
    restarts, _ = facts.membership(RESTART)
    members = np.unique(restarts["member"])
    if not len(members):
        return []
    first = facts.first
    place_of = np.full(facts.members, -1, np.int64)
    place_of[members] = np.arange(len(members))
    counts = np.zeros(facts.members, np.int64)
    while (part := (yield)) is not None:
        delivering = part.events["member"][part.events["event"] == DELIVER]
        counts += np.bincount(delivering, minlength=facts.members)
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[members])])
    state = _State(
        place_of=place_of,
        begin=begin,
        log=np.zeros(int(begin[-1]), np.int64),
        length=np.zeros(len(members), np.int64),
        place=np.zeros(len(members), np.int64),
        restarting=np.zeros(len(members), np.bool_),
        checkpoint=np.zeros((len(members), len(first)), np.int64),
        restored=np.zeros(len(members), np.bool_),
    )
    found, total = new_findings(3), 0
    while (part := (yield)) is not None:
        total = int(_scan(part, first, state, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(line[0] for line in lines)
    return listed(NAME, total, [_describe(events, first, *line) for line in lines])


def _describe(events: dict[int, Any], first: Any, row: int, fault: int, number: int) -> Violation:
    one = events[row]
    sender = int(np.searchsorted(first, number, side="right")) - 1
    missing = f"message {number - int(first[sender]) + 1} of sender {sender}" if number >= 0 else "nothing"
    if fault == WRONG:
        what = (
            f"delivers message {one['sequence']} of sender {one['sender']} again, where {missing} was delivered before"
        )
    elif fault == FORGOTTEN:
        what = f"continues after its restart without {missing}, which it delivered before"
    else:
        what = f"restarts from a checkpoint without {missing}, which it delivered before others that are in it"
    message = f"member {one['member']} {what} ({at(events, row)})"
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=int(one["time_ns"]))


@allocating
def _scan(part: Any, first: Any, state: Any, found: Any, total: int) -> int:
    """Write (row, fault, message that should have come or -1) of the first violations; return how many there are."""
    events = part.events
    log, begin, length, place = state.log, state.begin, state.length, state.place
    restarting, checkpoint, restored = state.restarting, state.checkpoint, state.restored
    for row in range(len(events)):
        kind = events["event"][row]
        if kind != DELIVER and kind != RESTORE and kind != RESTART and kind != RESTARTED and kind != CRASH:
            continue
        member = state.place_of[events["member"][row]]
        if member < 0:
            continue
        if kind == RESTART:
            restarting[member] = True
            restored[member] = False
            place[member] = _UNKNOWN
            checkpoint[member] = 0
        if kind == CRASH:
            restarting[member] = False
        sequence = events["sequence"][row]
        sender = events["sender"][row]
        fault = -1
        wanted = np.int64(-1)
        own = log[begin[member] : begin[member] + length[member]]
        if kind == RESTORE and part.replay[row]:
            restored[member] = True
            checkpoint[member, sender] = max(checkpoint[member, sender], sequence)
        elif restarting[member] and (kind == RESTARTED or (kind == DELIVER and sequence >= 1)):
            if restored[member] and place[member] == _UNKNOWN:
                place[member] = _covered(own, first, checkpoint[member])
                wanted = np.int64(_first_skipped(own, first, checkpoint[member], place[member]))
                if wanted >= 0:
                    fault = NOT_A_PREFIX
        if kind == DELIVER and sequence >= 1:
            number = first[sender] + sequence - 1
            if not part.replay[row]:
                if restarting[member]:
                    if place[member] >= 0 and place[member] < length[member] and fault < 0:
                        fault = FORGOTTEN
                        wanted = own[place[member]]
                    place[member] = length[member] + 1
                log[begin[member] + length[member]] = number
                length[member] += 1
            else:
                at_log = _find(own, number, place[member])
                if place[member] == _UNKNOWN and at_log >= 0:
                    place[member] = at_log
                if at_log < 0 or at_log != place[member]:
                    if fault < 0:
                        fault = WRONG
                        wanted = np.int64(-1)
                        if place[member] >= 0 and place[member] < length[member]:
                            wanted = own[place[member]]
                if at_log >= 0:
                    place[member] = at_log + 1
        elif kind == RESTARTED and restarting[member]:
            restarting[member] = False
            if fault < 0 and place[member] >= 0 and place[member] < length[member]:
                fault = FORGOTTEN
                wanted = own[place[member]]
        if fault >= 0:
            if total < LISTED_MAX:
                found[total, 0] = part.start + row
                found[total, 1] = fault
                found[total, 2] = wanted
            total += 1
    return total


@allocating
def _find(log: Any, number: int, expected: int) -> int:
    """Return the place of a message in the log: the expected one if it is there, else the last one, or -1."""
    if expected >= 0 and expected < len(log) and log[expected] == number:
        return expected
    for place in range(len(log) - 1, -1, -1):
        if log[place] == number:
            return place
    return -1


@allocating
def _is_covered(number: int, first: Any, checkpoint: Any) -> bool:
    sender = np.searchsorted(first, number, side="right") - 1
    return bool(number - first[sender] < checkpoint[sender])


@allocating
def _covered(log: Any, first: Any, checkpoint: Any) -> int:
    """Return how many messages of the log the checkpoint holds."""
    covered = 0
    for place in range(len(log)):
        covered += _is_covered(log[place], first, checkpoint)
    return covered


@allocating
def _first_skipped(log: Any, first: Any, checkpoint: Any, covered: int) -> int:
    """Return the first message that the checkpoint lacks although it holds later ones, or -1."""
    for place in range(covered):
        if not _is_covered(log[place], first, checkpoint):
            return int(log[place])
    return -1

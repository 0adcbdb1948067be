"""Restart: a member that restarts from its journal delivers again what came after its checkpoint, and nothing else.

Between its restart and restarted rows a member repeats its earlier deliveries in the same order, from its checkpoint to
the last one; new messages may follow them. The restore rows show the checkpoint, or else the first delivery.
"""

from typing import Any

import numpy as np

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.deliveries import number_messages
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    new_findings,
    well_formed,
)
from cubecast.trace.checkers.views import read_views, without_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DELIVER, RESTART, RESTARTED, RESTORE, Events

NAME = "restart"
PROMISE = "a member that restarts from its journal delivers again, in order, what came after its checkpoint"
WRONG, FORGOTTEN, NOT_A_PREFIX = range(3)
_UNKNOWN = -1


def not_promised(trace: Trace) -> str | None:
    """A run without views promises nothing about them; one without restarts keeps it."""
    return without_views(trace)


def check(trace: Trace) -> list[Violation]:
    """Find deliveries after a restart that do not repeat those before it, and those that are missing."""
    events, members = well_formed(trace)
    if not (events["event"] == RESTART).any():
        return []
    views = read_views(events, members)
    first = number_messages(events)
    found = new_findings(3)
    total = int(_scan(events, members, first, views.replay, found))
    return listed(NAME, total, [_describe(events, first, *map(int, line)) for line in found[: min(total, LISTED_MAX)]])


def _describe(events: Events, first: Any, row: int, fault: int, number: int) -> Violation:
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
def _scan(events: Any, members: int, first: Any, replay: Any, found: Any) -> int:
    """Write (row, fault, message that should have come or -1) of the first violations; return how many there are.

    `log` holds the messages that each member delivered, in order; `place` is how far a restarting member is in it.
    """
    start = np.zeros(members + 1, np.int64)
    for row in range(len(events)):
        if events["event"][row] == DELIVER:
            start[events["member"][row] + 1] += 1
    start = np.cumsum(start)
    log = np.zeros(start[-1], np.int64)
    length = np.zeros(members, np.int64)
    place = np.zeros(members, np.int64)
    restarting = np.zeros(members, np.bool_)
    checkpoint = np.zeros((members, len(first)), np.int64)
    restored = np.zeros(members, np.bool_)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
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
        wanted = -1
        own = log[start[member] : start[member] + length[member]]
        if kind == RESTORE and replay[row]:
            restored[member] = True
            checkpoint[member, sender] = max(checkpoint[member, sender], sequence)
        elif restarting[member] and (kind == RESTARTED or (kind == DELIVER and sequence >= 1)):
            if restored[member] and place[member] == _UNKNOWN:
                place[member] = _covered(own, first, checkpoint[member])
                wanted = _first_skipped(own, first, checkpoint[member], place[member])
                if wanted >= 0:
                    fault = NOT_A_PREFIX
        if kind == DELIVER and sequence >= 1:
            number = first[sender] + sequence - 1
            if not replay[row]:
                if restarting[member]:
                    if place[member] >= 0 and place[member] < length[member] and fault < 0:
                        fault = FORGOTTEN
                        wanted = own[place[member]]
                    place[member] = length[member] + 1
                log[start[member] + length[member]] = number
                length[member] += 1
            else:
                at_log = _find(own, number, place[member])
                if place[member] == _UNKNOWN and at_log >= 0:
                    place[member] = at_log
                if at_log < 0 or at_log != place[member]:
                    if fault < 0:
                        fault = WRONG
                        wanted = -1
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
                found[total, 0] = row
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

"""Sending view delivery: a message is delivered in the view in which it was sent, by every member that delivers it.

The view of a message is the view of its sender at the sent row; in a trace without sent rows, the view in which the
message is delivered first.

The view of each message is found in a first pass over the trace.
"""

from typing import Any

import numpy as np

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
from cubecast.trace.checkers.views import Described, Views, without_views
from cubecast.trace.schema import DELIVER, SENT

NAME = "sending view"
PROMISE = "a message is delivered in the view in which it was sent"
_UNKNOWN = -2
NO_VIEW, OTHER_VIEW, OTHER_NUMBER = range(3)


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about them."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find messages sent or delivered outside any view, or delivered in another view than they were sent in."""
    views, first = facts.views, facts.first
    sent_in = np.full(int(first[-1]), _UNKNOWN, np.int32)
    telling = SENT if facts.has(SENT) else DELIVER
    while (part := (yield)) is not None:
        _find_views(part, telling, first, views.install_view, sent_in)
    found, total = new_findings(4), 0
    while (part := (yield)) is not None:
        total = int(_scan(part, first, views.install_view, views.numbers, sent_in, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(line[0] for line in lines)
    return listed(NAME, total, [_describe(events, views, *line) for line in lines])


def _describe(events: dict[int, Any], views: Views, row: int, fault: int, here: int, there: int) -> Violation:
    one = events[row]
    does = "sends" if one["event"] == SENT else "delivers"
    what = f"member {one['member']} {does} message {one['sequence']} of sender {one['sender']} ({at(events, row)})"
    if fault == NO_VIEW:
        reason = "before it installed a view"
    elif fault == OTHER_NUMBER:
        reason = f"in view {one['round']}, but it is in {views.name(here)}"
    else:
        reason = f"in {views.name(here)}, but it was sent in {views.name(there)}"
    return Violation(checker=NAME, message=f"{what} {reason}", rows=(row,), time_ns=int(one["time_ns"]))


@allocating
def _scan(part: Any, first: Any, install_view: Any, numbers: Any, sent_in: Any, found: Any, total: int) -> int:
    """Write (row, fault, view of the member, of the message) of the first violations; return how many there are."""
    events = part.events
    for row in range(len(events)):
        kind = events["event"][row]
        if (kind != SENT and kind != DELIVER) or events["sequence"][row] < 1 or part.replay[row]:
            continue
        here = install_view[part.segment[row]] if part.segment[row] >= 0 else np.int32(-1)
        there = sent_in[first[events["sender"][row]] + events["sequence"][row] - 1]
        fault = -1
        if here < 0:
            fault = NO_VIEW
        elif kind == SENT and events["round"][row] >= 0 and events["round"][row] != numbers[here]:
            fault = OTHER_NUMBER
        elif kind == DELIVER and there >= 0 and there != here:
            fault = OTHER_VIEW
        if fault >= 0:
            if total < LISTED_MAX:
                found[total, 0] = part.start + row
                found[total, 1] = fault
                found[total, 2] = here
                found[total, 3] = there
            total += 1
    return total


@allocating
def _find_views(part: Any, wanted: int, first: Any, install_view: Any, sent_in: Any) -> None:
    """Write into `sent_in` the view of the first row of this kind for each message."""
    events = part.events
    for row in range(len(events)):
        if events["event"][row] == wanted and events["sequence"][row] >= 1 and not part.replay[row]:
            number = first[events["sender"][row]] + events["sequence"][row] - 1
            if sent_in[number] == _UNKNOWN and part.segment[row] >= 0:
                sent_in[number] = install_view[part.segment[row]]

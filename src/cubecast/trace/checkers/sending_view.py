"""Sending view delivery: a message is delivered in the view in which it was sent, by every member that delivers it.

The view of a message is the one its sender is in at the sent row; in a trace without sent rows, the one in which it is
delivered first.
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
from cubecast.trace.checkers.views import Views, read_views, without_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, SENT, Events

NAME = "sending view"
PROMISE = "a message is delivered in the view in which it was sent"
_UNKNOWN = -2
NO_VIEW, OTHER_VIEW, OTHER_NUMBER = range(3)


def not_promised(trace: Trace) -> str | None:
    """A run without views promises nothing about them."""
    return without_views(trace)


def check(trace: Trace) -> list[Violation]:
    """Find messages sent or delivered outside any view, or delivered in another view than they were sent in."""
    events, members = well_formed(trace)
    views = read_views(events, members)
    first = number_messages(events)
    found = new_findings(4)
    total = int(_scan(events, first, views, found))
    lines = found[: min(total, LISTED_MAX)]
    return listed(NAME, total, [_describe(events, views, *map(int, line)) for line in lines])


def _describe(events: Events, views: Views, row: int, fault: int, here: int, there: int) -> Violation:
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
def _scan(events: Any, first: Any, views: Any, found: Any) -> int:
    """Write (row, fault, view of the member, of the message) of the first violations; return how many there are."""
    sent_in = np.full(first[-1], _UNKNOWN, np.int64)
    _find_views(events, SENT if _any_sent(events) else DELIVER, first, views, sent_in)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        if (kind != SENT and kind != DELIVER) or events["sequence"][row] < 1 or views.replay[row]:
            continue
        here = _view_at(views, row)
        there = sent_in[first[events["sender"][row]] + events["sequence"][row] - 1]
        fault = -1
        if here < 0:
            fault = NO_VIEW
        elif kind == SENT and events["round"][row] >= 0 and events["round"][row] != views.numbers[here]:
            fault = OTHER_NUMBER
        elif kind == DELIVER and there >= 0 and there != here:
            fault = OTHER_VIEW
        if fault >= 0:
            if total < LISTED_MAX:
                found[total, 0] = row
                found[total, 1] = fault
                found[total, 2] = here
                found[total, 3] = there
            total += 1
    return total


@allocating
def _any_sent(events: Any) -> bool:
    for row in range(len(events)):
        if events["event"][row] == SENT:
            return True
    return False


@allocating
def _view_at(views: Any, row: int) -> Any:
    """Return the view in which a sent or deliver row takes place, or -1."""
    return views.of_row[views.segment[row]] if views.segment[row] >= 0 else np.int32(-1)


@allocating
def _find_views(events: Any, wanted: int, first: Any, views: Any, sent_in: Any) -> None:
    """Put into `sent_in` the view of the first row of this kind for each message."""
    for row in range(len(events)):
        if events["event"][row] == wanted and events["sequence"][row] >= 1 and not views.replay[row]:
            number = first[events["sender"][row]] + events["sequence"][row] - 1
            if sent_in[number] == _UNKNOWN and views.segment[row] >= 0:
                sent_in[number] = _view_at(views, row)

"""Returned is returned: a message returned to its excluded sender is delivered by no member that continued without it.

An excluded member gets back the messages that the group certainly does not deliver, so that its application may send
them again. A member *continued* if it installed a view above the last one of the sender.
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
    well_formed,
)
from cubecast.trace.checkers.views import Views, read_views, without_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, INSTALL, RESTART, RESTORE, RETURNED, SENT, Events

NAME = "returned is returned"
PROMISE = "what is returned to an excluded member is delivered by no member that continues without it"


def not_promised(trace: Trace) -> str | None:
    """A run without views promises nothing about them."""
    return without_views(trace)


def check(trace: Trace) -> list[Violation]:
    """Find deliveries, by members that continued, of messages that were returned."""
    events, members = well_formed(trace)
    views = read_views(events, members)
    first = number_messages(events)
    returned = np.full(int(first[-1]), -1, np.int64)
    given_back = np.flatnonzero(events["event"] == RETURNED).tolist()
    sent = _sent_by_serial(events) if given_back else {}
    for row in given_back:
        sequence = _sequence(events, row, sent)
        if sequence >= 1:
            returned[first[events["sender"][row]] + sequence - 1] = row
    if not (returned >= 0).any():
        return []
    last = _last_views(events, members, views)
    guilty = _scan(events, first, returned, last, members)
    rows = np.flatnonzero(guilty >= 0)
    shown = [_describe(events, int(row), int(guilty[row]), last) for row in rows[:LISTED_MAX]]
    return listed(NAME, len(rows), shown)


def _sequence(events: Events, row: int, sent: dict[tuple[int, int], int]) -> int:
    """Return the sequence number of what was returned; a message known by its serial only may have been sent."""
    if events["sequence"][row] >= 1 or events["message"][row] < 0:
        return int(events["sequence"][row])
    return sent.get((int(events["member"][row]), int(events["message"][row])), 0)


def _sent_by_serial(events: Events) -> dict[tuple[int, int], int]:
    """Return the sequence number by member and serial, of what was sent since the member's last restart.

    A process that restarts begins its serials anew.
    """
    sent: dict[tuple[int, int], int] = {}
    restarted: dict[int, int] = {}
    rows = np.flatnonzero(events["event"] == RESTART)
    restarted.update(zip(events["member"][rows].tolist(), rows.tolist(), strict=True))
    for row in np.flatnonzero(events["event"] == SENT).tolist():
        member = int(events["member"][row])
        if row > restarted.get(member, -1):
            sent[member, int(events["message"][row])] = int(events["sequence"][row])
    return sent


def _last_views(events: Events, members: int, views: Views) -> Any:
    """Return the highest view number that each member installed, or -1."""
    last = np.full(members, -1, np.int64)
    rows = events["event"] == INSTALL
    np.maximum.at(last, events["member"][rows], views.numbers[views.of_row[rows]])
    return last


def _describe(events: Events, row: int, back: int, last: Any) -> Violation:
    one = events[row]
    does = "delivers message" if one["event"] == DELIVER else "restores messages up to"
    message = (
        f"member {one['member']} {does} {one['sequence']} of sender {one['sender']} ({at(events, row)}) and continues "
        f"to view {last[one['member']]}, but that was returned to its sender ({at(events, back)})"
    )
    return Violation(checker=NAME, message=message, rows=(row, back), time_ns=int(one["time_ns"]))


@allocating
def _scan(events: Any, first: Any, returned: Any, last: Any, members: int) -> Any:
    """Return, for each row that gives a returned message to a member that continued, the returned row; else -1."""
    guilty = np.full(len(events), -1, np.int64)
    known = np.zeros((members, len(returned)), np.bool_)
    for row in range(len(events)):
        kind = events["event"][row]
        if (kind != DELIVER and kind != RESTORE) or events["sequence"][row] < 1:
            continue
        member = events["member"][row]
        sender = events["sender"][row]
        if last[member] <= last[sender]:
            continue
        number = first[sender] + events["sequence"][row] - 1
        lowest = number if kind == DELIVER else first[sender]
        for one in range(lowest, number + 1):
            if returned[one] >= 0 and not known[member, one]:
                known[member, one] = True
                if guilty[row] < 0:
                    guilty[row] = returned[one]
    return guilty

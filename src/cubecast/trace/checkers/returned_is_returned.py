"""Returned is returned: a message returned to its excluded sender is delivered by no member that continued without it.

An excluded member gets back the messages that the group certainly does not deliver, so that its application may send
them again. A member *continued* if it installed a view above the last one of the sender.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Part, Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    new_findings,
)
from cubecast.trace.checkers.views import Described, without_views
from cubecast.trace.schema import DELIVER, INSTALL, RESTART, RESTORE, RETURNED, SENT

NAME = "returned is returned"
PROMISE = "what is returned to an excluded member is delivered by no member that continues without it"

_Serial = tuple[int, int]
"""Member and number of a multicast."""


class _Returned(NamedTuple):
    """The messages that were returned, sorted; the returned row of each; the members found to have it."""

    numbers: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    known: npt.NDArray[np.bool_]  # members × these messages


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about them."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find deliveries, by members that continued, of messages that were returned."""
    given_back, rows = facts.membership(RETURNED)
    sent: dict[_Serial, int] = {}
    unnumbered = given_back[(given_back["sequence"] < 1) & (given_back["message"] >= 0)]
    if len(unnumbered):
        wanted = set(zip(unnumbered["member"].tolist(), unnumbered["message"].tolist(), strict=True))
        restarts, restart_rows = facts.membership(RESTART)
        restarted = dict(zip(restarts["member"].tolist(), restart_rows.tolist(), strict=True))
        while (part := (yield)) is not None:
            _find_sent(part, wanted, restarted, sent)
    by_number: dict[int, int] = {}
    for one, row in zip(given_back, rows.tolist(), strict=True):
        sequence = int(one["sequence"]) or sent.get((int(one["member"]), int(one["message"])), 0)
        if sequence >= 1:
            by_number[int(facts.first[one["sender"]]) + sequence - 1] = row
    if not by_number:
        return []
    numbers = np.array(sorted(by_number), np.int64)
    returned = _Returned(
        numbers=numbers,
        rows=np.array([by_number[number] for number in numbers.tolist()], np.int64),
        known=np.zeros((facts.members, len(numbers)), np.bool_),
    )
    last = _last_views(facts)
    found, total = new_findings(2), 0
    while (part := (yield)) is not None:
        total = int(_scan(part.events, part.start, facts.first, returned, last, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(row for line in lines for row in line)
    return listed(NAME, total, [_describe(events, row, back, last) for row, back in lines])


def _find_sent(part: Part, wanted: set[_Serial], restarted: dict[int, int], sent: dict[_Serial, int]) -> None:
    """Find the sequence numbers of these serials, among messages sent since the member's last restart.

    A process that restarts begins its serials again.
    """
    rows = np.flatnonzero(part.events["event"] == SENT)
    chosen = part.events[rows]
    for row, member, serial, sequence in zip(
        (rows + part.start).tolist(),
        chosen["member"].tolist(),
        chosen["message"].tolist(),
        chosen["sequence"].tolist(),
        strict=True,
    ):
        if (member, serial) in wanted and row > restarted.get(member, -1):
            sent[member, serial] = sequence


def _last_views(facts: Facts) -> npt.NDArray[np.int64]:
    """Return the highest view number that each member installed, or -1."""
    last = np.full(facts.members, -1, np.int64)
    installs, _ = facts.membership(INSTALL)
    np.maximum.at(last, installs["member"], facts.views.numbers[facts.views.install_view])
    return last


def _describe(events: dict[int, Any], row: int, back: int, last: Any) -> Violation:
    one = events[row]
    does = "delivers message" if one["event"] == DELIVER else "restores messages up to"
    message = (
        f"member {one['member']} {does} {one['sequence']} of sender {one['sender']} ({at(events, row)}) and continues "
        f"to view {last[one['member']]}, but that was returned to its sender ({at(events, back)})"
    )
    return Violation(checker=NAME, message=message, rows=(row, back), time_ns=int(one["time_ns"]))


@allocating
def _scan(events: Any, start: int, first: Any, returned: Any, last: Any, found: Any, total: int) -> int:
    """Write (row, returned row) where a returned message is given to a member that continued; return how many."""
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
        guilty = np.int64(-1)
        for place in range(np.searchsorted(returned.numbers, lowest), len(returned.numbers)):
            if returned.numbers[place] > number:
                break
            if not returned.known[member, place]:
                returned.known[member, place] = True
                if guilty < 0:
                    guilty = returned.rows[place]
        if guilty >= 0:
            if total < LISTED_MAX:
                found[total, 0] = start + row
                found[total, 1] = guilty
            total += 1
    return total

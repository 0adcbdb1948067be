"""No premature stability: what a member calls stable, every member that is up holds (MODELS §1, safety).

The scan keeps, for every sender, a lower bound of what all members that are up hold. Deliveries and crashes can only
raise the true minimum, so the bound is computed again only when a stable row goes beyond it, or lowered at a recovery.

| state | shape | meaning |
|---|---|---|
| `received` | senders × members | R: highest sequence held, from the deliver rows |
| `up` | members | not crashed, or recovered since |
| `floor` | senders | lower bound of `received` over the members that are up |

In a run with views, every member is every member of the view that the claiming member is in, up or not: one that is
down may restart from its journal. A member has what it delivered, restored, or holds for its application (hold rows),
and a newcomer counts as having all that was delivered before the view it joined with: the state that it will get.
"""

from typing import Any

import numpy as np

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    new_findings,
    senders_in,
    well_formed,
)
from cubecast.trace.checkers.views import has_views, read_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DELIVER, HOLD, INSTALL, NOBODY, RECOVER, RESTORE, STABLE

NAME = "no premature stability"
PROMISE = "when a member calls a message stable, every member of its view (without views, that is up) holds it"


def not_promised(trace: Trace) -> str | None:
    """A scenario that seeks errors reports what any member has seen, not what every member holds."""
    if trace.scenario.get("goal") == "errors":
        return "the scenario seeks errors, not stability"
    return None


def check(trace: Trace) -> list[Violation]:
    """Find stable rows that come before some member of the view, or some member that is up, holds the message."""
    events, members = well_formed(trace)
    found = new_findings(2)
    if has_views(trace):
        total = int(_scan_views(events, members, senders_in(events), read_views(events, members), found))
    else:
        total = int(_scan(events, members, senders_in(events), found))
    return listed(NAME, total, [_describe(trace, int(row), int(slow)) for row, slow in found[: min(total, LISTED_MAX)]])


def _describe(trace: Trace, row: int, slow: int) -> Violation:
    events = trace.events
    stable = events[row]
    sender = int(stable["sender"])
    holding = int(_row_of_holding(events, row, slow, sender))
    if holding < 0:
        held = "holds none"
        rows: tuple[int, ...] = (trace.row_number(row),)
    else:
        held = f"holds only up to {events['sequence'][holding]} ({at(events, holding, trace.row_number(holding))})"
        rows = (trace.row_number(row), trace.row_number(holding))
    by = f" in round {stable['round']}" if stable["round"] >= 0 else ""
    message = (
        f"member {stable['member']} calls sender {sender} stable up to {stable['sequence']}{by} "
        f"({at(events, row, trace.row_number(row))}), but member {slow} {held}"
    )
    return Violation(checker=NAME, message=message, rows=rows, time_ns=int(stable["time_ns"]))


@allocating
def _scan(events: Any, members: int, senders: int, found: Any) -> int:
    """Write (stable row, slowest member) of the first violations; return how many there are."""
    received = np.zeros((senders, members), np.int32)
    floor = np.zeros(senders, np.int32)
    up = np.ones(members, np.bool_)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if kind == DELIVER:
            received[sender, member] = max(received[sender, member], sequence)
        elif kind == CRASH:
            up[member] = False
        elif kind == RECOVER:
            up[member] = True
            floor = np.minimum(floor, received[:, member])
        elif kind == STABLE and sequence > floor[sender]:
            slow = _slowest(received[sender], up)
            if slow == NOBODY:
                continue
            floor[sender] = received[sender, slow]
            if sequence > floor[sender]:
                if total < LISTED_MAX:
                    found[total, 0] = row
                    found[total, 1] = slow
                total += 1
    return total


@allocating
def _scan_views(events: Any, members: int, senders: int, views: Any, found: Any) -> int:
    """Write (stable row, slowest member of the view) of the first violations; return how many there are."""
    received = np.zeros((senders, members), np.int32)
    delivered = np.zeros((senders, members), np.int32)
    floor = np.zeros((len(views.numbers), senders), np.int32)
    current = np.full(members, -1, np.int64)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if kind == DELIVER or kind == RESTORE or kind == HOLD:
            received[sender, member] = max(received[sender, member], sequence)
            if kind != HOLD:
                delivered[sender, member] = max(delivered[sender, member], sequence)
        elif kind == INSTALL and not views.replay[row]:
            view = views.of_row[row]
            for other in range(members):
                if current[member] >= 0 and views.belongs[view, other] and not views.belongs[current[member], other]:
                    received[:, other] = np.maximum(received[:, other], delivered[:, member])
            current[member] = view
        elif kind == STABLE and current[member] >= 0 and sequence > floor[current[member], sender]:
            slow = _slowest(received[sender], views.belongs[current[member]])
            if slow == NOBODY:
                continue
            floor[current[member], sender] = received[sender, slow]
            if sequence > received[sender, slow]:
                if total < LISTED_MAX:
                    found[total, 0] = row
                    found[total, 1] = slow
                total += 1
    return total


@allocating
def _slowest(received: Any, up: Any) -> int:
    """Return the member that is up and holds least, the lowest rank of several, or nobody."""
    slow = NOBODY
    for member in range(len(up)):
        if up[member] and (slow == NOBODY or received[member] < received[slow]):
            slow = member
    return slow


@allocating
def _row_of_holding(events: Any, before: int, member: int, sender: int) -> int:
    """Return the row before `before` by which the member holds most of the sender, or -1."""
    best = -1
    for row in range(before):
        kind = events["event"][row]
        if kind != DELIVER and kind != RESTORE and kind != HOLD:
            continue
        if events["member"][row] == member and events["sender"][row] == sender:
            if best < 0 or events["sequence"][row] > events["sequence"][best]:
                best = row
    return best

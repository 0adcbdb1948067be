"""No premature stability: what a member calls stable, every member that is up holds (MODELS §1, safety).

The scan keeps, for every sender, a lower bound of what all members that are up hold. Deliveries and crashes can only
raise the true minimum, so the bound is computed again only when a stable row goes beyond it, or lowered at a recovery.

| state | shape | meaning |
|---|---|---|
| `received` | senders × members | R: highest sequence held, from the deliver rows |
| `up` | members | not crashed, or recovered since |
| `floor` | senders (with views: views × senders) | lower bound of `received` over the members that are up |
| `most`, `holding` | senders × members | highest sequence of its deliver, restore and hold rows; its first row |

In a run with views, all members of the claiming member's view count, up or not: one that is down may restart from its
journal. A member has what it delivered, restored, or holds for its application (hold rows). A newcomer also has
everything that was delivered before the view with which it joined: the state that it will get.
"""

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
from cubecast.trace.checkers.views import Described, has_views
from cubecast.trace.schema import CRASH, DELIVER, HOLD, INSTALL, NOBODY, RECOVER, RESTORE, STABLE

NAME = "no premature stability"
PROMISE = "when a member calls a message stable, every member of its view (without views, that is up) holds it"


class _Held(NamedTuple):
    received: npt.NDArray[np.int32]
    delivered: npt.NDArray[np.int32]  # with views: without what is held for the application
    most: npt.NDArray[np.int32]
    holding: npt.NDArray[np.int64]


def not_promised(trace: Described) -> str | None:
    """With the goal errors members report what any member has seen, not what every member holds."""
    if trace.scenario.get("goal") == "errors":
        return "the scenario seeks errors, not stability"
    return None


def scan(facts: Facts) -> Scan:
    """Find stable rows before some member of the view (without views, some member that is up) holds the message."""
    shape = (facts.senders, facts.members)
    with_views = has_views(facts)
    held = _Held(
        received=np.zeros(shape, np.int32),
        delivered=np.zeros(shape if with_views else (0, 0), np.int32),
        most=np.full(shape, -1, np.int32),
        holding=np.full(shape, -1, np.int64),
    )
    found, total = new_findings(3), 0
    if with_views:
        views = facts.views
        floor = np.zeros((len(views.numbers), facts.senders), np.int32)
        current = np.full(facts.members, -1, np.int64)
        while (part := (yield)) is not None:
            total = int(_scan_views(part, views.belongs, held, floor, current, found, total))
    else:
        least = np.zeros(facts.senders, np.int32)
        up = np.ones(facts.members, np.bool_)
        while (part := (yield)) is not None:
            total = int(_scan(part.events, part.start, held, least, up, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(row for row, _, holding in lines for row in (row, holding))
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _describe(events: dict[int, Any], row: int, slow: int, holding: int) -> Violation:
    stable = events[row]
    held = "holds none"
    rows: tuple[int, ...] = (row,)
    if holding >= 0:
        held = f"holds only up to {events[holding]['sequence']} ({at(events, holding)})"
        rows = (row, holding)
    by = f" in round {stable['round']}" if stable["round"] >= 0 else ""
    message = (
        f"member {stable['member']} calls sender {stable['sender']} stable up to {stable['sequence']}{by} "
        f"({at(events, row)}), but member {slow} {held}"
    )
    return Violation(checker=NAME, message=message, rows=rows, time_ns=int(stable["time_ns"]))


@allocating
def _hold(held: Any, sender: int, member: int, sequence: int, row: int) -> None:
    """Note a deliver, restore or hold row."""
    if sequence > held.most[sender, member]:
        held.most[sender, member] = sequence
        held.holding[sender, member] = row


@allocating
def _scan(events: Any, start: int, held: Any, floor: Any, up: Any, found: Any, total: int) -> int:
    """Write (stable row, slowest member, row of what it holds) of the first violations; return how many there are."""
    received = held.received
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if kind == DELIVER or kind == RESTORE or kind == HOLD:
            _hold(held, sender, member, sequence, start + row)
            if kind == DELIVER:
                received[sender, member] = max(received[sender, member], sequence)
        elif kind == CRASH:
            up[member] = False
        elif kind == RECOVER:
            up[member] = True
            for other in range(len(floor)):
                floor[other] = min(floor[other], received[other, member])
        elif kind == STABLE and sequence > floor[sender]:
            slow = _slowest(received[sender], up)
            if slow == NOBODY:
                continue
            floor[sender] = received[sender, slow]
            if sequence > floor[sender]:
                if total < LISTED_MAX:
                    found[total, 0] = start + row
                    found[total, 1] = slow
                    found[total, 2] = held.holding[sender, slow]
                total += 1
    return total


@allocating
def _scan_views(part: Any, belongs: Any, held: Any, floor: Any, current: Any, found: Any, total: int) -> int:
    """Write (stable row, slowest member of the view, row of what it holds) as `_scan` does."""
    events = part.events
    received = held.received
    delivered = held.delivered
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if kind == DELIVER or kind == RESTORE or kind == HOLD:
            _hold(held, sender, member, sequence, part.start + row)
            received[sender, member] = max(received[sender, member], sequence)
            if kind != HOLD:
                delivered[sender, member] = max(delivered[sender, member], sequence)
        elif kind == INSTALL and not part.replay[row]:
            view = part.of_row[row]
            for other in range(len(current)):
                if current[member] >= 0 and belongs[view, other] and not belongs[current[member], other]:
                    received[:, other] = np.maximum(received[:, other], delivered[:, member])
            current[member] = view
        elif kind == STABLE and current[member] >= 0 and sequence > floor[current[member], sender]:
            slow = _slowest(received[sender], belongs[current[member]])
            if slow == NOBODY:
                continue
            floor[current[member], sender] = received[sender, slow]
            if sequence > received[sender, slow]:
                if total < LISTED_MAX:
                    found[total, 0] = part.start + row
                    found[total, 1] = slow
                    found[total, 2] = held.holding[sender, slow]
                total += 1
    return total


@allocating
def _slowest(received: Any, up: Any) -> int:
    """Return the member that is up and holds least (of several the lowest rank), or NOBODY."""
    slow = NOBODY
    for member in range(len(up)):
        if up[member] and (slow == NOBODY or received[member] < received[slow]):
            slow = member
    return slow

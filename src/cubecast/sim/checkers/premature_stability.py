"""No premature stability: what a member calls stable, every member that is up holds (MODELS §1, safety).

The scan keeps, for every sender, a lower bound of what all members that are up hold. Deliveries and crashes can only
raise the true minimum, so the bound is computed again only when a stable row goes beyond it, or lowered at a recovery.

| state | shape | meaning |
|---|---|---|
| `received` | senders × members | R: highest sequence held, from the deliver rows |
| `up` | members | not crashed, or recovered since |
| `floor` | senders | lower bound of `received` over the members that are up |
"""

from typing import Any

import numpy as np

from cubecast.core.compiled import allocating
from cubecast.sim.checkers.report import Violation
from cubecast.sim.checkers.rows import LISTED_MAX, at, listed, new_findings, senders_in, well_formed
from cubecast.trace import CRASH, DELIVER, NOBODY, RECOVER, STABLE, Events, Trace

NAME = "no premature stability"
PROMISE = "when a member calls a message stable, every member that is up holds it"


def not_promised(trace: Trace) -> str | None:
    """A scenario that seeks errors tells what anybody has seen, not what everybody holds."""
    if trace.scenario.get("goal") == "errors":
        return "the scenario seeks errors, not stability"
    return None


def check(trace: Trace) -> list[Violation]:
    """Find stable rows that come before some member that is up holds the message."""
    events, members = well_formed(trace)
    found = new_findings(2)
    total = int(_scan(events, members, senders_in(events), found))
    return listed(NAME, total, [_tell(events, int(row), int(slow)) for row, slow in found[: min(total, LISTED_MAX)]])


def _tell(events: Events, row: int, slow: int) -> Violation:
    stable = events[row]
    sender = int(stable["sender"])
    holding = int(_row_of_holding(events, row, slow, sender))
    if holding < 0:
        held = "holds none"
        rows: tuple[int, ...] = (row,)
    else:
        held = f"holds only up to {events['sequence'][holding]} ({at(events, holding)})"
        rows = (row, holding)
    message = (
        f"member {stable['member']} calls sender {sender} stable up to {stable['sequence']} in round "
        f"{stable['round']} ({at(events, row)}), but member {slow} {held}"
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
def _slowest(received: Any, up: Any) -> int:
    """Give the member that is up and holds least, the lowest rank of several, or nobody."""
    slow = NOBODY
    for member in range(len(up)):
        if up[member] and (slow == NOBODY or received[member] < received[slow]):
            slow = member
    return slow


@allocating
def _row_of_holding(events: Any, before: int, member: int, sender: int) -> int:
    """Give the deliver row before `before` by which the member holds most of the sender, or -1."""
    best = -1
    for row in range(before):
        if events["event"][row] == DELIVER and events["member"][row] == member and events["sender"][row] == sender:
            if best < 0 or events["sequence"][row] > events["sequence"][best]:
                best = row
    return best

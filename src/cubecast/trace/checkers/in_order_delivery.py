"""In-order delivery: a member's messages of one sender come one by one, none twice and none left out.

A deliver row says "holds everything up to here", so the sequence numbers of one member and sender form a run. The run
begins at the state the member started with (a deliver row at time 0, or one that names the peer whose state a member
that joined took over, or a restore row), or at 1 when there is no such row. Sequence numbers continue from view to
view. What a member that restarts from its journal repeats is judged by another checker.
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
    new_memory,
    remember,
    well_formed,
)
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DELIVER, RESTART, RESTARTED, RESTORE

NAME = "in-order delivery"
PROMISE = "each member delivers each sender's messages in sequence, without a gap and without a duplicate"


def not_promised(trace: Trace) -> str | None:
    """A tree over lossy links delivers messages as they arrive."""
    if trace.scenario.get("family") == "broadcast":
        return "broadcast trees do not order messages"
    return None


def check(trace: Trace) -> list[Violation]:
    """Find deliver rows that do not continue the run of their member and sender."""
    events, members = well_formed(trace)
    found = new_findings(2)
    total = int(_scan(events, members, found))
    return listed(NAME, total, [_describe(trace, int(row), int(old)) for row, old in found[: min(total, LISTED_MAX)]])


def _describe(trace: Trace, row: int, old: int) -> Violation:
    events = trace.events
    delivered = events[row]
    rows = tuple(trace.row_number(one) for one in (row, old) if one >= 0)
    held = 0 if old < 0 else int(events["sequence"][old])
    before = "nothing" if old < 0 else f"{held} ({at(events, old, rows[-1])})"
    fault = "again" if delivered["sequence"] <= held else "too early"
    message = (
        f"member {delivered['member']} delivers message {delivered['sequence']} of sender {delivered['sender']} "
        f"{fault} ({at(events, row, rows[0])}): the last one it delivered was {before}"
    )
    return Violation(checker=NAME, message=message, rows=rows, time_ns=int(delivered["time_ns"]))


@allocating
def _scan(events: Any, members: int, found: Any) -> int:
    """Write (deliver row, deliver row before it or -1) of the first violations; return how many there are."""
    last = new_memory()
    most = new_memory()
    restarting = np.zeros(members, np.bool_)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == RESTART:
            restarting[member] = True
        elif kind == RESTARTED or kind == CRASH:
            restarting[member] = False
        if kind != DELIVER and kind != RESTORE:
            continue
        key = np.int64(events["sender"][row]) * members + member
        highest = remember(most, key, row)
        if highest >= 0 and events["sequence"][row] <= events["sequence"][highest]:
            most[key] = highest
            if restarting[member]:
                continue
        old = remember(last, key, row)
        if kind == RESTORE:
            continue
        if (old < 0 and events["time_ns"][row] == 0) or events["peer"][row] >= 0:
            continue
        held = 0 if old < 0 else events["sequence"][old]
        if events["sequence"][row] != held + 1:
            if total < LISTED_MAX:
                found[total, 0] = row
                found[total, 1] = old
            total += 1
    return total

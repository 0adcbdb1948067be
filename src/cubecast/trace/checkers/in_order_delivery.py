"""In-order delivery: a member delivers the messages of one sender one by one, without duplicates and gaps.

A deliver row means "holds everything up to here", so the sequence numbers of one member and sender form a run. The run
begins at the state the member started with (a deliver row at time 0, or one that names the peer whose state a member
that joined took over, or a restore row), or at 1 when there is no such row. Sequence numbers continue from view to
view. What a member that restarts from its journal repeats is judged by another checker.
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
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import CRASH, DELIVER, RESTART, RESTARTED, RESTORE

NAME = "in-order delivery"
PROMISE = "each member delivers each sender's messages in sequence, without a gap and without a duplicate"


class _Runs(NamedTuple):
    """For each sender and member: the highest sequence so far, the last row of the run, and its sequence."""

    most: npt.NDArray[np.int32]
    last: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int32]
    restarting: npt.NDArray[np.bool_]


def not_promised(trace: Described) -> str | None:
    """A tree over lossy links delivers messages as they arrive."""
    if trace.scenario.get("family") == "broadcast":
        return "broadcast trees do not order messages"
    return None


def scan(facts: Facts) -> Scan:
    """Find deliver rows that do not continue the run of their member and sender."""
    shape = (facts.senders, facts.members)
    runs = _Runs(
        most=np.full(shape, -1, np.int32),
        last=np.full(shape, -1, np.int64),
        sequence=np.zeros(shape, np.int32),
        restarting=np.zeros(facts.members, np.bool_),
    )
    found, total = new_findings(2), 0
    while (part := (yield)) is not None:
        total = int(_scan(part.events, part.start, runs, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(row for line in lines for row in line)
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _describe(events: dict[int, Any], row: int, old: int) -> Violation:
    delivered = events[row]
    held = 0 if old < 0 else int(events[old]["sequence"])
    before = "nothing" if old < 0 else f"{held} ({at(events, old)})"
    fault = "again" if delivered["sequence"] <= held else "too early"
    message = (
        f"member {delivered['member']} delivers message {delivered['sequence']} of sender {delivered['sender']} "
        f"{fault} ({at(events, row)}): the last one it delivered was {before}"
    )
    rows = (row,) if old < 0 else (row, old)
    return Violation(checker=NAME, message=message, rows=rows, time_ns=int(delivered["time_ns"]))


@allocating
def _scan(events: Any, start: int, runs: Any, found: Any, total: int) -> int:
    """Write (deliver row, deliver row before it or -1) of the first violations; return how many there are."""
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == RESTART:
            runs.restarting[member] = True
        elif kind == RESTARTED or kind == CRASH:
            runs.restarting[member] = False
        if kind != DELIVER and kind != RESTORE:
            continue
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if sequence > runs.most[sender, member]:
            runs.most[sender, member] = sequence
        elif runs.restarting[member]:
            continue
        old = runs.last[sender, member]
        held = runs.sequence[sender, member]
        runs.last[sender, member] = start + row
        runs.sequence[sender, member] = sequence
        if kind == RESTORE or (old < 0 and events["time_ns"][row] == 0) or events["peer"][row] >= 0:
            continue
        if sequence != held + 1:
            if total < LISTED_MAX:
                found[total, 0] = start + row
                found[total, 1] = old
            total += 1
    return total

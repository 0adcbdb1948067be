"""Stability never decreases: what a member called stable stays stable (MODELS §1: S = max(S, M) at every ending).

A member that restarts from its journal begins anew: it may have to learn again what is stable.
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
from cubecast.trace.schema import RESTART, STABLE

NAME = "stability never decreases"
PROMISE = "a member never calls less of a sender stable than it did before"


def not_promised(_trace: Trace) -> str | None:
    """Every scenario promises it."""
    return None


def check(trace: Trace) -> list[Violation]:
    """Find stable rows below the one before it of the same member and sender."""
    events, members = well_formed(trace)
    found = new_findings(2)
    total = int(_scan(events, members, found))
    return listed(NAME, total, [_describe(trace, int(row), int(old)) for row, old in found[: min(total, LISTED_MAX)]])


def _describe(trace: Trace, row: int, old: int) -> Violation:
    events = trace.events
    stable = events[row]
    rows = (trace.row_number(row), trace.row_number(old))
    message = (
        f"member {stable['member']} calls sender {stable['sender']} stable up to {stable['sequence']} "
        f"({at(events, row, rows[0])}), after it called it stable up to {events['sequence'][old]} "
        f"({at(events, old, rows[1])})"
    )
    return Violation(checker=NAME, message=message, rows=rows, time_ns=int(stable["time_ns"]))


@allocating
def _scan(events: Any, members: int, found: Any) -> int:
    """Write (stable row, stable row before it) of the first violations; return how many there are."""
    last = new_memory()
    restarted = np.full(members, -1, np.int64)
    total = 0
    for row in range(len(events)):
        if events["event"][row] == RESTART:
            restarted[events["member"][row]] = row
        if events["event"][row] != STABLE:
            continue
        key = np.int64(events["sender"][row]) * members + events["member"][row]
        old = remember(last, key, row)
        if old > restarted[events["member"][row]] and events["sequence"][row] < events["sequence"][old]:
            if total < LISTED_MAX:
                found[total, 0] = row
                found[total, 1] = old
            total += 1
    return total

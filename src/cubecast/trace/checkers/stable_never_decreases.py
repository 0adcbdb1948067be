"""Stability never decreases: what a member called stable stays stable (MODELS §1: S = max(S, M) at every ending).

A member that restarts from its journal starts again: it may have to learn again what is stable.
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
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import RESTART, STABLE

NAME = "stability never decreases"
PROMISE = "a member never reports less of a sender as stable than before"


def not_promised(_trace: Described) -> str | None:
    """Every scenario makes the promise."""
    return None


def scan(facts: Facts) -> Scan:
    """Find stable rows below an earlier one of the same member and sender."""
    last = np.full((facts.senders, facts.members), -1, np.int64)
    stable = np.zeros(last.shape, np.int32)
    restarted = np.full(facts.members, -1, np.int64)
    found, total = new_findings(2), 0
    while (part := (yield)) is not None:
        total = int(_scan(part.events, part.start, last, stable, restarted, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(row for line in lines for row in line)
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _describe(events: dict[int, Any], row: int, old: int) -> Violation:
    stable = events[row]
    message = (
        f"member {stable['member']} calls sender {stable['sender']} stable up to {stable['sequence']} "
        f"({at(events, row)}), after it called it stable up to {events[old]['sequence']} ({at(events, old)})"
    )
    return Violation(checker=NAME, message=message, rows=(row, old), time_ns=int(stable["time_ns"]))


@allocating
def _scan(events: Any, start: int, last: Any, stable: Any, restarted: Any, found: Any, total: int) -> int:
    """Write (stable row, stable row before it) of the first violations; return how many there are.

    `last` and `stable` are the last stable row of each sender and member, and its sequence number.
    """
    for row in range(len(events)):
        kind = events["event"][row]
        if kind != STABLE and kind != RESTART:
            continue
        member = events["member"][row]
        if kind == RESTART:
            restarted[member] = start + row
            continue
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if last[sender, member] > restarted[member] and sequence < stable[sender, member]:
            if total < LISTED_MAX:
                found[total, 0] = start + row
                found[total, 1] = last[sender, member]
            total += 1
        last[sender, member] = start + row
        stable[sender, member] = sequence
    return total

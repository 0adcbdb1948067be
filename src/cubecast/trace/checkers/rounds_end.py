"""Every round ends: a member that is up at the end knows the result of every requested round (MODELS §1, liveness).

A member may skip a round when a later one covers it, so "done with a round not below r" counts as done with r; a
member is therefore judged by the highest round it is done with. A run with a requested number of rounds stops in
the middle of the ones after them; without such a number, every round that was begun must end.
"""

from typing import Any

import numpy as np

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    well_formed,
)
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DONE, RECOVER, ROUND, Events

NAME = "every round ends"
PROMISE = "all requested rounds were begun, and every member that is up at the end is done with them"


def not_promised(trace: Trace) -> str | None:
    """A scenario with partitions, or one that may stop early, does not promise it."""
    if trace.scenario.get("partitions"):
        return "the scenario has partitions"
    if trace.scenario.get("unfinished_allowed"):
        return "the scenario allows an unfinished round"
    return None


def check(trace: Trace) -> list[Violation]:
    """Find members that are up and not done with the last requested round, and rounds that were never begun."""
    events, members = well_formed(trace)
    up, done, first, last = _scan(events, members)
    if not up.any():
        return []
    violations = _missing_rounds(trace, events, int(first), int(last))
    if last >= 0:
        wanted = _row_of_last_wanted(trace, events, int(first), int(last))
        late = np.flatnonzero(up & (done < events["round"][wanted]))
        shown = [_describe(events, int(member), int(done[member]), wanted) for member in late[:LISTED_MAX]]
        violations += listed(NAME, len(late), shown)
    return violations


def _row_of_last_wanted(trace: Trace, events: Events, first: int, last: int) -> int:
    """Return the row that began the last round which must end."""
    asked = int(trace.scenario.get("rounds", 0))
    final = int(events["round"][first]) + asked - 1
    if asked == 0 or final >= events["round"][last]:
        return last
    begun = np.flatnonzero((events["event"] == ROUND) & (events["round"] <= final))
    return int(begun[np.argmax(events["round"][begun])])


def _missing_rounds(trace: Trace, events: Events, first: int, last: int) -> list[Violation]:
    """Compare the rounds begun with scenario["rounds"], counted from the first round begun."""
    asked = int(trace.scenario.get("rounds", 0))
    begun = 0 if first < 0 else int(events["round"][last]) - int(events["round"][first]) + 1
    if begun >= asked:
        return []
    time_ns = int(events["time_ns"][-1]) if len(events) else 0
    where = "none began" if last < 0 else f"the last begun is round {events['round'][last]} ({at(events, last)})"
    message = f"{asked} rounds were requested, but {where}"
    rows = () if last < 0 else (last,)
    return [Violation(checker=NAME, message=message, rows=rows, time_ns=time_ns)]


def _describe(events: Events, member: int, done: int, last: int) -> Violation:
    begun = events[last]
    known = "done with no round" if done < 0 else f"done only up to round {done}"
    message = (
        f"member {member} is up at the end and {known}; "
        f"round {begun['round']} was begun by member {begun['member']} ({at(events, last)})"
    )
    return Violation(checker=NAME, message=message, rows=(last,), time_ns=int(events["time_ns"][-1]))


@allocating
def _scan(events: Any, members: int) -> Any:
    """Find who is up at the end, the highest round each is done with, and the rows of the lowest and highest round."""
    up = np.ones(members, np.bool_)
    done = np.full(members, -1, np.int64)
    first = -1
    last = -1
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        number = events["round"][row]
        if kind == CRASH:
            up[member] = False
        elif kind == RECOVER:
            up[member] = True
        elif kind == DONE:
            done[member] = max(done[member], number)
        elif kind == ROUND:
            if first < 0 or number < events["round"][first]:
                first = row
            if last < 0 or number > events["round"][last]:
                last = row
    return up, done, first, last

"""Every round ends: a member that is up at the end knows the result of every requested round (MODELS §1, liveness).

A member may skip a round if a later one covers it, so finishing a round not below r counts as finishing r; a member is
therefore judged by the highest round it finished. A run with a requested number of rounds may stop in the middle of
later rounds; without such a number, every round that was begun must end.
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
    memory_items,
    new_memory,
)
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import CRASH, DONE, RECOVER, ROUND

NAME = "every round ends"
PROMISE = "all requested rounds were begun, and every member that is up at the end is done with them"


def not_promised(trace: Described) -> str | None:
    """A scenario with partitions, or one that may stop early, does not make the promise."""
    if trace.scenario.get("partitions"):
        return "the scenario has partitions"
    if trace.scenario.get("unfinished_allowed"):
        return "the scenario allows an unfinished round"
    return None


def scan(facts: Facts) -> Scan:
    """Find members that are up and not done with the last requested round, and rounds that were never begun."""
    up = np.ones(facts.members, np.bool_)
    done = np.full(facts.members, -1, np.int64)
    memory = new_memory()  # round -> the row that began it
    while (part := (yield)) is not None:
        _scan(part.events, part.start, up, done, memory)
    if not up.any():
        return []
    begun: dict[int, int] = dict(memory_items(memory).tolist())
    asked = int(facts.scenario.get("rounds", 0))
    events = facts.cite(begun[number] for number in {max(begun, default=-1), _last_wanted(begun, asked)} & set(begun))
    violations = _missing_rounds(facts, events, begun, asked)
    if begun:
        wanted = _last_wanted(begun, asked)
        late = np.flatnonzero(up & (done < wanted)).tolist()
        shown = [_describe(facts, events, member, int(done[member]), begun[wanted]) for member in late[:LISTED_MAX]]
        violations += listed(NAME, len(late), shown)
    return violations


def _last_wanted(begun: dict[int, int], asked: int) -> int:
    """Return the last of the rounds that were begun which must end."""
    if not begun:
        return -1
    final = min(begun) + asked - 1
    if asked == 0 or final >= max(begun):
        return max(begun)
    return max(number for number in begun if number <= final)


def _missing_rounds(facts: Facts, events: dict[int, Any], begun: dict[int, int], asked: int) -> list[Violation]:
    """Compare the rounds begun with scenario["rounds"], counted from the first round begun."""
    if (max(begun) - min(begun) + 1 if begun else 0) >= asked:
        return []
    where = "none began"
    rows: tuple[int, ...] = ()
    if begun:
        last = begun[max(begun)]
        where, rows = f"the last begun is round {max(begun)} ({at(events, last)})", (last,)
    message = f"{asked} rounds were requested, but {where}"
    return [Violation(checker=NAME, message=message, rows=rows, time_ns=facts.summary.last_ns)]


def _describe(facts: Facts, events: dict[int, Any], member: int, done: int, last: int) -> Violation:
    begun = events[last]
    known = "done with no round" if done < 0 else f"done only up to round {done}"
    message = (
        f"member {member} is up at the end and {known}; "
        f"round {begun['round']} was begun by member {begun['member']} ({at(events, last)})"
    )
    return Violation(checker=NAME, message=message, rows=(last,), time_ns=facts.summary.last_ns)


@allocating
def _scan(events: Any, start: int, up: Any, done: Any, begun: Any) -> None:
    """Track which members are up, the highest round each finished, and the row that began each round."""
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == CRASH:
            up[member] = False
        elif kind == RECOVER:
            up[member] = True
        elif kind == DONE:
            done[member] = max(done[member], events["round"][row])
        elif kind == ROUND:
            number = np.int64(events["round"][row])
            if number not in begun:
                begun[number] = np.int64(start + row)

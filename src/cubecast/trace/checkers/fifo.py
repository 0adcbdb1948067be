"""FIFO: a link delivers copies in the order in which they joined its queue, and so does the route between two members.

The second half holds because routes are fixed. It is judged by message numbers, which grow with the time of sending,
and only for unicast copies: a copy of a tree multicast may take another route than a unicast between the same members.
"""

from typing import Any, NamedTuple

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
    new_memory,
    remember,
)
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import EVERYONE, HOP, LAYER_NAMES, RECEIVE, SEND

NAME = "FIFO per link"
PROMISE = (
    "copies leave a link in the order they entered it, and unicasts of one layer between two members stay in order"
)


class _Last(NamedTuple):
    """The row of the last hop of each link, when its copy joined the queue, and the last receipt of each route."""

    hop: Any
    entered_ns: Any
    receipt: Any
    message: Any
    trees: Any  # messages of tree multicasts


def not_promised(trace: Described) -> str | None:
    """A network that reorders on purpose, or draws a delay for every message, does not make the promise."""
    if trace.scenario.get("links") == 0:
        return "the network has no links"
    if trace.scenario.get("reorder", 0) > 0:
        return f"the scenario reorders messages with probability {trace.scenario['reorder']}"
    return None


def scan(facts: Facts) -> Scan:
    """Find hops that overtook another copy on their link, and receipts that overtook another unicast."""
    last = _Last(*(new_memory() for _ in _Last._fields))
    found, total = new_findings(2), 0
    while (part := (yield)) is not None:
        total = int(_scan(part.events, part.start, facts.members, last, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(row for line in lines for row in line)
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _describe(events: dict[int, Any], row: int, old: int) -> Violation:
    late, early = events[row], events[old]
    if late["event"] == HOP:
        message = (
            f"message {early['message']} overtook message {late['message']} on link {late['link']}: it arrived first "
            f"({at(events, old)}; {at(events, row)}) but joined the queue later, at {early['entered_ns']} ns, "
            f"not {late['entered_ns']} ns"
        )
    else:
        message = (
            f"{LAYER_NAMES[late['layer']]} message {early['message']} from member {late['peer']} overtook message "
            f"{late['message']} on the route to member {late['member']} ({at(events, old)}; {at(events, row)})"
        )
    return Violation(checker=NAME, message=message, rows=(row, old), time_ns=int(late["time_ns"]))


@allocating
def _scan(events: Any, start: int, members: int, last: Any, found: Any, total: int) -> int:
    """Write (row, row before it on the same route) of the first violations; return how many there are."""
    for row in range(len(events)):
        kind = events["event"][row]
        old = np.int64(-1)
        overtaken = False
        if kind == HOP:
            link: Any = np.int64(events["link"][row])
            old = remember(last.hop, link, start + row)
            before = remember(last.entered_ns, link, events["entered_ns"][row])
            overtaken = old >= 0 and events["entered_ns"][row] < before
        elif kind == SEND and events["peer"][row] == EVERYONE:
            remember(last.trees, events["message"][row], start + row)
        elif kind == RECEIVE and events["message"][row] not in last.trees:
            route = _route(events, row, members)
            old = remember(last.receipt, route, start + row)
            before = remember(last.message, route, events["message"][row])
            overtaken = old >= 0 and events["message"][row] < before
        if overtaken:
            if total < LISTED_MAX:
                found[total, 0] = start + row
                found[total, 1] = old
            total += 1
    return total


@allocating
def _route(events: Any, row: int, members: int) -> Any:
    """Number the route of a receipt: source, destination and layer."""
    pair = np.int64(events["peer"][row]) * members + events["member"][row]
    return 3 * pair + events["layer"][row]

"""FIFO: a link delivers copies in the order in which they joined its queue, and so does the route between two members.

The second half holds because routes are fixed. It is judged by message numbers, which grow with the time of sending,
and for unicast copies only: a copy of a tree multicast may take another route than a unicast between the same two.
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
from cubecast.trace.schema import EVERYONE, HOP, LAYER_NAMES, RECEIVE, SEND, Events

NAME = "FIFO per link"
PROMISE = (
    "copies leave a link in the order they entered it, and unicasts of one layer between two members stay in order"
)


def not_promised(trace: Trace) -> str | None:
    """A network that reorders on purpose, or draws a delay for every message, does not promise it."""
    if trace.scenario.get("links") == 0:
        return "the network has no links"
    if trace.scenario.get("reorder", 0) > 0:
        return f"the scenario reorders messages with probability {trace.scenario['reorder']}"
    return None


def check(trace: Trace) -> list[Violation]:
    """Find hops that overtook another copy on their link, and receipts that overtook another unicast."""
    events, members = well_formed(trace)
    found = new_findings(2)
    total = int(_scan(events, members, found))
    return listed(NAME, total, [_describe(events, int(row), int(old)) for row, old in found[: min(total, LISTED_MAX)]])


def _describe(events: Events, row: int, old: int) -> Violation:
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
def _scan(events: Any, members: int, found: Any) -> int:
    """Write (row, row before it on the same route) of the first violations; return how many there are."""
    last_hop = new_memory()
    last_receipt = new_memory()
    trees = new_memory()
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        old = np.int64(-1)
        overtaken = False
        if kind == HOP:
            old = remember(last_hop, events["link"][row], row)
            overtaken = old >= 0 and events["entered_ns"][row] < events["entered_ns"][old]
        elif kind == SEND and events["peer"][row] == EVERYONE:
            remember(trees, events["message"][row], row)
        elif kind == RECEIVE and events["message"][row] not in trees:
            old = remember(last_receipt, _route(events, row, members), row)
            overtaken = old >= 0 and events["message"][row] < events["message"][old]
        if overtaken:
            if total < LISTED_MAX:
                found[total, 0] = row
                found[total, 1] = old
            total += 1
    return total


@allocating
def _route(events: Any, row: int, members: int) -> Any:
    """Number the route of a receipt: source, destination and layer."""
    pair = np.int64(events["peer"][row]) * members + events["member"][row]
    return 3 * pair + events["layer"][row]

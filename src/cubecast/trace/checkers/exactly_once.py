"""Exactly once: no member delivers a message twice, none that was not sent, and nothing after it is out of the group.

A member is out after its leave or excluded row, and down from a crash until it restarts or recovers. In a trace without
sent rows the sender's own deliver row is the send.
"""

from typing import Any

import numpy as np

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.deliveries import number_messages
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    new_findings,
    well_formed,
)
from cubecast.trace.checkers.views import read_views, without_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import (
    CRASH,
    DELIVER,
    EVENT_NAMES,
    EXCLUDED,
    INSTALL,
    LEAVE,
    RECOVER,
    RESTART,
    RESTORE,
    SENT,
    STABLE,
    Events,
)

NAME = "exactly once"
PROMISE = "a member delivers no message twice, none that was not sent, and none after it left, crashed or was excluded"
TWICE, UNSENT, SENT_TWICE, OUT = range(4)


def not_promised(trace: Trace) -> str | None:
    """A run without views promises nothing about them."""
    return without_views(trace)


def check(trace: Trace) -> list[Violation]:
    """Find deliveries that come again, or before the send, and whatever a member does when it is out."""
    events, members = well_formed(trace)
    views = read_views(events, members)
    found = new_findings(3)
    uses_sent = bool((events["event"] == SENT).any())
    total = int(_scan(events, members, number_messages(events), views, uses_sent, found))
    return listed(NAME, total, [_describe(events, *map(int, line)) for line in found[: min(total, LISTED_MAX)]])


def _describe(events: Events, row: int, fault: int, old: int) -> Violation:
    one = events[row]
    what = f"message {one['sequence']} of sender {one['sender']} ({at(events, row)})"
    if fault == OUT:
        ended = EVENT_NAMES[events["event"][old]]
        message = f"member {one['member']} writes {EVENT_NAMES[one['event']]} ({at(events, row)}) after its {ended} row"
        return Violation(
            checker=NAME, message=f"{message} ({at(events, old)})", rows=(row, old), time_ns=int(one["time_ns"])
        )
    does = {
        TWICE: f"delivers {what} a second time",
        UNSENT: f"delivers {what} before it was sent",
        SENT_TWICE: f"sends {what} a second time",
    }[fault]
    return Violation(checker=NAME, message=f"member {one['member']} {does}", rows=(row,), time_ns=int(one["time_ns"]))


@allocating
def _scan(events: Any, members: int, first: Any, views: Any, uses_sent: bool, found: Any) -> int:
    """Write (row, fault, row at which the member ended) of the first violations; return how many there are."""
    got = np.zeros((members, first[-1]), np.bool_)
    sent = np.zeros(first[-1], np.bool_)
    ended = np.full(members, -1, np.int64)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == LEAVE or kind == EXCLUDED or (kind == CRASH and ended[member] < 0):
            ended[member] = row
        elif (kind == RESTART or kind == RECOVER) and ended[member] >= 0:
            if events["event"][ended[member]] == CRASH:
                ended[member] = -1
        if kind != DELIVER and kind != INSTALL and kind != SENT and kind != STABLE and kind != RESTORE:
            continue
        fault = -1
        sequence = events["sequence"][row]
        if kind != INSTALL and kind != STABLE and sequence >= 1 and not views.replay[row]:
            start = first[events["sender"][row]]
            number = start + sequence - 1
            if kind == RESTORE:
                got[member, start : number + 1] = True
            elif kind == SENT:
                fault = SENT_TWICE if sent[number] else -1
                sent[number] = True
            else:
                if member == events["sender"][row] and (not uses_sent or views.restarting[row]):
                    sent[number] = True
                if got[member, number]:
                    fault = TWICE
                elif not sent[number]:
                    fault = UNSENT
                got[member, number] = True
        if ended[member] >= 0:
            fault = OUT
        if fault >= 0:
            if total < LISTED_MAX:
                found[total, 0] = row
                found[total, 1] = fault
                found[total, 2] = ended[member]
            total += 1
    return total

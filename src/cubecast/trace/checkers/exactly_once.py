"""Exactly once: no member delivers a message twice, one that was not sent, or any message when it is out of the group.

A member is out after its leave or excluded row, and down from a crash until it restarts or recovers. In a trace without
sent rows the sender's own deliver row is the send.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.bits import Bits, has_bit, no_bits, set_bit
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    new_findings,
)
from cubecast.trace.checkers.views import Described, without_views
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
)

NAME = "exactly once"
PROMISE = "a member delivers no message twice, none that was not sent, and none after it left, crashed or was excluded"
TWICE, UNSENT, SENT_TWICE, OUT = range(4)


class _State(NamedTuple):
    got: Bits
    sent: Bits
    ended: npt.NDArray[np.int64]  # the row at which each member left the group or crashed, or -1
    crashed: npt.NDArray[np.bool_]  # that row is a crash


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about them."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find repeated deliveries, deliveries before the send, and events of a member that is out of the group."""
    messages = int(facts.first[-1])
    state = _State(
        got=no_bits(facts.members, messages),
        sent=no_bits(1, messages),
        ended=np.full(facts.members, -1, np.int64),
        crashed=np.zeros(facts.members, np.bool_),
    )
    found, total = new_findings(3), 0
    while (part := (yield)) is not None:
        total = int(_scan(part, facts.first, facts.has(SENT), state, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(row for row, _, old in lines for row in (row, old))
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _describe(events: dict[int, Any], row: int, fault: int, old: int) -> Violation:
    one = events[row]
    what = f"message {one['sequence']} of sender {one['sender']} ({at(events, row)})"
    if fault == OUT:
        ended = EVENT_NAMES[events[old]["event"]]
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
def _scan(part: Any, first: Any, uses_sent: bool, state: Any, found: Any, total: int) -> int:
    """Write (row, fault, row at which the member ended) of the first violations; return how many there are."""
    events = part.events
    got, ended, crashed = state.got, state.ended, state.crashed
    sent = state.sent[0]
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == LEAVE or kind == EXCLUDED or (kind == CRASH and ended[member] < 0):
            ended[member] = part.start + row
            crashed[member] = kind == CRASH
        elif (kind == RESTART or kind == RECOVER) and ended[member] >= 0:
            if crashed[member]:
                ended[member] = -1
        if kind != DELIVER and kind != INSTALL and kind != SENT and kind != STABLE and kind != RESTORE:
            continue
        fault = -1
        sequence = events["sequence"][row]
        if kind != INSTALL and kind != STABLE and sequence >= 1 and not part.replay[row]:
            begin = first[events["sender"][row]]
            number = begin + sequence - 1
            if kind == RESTORE:
                for held in range(begin, number + 1):
                    set_bit(got[member], held)
            elif kind == SENT:
                fault = SENT_TWICE if has_bit(sent, number) else -1
                set_bit(sent, number)
            else:
                if member == events["sender"][row] and (not uses_sent or part.restarting[row]):
                    set_bit(sent, number)
                if has_bit(got[member], number):
                    fault = TWICE
                elif not has_bit(sent, number):
                    fault = UNSENT
                set_bit(got[member], number)
        if ended[member] >= 0:
            fault = OUT
        if fault >= 0:
            if total < LISTED_MAX:
                found[total, 0] = part.start + row
                found[total, 1] = fault
                found[total, 2] = ended[member]
            total += 1
    return total

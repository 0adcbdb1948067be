"""Validation of a trace for every checker: rows name only members, links and rounds that can exist.

A compiled scan uses member and sender numbers as indices, so every part is validated first (`facts.summarise`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.report import Violation
from cubecast.trace.schema import (
    CAUSAL,
    DELIVER,
    DONE,
    DROP,
    EVENT_NAMES,
    EVERYONE,
    EXCLUDE,
    FAILURE,
    HOLD,
    HOP,
    INSTALL,
    MULTICAST,
    NOBODY,
    RECEIVE,
    RESTORE,
    RETURNED,
    ROUND,
    SEND,
    SENT,
    STABLE,
    VIEW,
    Events,
)

LISTED_MAX = 100  # violations listed per checker; a badly broken protocol breaks its promise at every row
_EVENT, _MEMBER, _PEER, _SENDER, _SEQUENCE, _ROUND, _LINK, _SIZE, _LAYER, _MESSAGE = range(1, 11)
_COLUMNS = ("", "event", "member", "peer", "sender", "sequence", "round", "link", "size", "layer", "message")


def require_well_formed(events: Events, start: int, members: int) -> Events:
    """Return the events of a part that begins at row `start`, or name the first invalid row."""
    # The same layout and write flag for all events, so that every scan is compiled once.
    events = np.require(events, requirements=["C", "W"])
    row, column = _first_impossible(events, members)
    if column:
        name = _COLUMNS[column]
        code = int(events["event"][row])
        kind = EVENT_NAMES[code] if 0 <= code < len(EVENT_NAMES) else "unknown"
        raise LocalProtocolError(
            f"row {start + row} of the trace ({kind}) has {name} = {events[name][row]}, which is impossible"
        )
    return events


def new_findings(columns: int) -> npt.NDArray[np.int64]:
    """Return the table into which a scan writes the first violations it finds, one per row."""
    return np.zeros((LISTED_MAX, columns), np.int64)


@allocating
def list_fault(found: Any, total: int, row: int, fault: int, sender: int, sequence: int) -> int:
    """Write a violation into the table, if it has room; return how many there are now."""
    if total < LISTED_MAX:
        found[total, 0] = row
        found[total, 1] = fault
        found[total, 2] = sender
        found[total, 3] = sequence
    return total + 1


def listed(checker: str, total: int, violations: list[Violation]) -> list[Violation]:
    """Add a closing line if a scan found more violations than it listed."""
    if total <= len(violations):
        return violations
    last = violations[-1]
    more = f"… and {total - len(violations)} more after row {last.rows[0]}"
    return [*violations, Violation(checker=checker, message=more, rows=(), time_ns=last.time_ns)]


def at(events: Mapping[int, Any], row: int) -> str:
    """Name a row and its time for a reader."""
    return f"row {row}, {int(events[row]['time_ns']) / 1e6:.6f} ms"


@allocating
def new_memory() -> Any:
    """Return a dictionary from numbers to rows; it contains only the number -1, which means none."""
    return {np.int64(NOBODY): np.int64(NOBODY)}


@allocating
def remember(memory: Any, key: int, row: int) -> Any:
    """Store `row` under `key`, and return the row that was there before, or -1."""
    old = np.int64(-1)
    if key in memory:
        old = memory[key]
    memory[key] = np.int64(row)
    return old


@allocating
def memory_items(memory: Any) -> Any:
    """Return the pairs of number and row of a memory as an array; access from Python would be compiled each time."""
    pairs = np.empty((len(memory) - 1, 2), np.int64)
    count = 0
    for key, row in memory.items():
        if key != NOBODY:
            pairs[count, 0] = key
            pairs[count, 1] = row
            count += 1
    return pairs


@allocating
def _first_impossible(events: Any, members: int) -> Any:
    for row in range(len(events)):
        column = _impossible(events, row, members)
        if column:
            return row, column
    return 0, 0


@allocating
def _impossible(events: Any, row: int, members: int) -> int:
    """Return the column of this row that holds an impossible value, or 0."""
    kind = events["event"][row]
    if kind < SEND or kind > CAUSAL:
        return _EVENT
    lowest = NOBODY if kind == HOP or kind == DROP or kind == VIEW else 0
    if events["member"][row] < lowest or events["member"][row] >= members:
        return _MEMBER
    if _peer_is_impossible(kind, events["peer"][row], members):
        return _PEER
    lowest = 0 if _concerns_a_message(kind) else NOBODY
    if events["sender"][row] < lowest or events["sender"][row] >= members:
        return _SENDER
    if (kind == SENT or kind == RETURNED) and events["sender"][row] != events["member"][row]:
        return _SENDER
    if events["sequence"][row] < (1 if kind == SENT else 0):
        return _SEQUENCE
    numbered = kind == ROUND or kind == DONE or kind == INSTALL or kind == VIEW
    if events["round"][row] < (0 if numbered else NOBODY):
        return _ROUND
    if kind > DONE and events["message"][row] < (0 if kind == MULTICAST else NOBODY):
        return _MESSAGE
    if events["link"][row] < (0 if kind == HOP else NOBODY):
        return _LINK
    if events["size"][row] < 0:
        return _SIZE
    if events["layer"][row] < 0 or events["layer"][row] > FAILURE:
        return _LAYER
    return 0


@allocating
def _concerns_a_message(kind: int) -> bool:
    """Does a row of this kind name a message, or all messages up to one, by sender and sequence number?"""
    if kind == DELIVER or kind == STABLE or kind == CAUSAL or kind == RESTORE or kind == HOLD:
        return True
    return kind == SENT or kind == RETURNED


@allocating
def _peer_is_impossible(kind: int, peer: int, members: int) -> bool:
    if kind == SEND and peer == EVERYONE:
        return False
    named = kind == SEND or kind == RECEIVE or kind == EXCLUDE or kind == VIEW
    return peer < (0 if named else NOBODY) or peer >= members

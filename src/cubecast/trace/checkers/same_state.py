"""Same state: a newcomer begins with what the group had delivered before the view that its state belongs to.

The restore rows of a newcomer show its state: everything of a sender up to a sequence number. Members that came from
the view before have delivered exactly that when they install the view. If the trace has none of them, the newcomers of
a view are compared with each other.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import NEVER, Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
)
from cubecast.trace.checkers.views import Described, Views, without_views
from cubecast.trace.schema import DELIVER, INSTALL, RESTORE

NAME = "same state"
PROMISE = "a newcomer's state holds what the others had delivered before the view that it begins with"


class _State(NamedTuple):
    """What each member has; what the first member that entered each view from another one had, and its install row."""

    held: npt.NDArray[np.int32]
    reference: npt.NDArray[np.int32]
    witness: npt.NDArray[np.int64]
    joined: npt.NDArray[np.int64]  # the first view that each member installed
    delivered: npt.NDArray[np.int64]  # the first deliver row of each member that is no replay


class _Difference(NamedTuple):
    """What a newcomer has from a sender, and what the others of its view had."""

    view: int
    sender: int
    held: int
    wanted: int


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about them."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find newcomers whose state differs from that of the members they join, or comes after they delivered."""
    views = facts.views
    state = _State(
        held=np.zeros((facts.members, facts.senders), np.int32),
        reference=np.zeros((len(views.numbers), facts.senders), np.int32),
        witness=np.full(len(views.numbers), -1, np.int64),
        joined=np.full(facts.members, -1, np.int64),
        delivered=np.full(facts.members, NEVER, np.int64),
    )
    while (part := (yield)) is not None:
        _scan(part, views.ready, views.state_view, views.numbers, state)
    found: list[tuple[int, int, _Difference | None]] = []
    states = [_state(facts, member, state.joined) for member in np.flatnonzero(views.newcomer).tolist()]
    for row, member, view in sorted(one for one in states if one is not None):
        rows, held = _restored(facts, member)
        wanted, witness = state.reference[view], int(state.witness[view])
        if witness < 0:
            state.reference[view], state.witness[view] = held, row
        elif (held != wanted).any():
            sender = int(np.flatnonzero(held != wanted)[0])
            found.append((row, witness, _Difference(view, sender, int(held[sender]), int(wanted[sender]))))
        late = rows[rows > state.delivered[member]]
        if len(late):
            found.append((int(late[0]), int(state.delivered[member]), None))
    found.sort(key=lambda one: one[0])
    events = facts.cite(row for line in found[:LISTED_MAX] for row in line[:2])
    return listed(NAME, len(found), [_describe(events, views, *line) for line in found[:LISTED_MAX]])


def _state(facts: Facts, member: int, joined: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Return the row, the member and the view of a newcomer's state; None if it has no state yet."""
    row = int(facts.views.ready[member])
    view = int(facts.views.state_view[member])
    view = int(joined[member]) if view < 0 else view
    return None if row == facts.rows or view < 0 else (row, member, view)


def _restored(facts: Facts, member: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return the restore rows of a member that are no replay, and what they contain of each sender."""
    membership = facts.summary.membership
    own = (membership["event"] == RESTORE) & (membership["member"] == member) & ~facts.views.repeats
    held = np.zeros(facts.senders, np.int32)
    np.maximum.at(held, membership["sender"][own], membership["sequence"][own])
    return facts.summary.membership_rows[own], held


def _describe(events: dict[int, Any], views: Views, row: int, old: int, differs: _Difference | None) -> Violation:
    """Describe a state that differs, or one that comes after deliveries."""
    member = events[row]["member"]
    if differs is None:
        message = f"member {member} restores a state ({at(events, row)}) after it delivered ({at(events, old)})"
    else:
        message = (
            f"member {member} begins {views.name(differs.view)} ({at(events, row)}) with sender {differs.sender} up to "
            f"{differs.held}, but member {events[old]['member']} ({at(events, old)}) had it up to {differs.wanted}"
        )
    return Violation(checker=NAME, message=message, rows=(row, old), time_ns=int(events[row]["time_ns"]))


@allocating
def _scan(part: Any, ready: Any, state_view: Any, numbers: Any, state: Any) -> None:
    """Track what each member has, and note it when a member enters a view from another one."""
    events = part.events
    for row in range(len(events)):
        kind = events["event"][row]
        if (kind != DELIVER and kind != RESTORE and kind != INSTALL) or part.replay[row]:
            continue
        member = events["member"][row]
        if kind == DELIVER or kind == RESTORE:
            sender = events["sender"][row]
            state.held[member, sender] = max(state.held[member, sender], events["sequence"][row])
            if kind == DELIVER:
                state.delivered[member] = min(state.delivered[member], part.start + row)
        else:
            view = part.of_row[row]
            if state.joined[member] < 0:
                state.joined[member] = view
            elif state.witness[view] < 0 and ready[member] < part.start + row:
                if state_view[member] < 0 or numbers[view] > numbers[state_view[member]]:
                    state.reference[view] = state.held[member]
                    state.witness[view] = part.start + row

"""Same state: a newcomer begins with what the group had delivered before the view that its state belongs to.

The restore rows of a newcomer show its state: everything of a sender up to a sequence number. Members that came from
the view before have delivered exactly that when they install the view. Where none of them is left in the trace, the
newcomers of a view are compared with each other.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    senders_in,
    well_formed,
)
from cubecast.trace.checkers.views import Views, read_views, without_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, INSTALL, RESTORE, Events

NAME = "same state"
PROMISE = "a newcomer's state holds what the others had delivered before the view that it begins with"


def not_promised(trace: Trace) -> str | None:
    """A run without views promises nothing about them."""
    return without_views(trace)


def check(trace: Trace) -> list[Violation]:
    """Find newcomers whose state differs from that of the members they join, or comes after they delivered."""
    events, members = well_formed(trace)
    views = read_views(events, members)
    reference, witness, joined = _references(events, members, senders_in(events), views)
    violations = []
    states = [_state(events, views, int(member), joined) for member in np.flatnonzero(views.newcomer)]
    for row, member, view in sorted(state for state in states if state is not None):
        held = _restored(events, views, member, reference.shape[1])
        if witness[view] < 0:
            reference[view], witness[view] = held, row
        elif (held != reference[view]).any():
            violations.append(_describe(events, views, row, int(witness[view]), view, held, reference[view]))
        violations += _late(events, views, member)
    violations.sort(key=lambda violation: violation.rows[0])
    return listed(NAME, len(violations), violations[:LISTED_MAX])


def _state(events: Events, views: Views, member: int, joined: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Return the row, the member and the view of a newcomer's state; None while it waits for it."""
    row = int(views.ready[member])
    view = int(views.state_view[member])
    view = int(joined[member]) if view < 0 else view
    return None if row == len(events) or view < 0 else (row, member, view)


def _restored(events: Events, views: Views, member: int, senders: int) -> npt.NDArray[np.int32]:
    rows = np.flatnonzero((events["event"] == RESTORE) & (events["member"] == member) & ~views.replay)
    held = np.zeros(senders, np.int32)
    np.maximum.at(held, events["sender"][rows], events["sequence"][rows])
    return held


def _late(events: Events, views: Views, member: int) -> list[Violation]:
    """A state that replaces deliveries: the first restore row behind a deliver row."""
    own = (events["member"] == member) & ~views.replay
    delivered = np.flatnonzero(own & (events["event"] == DELIVER))
    restored = np.flatnonzero(own & (events["event"] == RESTORE))
    late = restored[restored > delivered[0]] if len(delivered) else restored[:0]
    if not len(late):
        return []
    row = int(late[0])
    message = (
        f"member {member} restores a state ({at(events, row)}) after it delivered ({at(events, int(delivered[0]))})"
    )
    return [
        Violation(checker=NAME, message=message, rows=(row, int(delivered[0])), time_ns=int(events["time_ns"][row]))
    ]


def _describe(events: Events, views: Views, row: int, old: int, view: int, held: Any, wanted: Any) -> Violation:
    sender = int(np.flatnonzero(held != wanted)[0])
    message = (
        f"member {events['member'][row]} begins {views.name(view)} ({at(events, row)}) with sender {sender} up to "
        f"{held[sender]}, but member {events['member'][old]} ({at(events, old)}) had it up to {wanted[sender]}"
    )
    return Violation(checker=NAME, message=message, rows=(row, old), time_ns=int(events["time_ns"][row]))


@allocating
def _references(events: Any, members: int, senders: int, views: Any) -> Any:
    """Return what the first member that came to each view from another one had, and its install row; and the first view
    that each member installed."""
    reference = np.zeros((len(views.numbers), senders), np.int32)
    witness = np.full(len(views.numbers), -1, np.int64)
    joined = np.full(members, -1, np.int64)
    held = np.zeros((members, senders), np.int32)
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if views.replay[row]:
            continue
        if kind == DELIVER or kind == RESTORE:
            sender = events["sender"][row]
            held[member, sender] = max(held[member, sender], events["sequence"][row])
        elif kind == INSTALL:
            view = views.of_row[row]
            state_view = views.state_view[member]
            if joined[member] < 0:
                joined[member] = view
            elif witness[view] < 0 and views.ready[member] < row:
                if state_view < 0 or views.numbers[view] > views.numbers[state_view]:
                    reference[view] = held[member]
                    witness[view] = row
    return reference, witness, joined

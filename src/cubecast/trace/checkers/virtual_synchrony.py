"""Virtual synchrony: members that install a view and then the same next view deliver the same messages in between.

A set is represented by its size and the exclusive or of one random number for each message, so that a delivery
costs one operation; two different sets look alike once in 2⁶⁴. The messages that differ are then listed exactly.

A newcomer is judged from the view at whose beginning its state was.
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
    new_memory,
    remember,
    well_formed,
)
from cubecast.trace.checkers.views import Views, read_views, without_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, INSTALL, Events

NAME = "virtual synchrony"
PROMISE = "members that go from one view to the same next one deliver the same messages in between"
_SHOWN = 5


def not_promised(trace: Trace) -> str | None:
    """A run without views promises nothing about them."""
    return without_views(trace)


def check(trace: Trace) -> list[Violation]:
    """Find installs before which the member delivered other messages in its last view than the first to leave it."""
    events, members = well_formed(trace)
    views = read_views(events, members)
    first = number_messages(events)
    salts = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, int(first[-1]), np.int64)
    found = new_findings(3)
    total = int(_scan(events, members, first, salts, views, found))
    lines = found[: min(total, LISTED_MAX)]
    return listed(NAME, total, [_describe(events, views, *map(int, line)) for line in lines])


def _describe(events: Events, views: Views, row: int, old: int, before: int) -> Violation:
    mine, theirs = _delivered(events, views, row), _delivered(events, views, old)
    differ = sorted(mine ^ theirs)
    shown = ", ".join(f"{sequence} of sender {sender}" for sender, sequence in differ[:_SHOWN])
    more = f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
    message = (
        f"member {events['member'][row]} leaves {views.name(before)} ({at(events, row)}) with other deliveries than "
        f"member {events['member'][old]} ({at(events, old)}): they differ in {shown or 'how often they came'}{more}"
    )
    return Violation(checker=NAME, message=message, rows=(row, old), time_ns=int(events["time_ns"][row]))


def _delivered(events: Events, views: Views, row: int) -> set[tuple[int, int]]:
    """Return what the member delivered in the view before its install at `row`."""
    own = (events["member"][:row] == events["member"][row]) & ~views.replay[:row]
    start = np.flatnonzero(own & (events["event"][:row] == INSTALL))[-1]
    rows = np.flatnonzero((events["event"] == DELIVER) & (views.segment == start) & ~views.replay)
    return set(zip(events["sender"][rows].tolist(), events["sequence"][rows].tolist(), strict=True))


@allocating
def _scan(events: Any, members: int, first: Any, salts: Any, views: Any, found: Any) -> int:
    """Write (install row, install row it is compared with, view it leaves) of the first violations; return how many."""
    before = np.full(members, -1, np.int64)
    left = np.full(len(events), -1, np.int64)  # install row -> the member's install row before it
    counts = np.zeros(len(events), np.int64)
    digests = np.zeros(len(events), np.int64)
    for row in range(len(events)):
        kind = events["event"][row]
        start = views.segment[row]
        if views.replay[row]:
            continue
        if kind == INSTALL:
            left[row] = before[events["member"][row]]
            before[events["member"][row]] = row
        elif kind == DELIVER and events["sequence"][row] >= 1 and start >= 0:
            counts[start] += 1
            digests[start] ^= salts[first[events["sender"][row]] + events["sequence"][row] - 1]
    witness = new_memory()  # view left and view entered -> install row of the first member that is judged
    total = 0
    for row in range(len(events)):
        start = left[row]
        if start < 0 or not _is_judged(views, events["member"][row], start, row):
            continue
        step = np.int64(views.of_row[start]) * len(views.numbers) + views.of_row[row]
        if step not in witness:
            remember(witness, step, row)
        old = witness[step]
        if counts[left[old]] != counts[start] or digests[left[old]] != digests[start]:
            if total < LISTED_MAX:
                found[total, 0] = row
                found[total, 1] = old
                found[total, 2] = views.of_row[start]
            total += 1
    return total


@allocating
def _is_judged(views: Any, member: int, start: int, end: int) -> bool:
    """Did the member have its state in the view that it installed at `start` and left at `end`?"""
    if views.state_view[member] >= 0:
        return bool(views.numbers[views.of_row[start]] >= views.numbers[views.state_view[member]])
    return bool(views.ready[member] < end)

"""View agreement: a view is the same list of members at all members, and every member installs the views one by one.

With a majority quorum the number identifies a view. With quorum `any` a partition splits the group into branches, whose
views share numbers: there the number and the tag identify the view.

A group that is founded again after its end begins with number 1 again. Two views belong to the same group if they go
back to the same founding view, or share a member.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
)
from cubecast.trace.checkers.views import Described, Views, without_views
from cubecast.trace.schema import INSTALL, VIEW, Events

NAME = "view agreement"
PROMISE = "a view has the same members everywhere, only members install it, and views follow one another"


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about them."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find view rows that contradict each other, and installs of a view that cannot come next at that member.

    These are rows of membership, so no part of the trace is needed.
    """
    yield from ()
    events, views = facts.summary.membership, facts.views
    splits = facts.scenario.get("quorum", "majority") == "any"
    found = sorted(
        [*_contradictions(events, views), *_bad_installs(events, views, splits), *_twins(facts, events, views)]
    )
    rows = views.rows.tolist()
    by_row = {rows[place]: events[place] for place, _ in found[:LISTED_MAX]}
    violations = [
        Violation(
            checker=NAME,
            message=f"{what} ({at(by_row, rows[place])})",
            rows=(rows[place],),
            time_ns=int(events["time_ns"][place]),
        )
        for place, what in found[:LISTED_MAX]
    ]
    return listed(NAME, len(found), violations)


def _contradictions(events: Events, views: Views) -> Iterator[tuple[int, str]]:
    """View rows that contradict an earlier row of the view: another member at a rank, or another rank of a member."""
    by_rank: dict[tuple[int, int], int] = {}
    by_member: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(events["event"] == VIEW).tolist():
        view, member, rank = int(views.of_row[row]), int(events["peer"][row]), int(events["sequence"][row])
        before = by_rank.setdefault((view, rank), member), by_member.setdefault((view, member), rank)
        if before != (member, rank):
            other = f"member {before[0]} there" if before[0] != member else f"rank {before[1]}"
            yield row, f"{views.name(view)} has member {member} at rank {rank}, and in an earlier row {other}"


def _bad_installs(events: Events, views: Views, splits: bool) -> Iterator[tuple[int, str]]:
    """Installs with a wrong size, by a process outside the view, out of order, or of a second view of that number."""
    sizes = views.belongs.sum(axis=1)
    current: dict[int, int] = {}
    same_number: dict[int, set[int]] = {}
    founding = _founding_views(events, views)
    for row in np.flatnonzero(events["event"] == INSTALL).tolist():
        view, member = int(views.of_row[row]), int(events["member"][row])
        number, size = int(views.numbers[view]), int(events["sequence"][row])
        if size not in (0, sizes[view]):
            yield (
                row,
                f"member {member} installs {views.name(view)} of {size} members; its view rows name {sizes[view]}",
            )
        if not views.belongs[view, member]:
            yield row, f"member {member} installs {views.name(view)}, which is without it"
        others = same_number.setdefault(number, set())
        if not splits and any(_are_of_one_group(views, founding, view, other) for other in others if other != view):
            yield row, f"member {member} installs {views.name(view)}, a second view of number {number}"
        others.add(view)
        if views.repeats[row]:
            continue
        before = current.get(member)
        if before is not None and not _follows(number, int(views.numbers[before]), splits):
            yield row, f"member {member} installs {views.name(view)} after {views.name(before)}"
        current[member] = view


def _founding_views(events: Events, views: Views) -> list[int]:
    """Find the founding view of each view, from the first member that entered it from a view of a lower number."""
    parent: dict[int, int] = {}
    current: dict[int, int] = {}
    for row in np.flatnonzero((events["event"] == INSTALL) & ~views.repeats).tolist():
        view, member = int(views.of_row[row]), int(events["member"][row])
        before = current.get(member)
        if before is not None and views.numbers[before] < views.numbers[view]:
            parent.setdefault(view, before)
        current[member] = view
    founding = list(range(len(views.numbers)))
    for view in np.argsort(views.numbers, kind="stable").tolist():
        founding[view] = founding[parent[view]] if view in parent else view
    return founding


def _are_of_one_group(views: Views, founding: list[int], one: int, other: int) -> bool:
    return founding[one] == founding[other] or bool((views.belongs[one] & views.belongs[other]).any())


def _follows(number: int, before: int, splits: bool) -> bool:
    return number > before if splits else number == before + 1


def _twins(facts: Facts, events: Events, views: Views) -> Iterator[tuple[int, str]]:
    """Views that contain two incarnations of one process; found only if the scenario gives names."""
    names = facts.scenario.get("names") or []
    seen: dict[tuple[int, str], int] = {}
    for row in np.flatnonzero(events["event"] == VIEW).tolist():
        view, member = int(views.of_row[row]), int(events["peer"][row])
        if member >= len(names) or not names[member]:
            continue
        name = str(names[member][0])
        other = seen.setdefault((view, name), member)
        if other != member:
            yield row, f"{views.name(view)} holds two incarnations of {name}: members {other} and {member}"

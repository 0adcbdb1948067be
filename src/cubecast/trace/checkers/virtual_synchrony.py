"""Virtual synchrony: members that install a view and then the same next view deliver the same messages in between.

A set is represented by its size and the exclusive or of one random number per message, so that a delivery costs one
operation; two different sets look equal with a probability of 2⁻⁶⁴. A second pass lists the differing messages exactly.

A newcomer is judged from the view to whose beginning its state belongs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Part, Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
)
from cubecast.trace.checkers.views import Described, Views, without_views
from cubecast.trace.schema import DELIVER, INSTALL

NAME = "virtual synchrony"
PROMISE = "members that go from one view to the same next one deliver the same messages in between"
_SHOWN = 5


def not_promised(trace: Described) -> str | None:
    """A run without views makes no promise about them."""
    return without_views(trace)


def scan(facts: Facts) -> Scan:
    """Find installs of members that delivered other messages in their last view than the first member to leave it."""
    views, first = facts.views, facts.first
    salts = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, int(first[-1]), np.int64)
    counts, digests = (np.zeros(len(views.install_row), np.int64) for _ in range(2))
    while (part := (yield)) is not None:
        _scan(part, first, salts, counts, digests)
    found = _differing(facts, counts, digests)
    sets: dict[int, set[tuple[int, int]]] = {left: set() for pair in found[:LISTED_MAX] for left in pair[2:]}
    if sets:
        while (part := (yield)) is not None:
            _collect(part, sets)
    events = facts.cite(row for line in found[:LISTED_MAX] for row in views.install_row[list(line[:2])].tolist())
    shown = [_describe(events, views, sets, *line) for line in found[:LISTED_MAX]]
    return listed(NAME, len(found), shown)


def _describe(
    events: dict[int, Any],
    views: Views,
    sets: dict[int, set[tuple[int, int]]],
    install: int,
    witness: int,
    left: int,
    left_by_witness: int,
) -> Violation:
    row, old = int(views.install_row[install]), int(views.install_row[witness])
    differ = sorted(sets[left] ^ sets[left_by_witness])
    shown = ", ".join(f"{sequence} of sender {sender}" for sender, sequence in differ[:_SHOWN])
    more = f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
    before = views.name(int(views.install_view[left]))
    message = (
        f"member {events[row]['member']} leaves {before} ({at(events, row)}) with other deliveries than "
        f"member {events[old]['member']} ({at(events, old)}): they differ in {shown or 'how often they came'}{more}"
    )
    return Violation(checker=NAME, message=message, rows=(row, old), time_ns=int(events[row]["time_ns"]))


@allocating
def _scan(part: Any, first: Any, salts: Any, counts: Any, digests: Any) -> None:
    """Add what was delivered after each install row, up to the next of its member."""
    events = part.events
    for row in range(len(events)):
        if events["event"][row] != DELIVER or events["sequence"][row] < 1:
            continue
        install = part.segment[row]
        if install >= 0 and not part.replay[row]:
            counts[install] += 1
            digests[install] ^= salts[first[events["sender"][row]] + events["sequence"][row] - 1]


def _collect(part: Part, sets: dict[int, set[tuple[int, int]]]) -> None:
    """Add the messages that were delivered after these installs."""
    rows = (part.events["event"] == DELIVER) & np.isin(part.segment, list(sets)) & ~part.replay
    sequences = part.events["sequence"][rows].tolist()
    for install, sender, sequence in zip(
        part.segment[rows].tolist(), part.events["sender"][rows].tolist(), sequences, strict=True
    ):
        sets[install].add((sender, sequence))


def _differing(
    facts: Facts, counts: npt.NDArray[np.int64], digests: npt.NDArray[np.int64]
) -> list[tuple[int, int, int, int]]:
    """Return the installs whose member delivered other messages before than the first member with the same step.

    With each: the install of that first member, and the installs with which both began the view that they left.
    """
    views = facts.views
    installs, _ = facts.membership(INSTALL)
    repeats = views.repeats[facts.summary.membership["event"] == INSTALL]
    before: dict[int, int] = {}
    witness: dict[tuple[int, int], tuple[int, int]] = {}
    found = []
    for install in np.flatnonzero(~repeats).tolist():
        member = int(installs["member"][install])
        left = before.get(member)
        before[member] = install
        if left is None or not _is_judged(views, member, left, install):
            continue
        step = int(views.install_view[left]), int(views.install_view[install])
        first, left_by_first = witness.setdefault(step, (install, left))
        if counts[left_by_first] != counts[left] or digests[left_by_first] != digests[left]:
            found.append((install, first, left, left_by_first))
    return found


def _is_judged(views: Views, member: int, left: int, install: int) -> bool:
    """Did the member have its state in the view that it installed at `left` and left at `install`?"""
    if views.state_view[member] >= 0:
        return bool(views.numbers[views.install_view[left]] >= views.numbers[views.state_view[member]])
    return bool(views.ready[member] < views.install_row[install])

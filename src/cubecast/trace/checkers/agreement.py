"""Agreement, and no loss among the members that stay: they all deliver the same messages.

Every member that stays must deliver, by the end of the run, what any other member that stays delivered, including its
own messages. With fewer crashes than the smallest degree of the hypercube this holds even for messages that only
crashed members have delivered, if messages flood the hypercube: a member that delivers a message has forwarded it to
several (causal §4). It does not hold if no member forwards the message, or along one path only, nor in live runs, where
a process may be killed between delivering and sending.

*Stays* means up at the end. A member that joins later (its trace begins with a crash, and it recovers when it joins)
holds from then on what its host held.

In a run with views, members that installed the same views to the end are compared: those in a last view that no member
left for another view, up and not blocked. Such a member must also deliver what it sent, and what it multicast if it
never restarted. A member that left the group need not, unless the scenario says that all left after everything was
delivered (`left_settled`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.bits import no_bits, set_bit, set_bits
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
)
from cubecast.trace.checkers.views import Described, has_views
from cubecast.trace.schema import (
    BLOCKED,
    CRASH,
    DELIVER,
    EXCLUDED,
    INSTALL,
    LEAVE,
    MULTICAST,
    RECOVER,
    RESTART,
    RESTARTED,
    RESTORE,
    RETURNED,
    SENT,
    UNBLOCKED,
    Events,
)

NAME = "agreement"
PROMISE = "the members that stay up deliver the same messages, including all messages that they sent"


def not_promised(trace: Described) -> str | None:
    """Only causal protocols deliver everything to all members, and only once no message is in transit."""
    if not trace.scenario.get("settled", True):
        return "messages were in transit when the trace ended"
    family = trace.scenario.get("family", "stability")
    return None if family == "causal" else f"{family} protocols do not promise delivery"


def scan(facts: Facts) -> Scan:
    """Find messages that some member delivered and a member that stays did not."""
    first = facts.first
    messages = int(first[-1])
    with_views = has_views(facts)
    if not with_views and messages == 0:
        return []
    stays, group = _groups(facts)
    witness = np.full((int(group.max(initial=-1)) + 1, messages), -1, np.int64)
    got = no_bits(facts.members, messages)
    calls = _Calls(stays if with_views else np.zeros(0, np.int64), facts)
    while (part := (yield)) is not None:
        _scan(part.events, part.start, first, group, witness, got)
        calls.add(part.events, part.start)
    places, total = _missing(stays, group, witness, got)
    unsent = calls.unsent()
    shown = unsent[: LISTED_MAX - len(places)]
    events = facts.cite([int(witness[group[member], number]) for member, number in places] + shown)
    violations = [_describe(facts, events, member, number, witness[group[member]]) for member, number in places]
    violations += [_describe_unsent(facts, events, row) for row in shown]
    return listed(NAME, total + len(unsent), violations)


def _groups(facts: Facts) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the members that stay, in the order in which they are judged, and the group of each member.

    Members of one group are compared with each other; group −1 is not compared.
    """
    if has_views(facts):
        ends = _ends(facts, bool(facts.scenario.get("left_settled", False)))
        finals, group = np.unique(ends, return_inverse=True)
        group = group.reshape(-1) - int(len(finals) > 0 and finals[0] < 0)
        stays = np.flatnonzero(ends >= 0)
        return stays[np.argsort(group[stays], kind="stable")], group
    up = _up_at_the_end(facts)
    counts = up | (_few_crashes(up) and _passes_on(facts))
    return np.flatnonzero(up), np.where(counts, 0, -1)


def _up_at_the_end(facts: Facts) -> npt.NDArray[np.bool_]:
    up = np.ones(facts.members, np.bool_)
    fates, _ = facts.membership(CRASH, RECOVER)
    up[fates["member"]] = fates["event"] == RECOVER  # the last crash or recovery of a member counts
    return up


def _passes_on(trace: Described) -> bool:
    """Has a member that delivered a message already sent it to several members?"""
    return not trace.scenario.get("live") and bool(trace.scenario.get("floods"))


def _few_crashes(stays: npt.NDArray[np.bool_]) -> bool:
    """Are there fewer crashes than ⌈log2 n⌉ − 1, the smallest degree? If so, the others stay connected."""
    return int((~stays).sum()) < (len(stays) - 1).bit_length() - 1


def _missing(
    stays: npt.NDArray[np.int64], group: npt.NDArray[np.int64], witness: npt.NDArray[np.int64], got: Any
) -> tuple[list[tuple[int, int]], int]:
    """Return the first (member, message) that a member lacks and another of its group has, and their number."""
    places: list[tuple[int, int]] = []
    total = 0
    for member in stays.tolist():
        seen = witness[group[member]]
        numbers = np.flatnonzero(~set_bits(got[member], len(seen)) & (seen >= 0))
        places += [(member, number) for number in numbers[: LISTED_MAX - len(places)].tolist()]
        total += len(numbers)
    return places, total


def _describe(
    facts: Facts, events: dict[int, Any], member: int, number: int, witness: npt.NDArray[np.int64]
) -> Violation:
    sender = int(np.searchsorted(facts.first, number, side="right")) - 1
    row = int(witness[number])
    message = (
        f"member {member} stays up and never delivers message {number - facts.first[sender] + 1} of sender {sender}, "
        f"which member {events[row]['member']} delivered ({at(events, row)})"
    )
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=facts.summary.last_ns)


@allocating
def _scan(events: Any, start: int, first: Any, group: Any, witness: Any, got: Any) -> None:
    """Mark who delivered which message, and for each message and group the first row of a member that counts for it."""
    for row in range(len(events)):
        kind = events["event"][row]
        if kind != DELIVER and kind != RESTORE and kind != SENT:
            continue
        sequence = events["sequence"][row]
        if sequence < 1:
            continue
        member = events["member"][row]
        sender = events["sender"][row]
        number = first[sender] + sequence - 1
        counts = group[member]
        if counts >= 0 and kind != RESTORE and witness[counts, number] < 0:
            witness[counts, number] = start + row
        if kind == SENT:
            continue
        lowest = first[sender] if kind == RESTORE or events["peer"][row] >= 0 else number
        for held in range(lowest, number + 1):
            set_bit(got[member], held)


class _Calls:
    """The multicasts of members that stay and never restarted, and the serials that were sent or returned.

    A call just before a crash may not have reached the journal, so a member that restarted is not judged.
    """

    def __init__(self, members: npt.NDArray[np.int64], facts: Facts) -> None:
        restarted, _ = facts.membership(RESTART)
        self._members = np.setdiff1d(members, restarted["member"])
        self._rows: list[npt.NDArray[np.int64]] = []
        self._called: list[_Serials] = []
        self._known: list[_Serials] = []

    def add(self, events: Events, start: int) -> None:
        """Learn the calls and serials of a part."""
        if not len(self._members):
            return
        own = np.isin(events["member"], self._members)
        calls = own & (events["event"] == MULTICAST)
        self._rows.append(np.flatnonzero(calls) + start)
        self._called.append(_serials(events, calls))
        self._known.append(_serials(events, own & np.isin(events["event"], (SENT, RETURNED))))

    def unsent(self) -> list[int]:
        """Return the rows of messages that were neither sent nor returned."""
        if not self._rows:
            return []
        rows = np.concatenate(self._rows)
        callers, called = (np.concatenate(pieces) for pieces in zip(*self._called, strict=True))
        owners, known = (np.concatenate(pieces) for pieces in zip(*self._known, strict=True))
        found: list[int] = []
        for member in self._members:
            own = callers == member
            found += rows[own][~np.isin(called[own], known[owners == member])].tolist()
        return sorted(found)


_Serials = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]


def _serials(events: Events, chosen: npt.NDArray[np.bool_]) -> _Serials:
    return events["member"][chosen], events["message"][chosen]


def _describe_unsent(facts: Facts, events: dict[int, Any], row: int) -> Violation:
    message = (
        f"member {events[row]['member']} stays up and never sends its multicast {events[row]['message']} "
        f"({at(events, row)})"
    )
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=facts.summary.last_ns)


def _ends(facts: Facts, leavers_stay: bool) -> npt.NDArray[np.int64]:
    """Return the last view that each member should have reached if it stays, else -1."""
    views = facts.views
    current, left, stays = _follow(facts.summary.membership, views, leavers_stay)
    ends = np.full(facts.members, -1, np.int64)
    final = np.unique(current[stays & (current >= 0)])
    final = final[~left[final]]
    for member in np.flatnonzero(stays & (current >= 0)):
        later = [view for view in final if views.belongs[view, member]]
        if not left[current[member]]:
            ends[member] = current[member]
        elif later:
            ends[member] = later[0]
    return ends


@allocating
def _follow(events: Any, views: Any, leavers_stay: bool) -> Any:
    """Return the last view of each member, which views some member left for another one, and which members stay."""
    members = len(views.newcomer)
    current = np.full(members, -1, np.int64)
    left = np.zeros(len(views.numbers), np.bool_)
    down = np.zeros(members, np.bool_)
    out = np.zeros(members, np.bool_)
    blocked = np.zeros(members, np.bool_)
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == INSTALL and not views.repeats[row]:
            if current[member] >= 0:
                left[current[member]] = True
            current[member] = views.of_row[row]
        elif kind == EXCLUDED or (kind == LEAVE and not leavers_stay):
            out[member] = True
        elif kind == CRASH or kind == RESTART:
            down[member] = True  # a member that restarts is not back before its restarted row
        elif kind == RESTARTED or kind == RECOVER:
            down[member] = False
        elif kind == BLOCKED or kind == UNBLOCKED:
            blocked[member] = kind == BLOCKED
    return current, left, ~(down | out | blocked)

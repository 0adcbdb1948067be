"""Agreement, and no loss among the members that stay: they all deliver the same messages.

Every member that stays must deliver, by the end of the run, what any other member that stays delivered, its own
messages included. With fewer crashes than the smallest degree of the hypercube this holds even for messages that only
crashed members have delivered, when messages flood the hypercube: a member that delivers one has forwarded it to
several (causal §4). It does not hold where no member forwards it, or along one path only, nor live, where a process may
be killed between a delivery and the sending.

*Stays* means up at the end. A member that joins later (its trace begins with a crash, and it recovers when it joins)
holds from then on what its host held.

In a run with views, the members that went through the same views to the end are compared: those in a last view that no
member left for another, up and not blocked. Such a member must also deliver what it sent, or multicast without ever
restarting. A member that left the group need not, unless the scenario says that all left after everything was delivered
(`left_settled`).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.deliveries import number_messages
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    listed,
    well_formed,
)
from cubecast.trace.checkers.views import Views, has_views, read_views
from cubecast.trace.files import Trace
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
PROMISE = "the members that stay up deliver the same messages, among them all that one of them sent"


def not_promised(trace: Trace) -> str | None:
    """Only causal protocols deliver everything everywhere by themselves, and only once no message is in transit."""
    if not trace.scenario.get("settled", True):
        return "messages were in transit when the trace ended"
    family = trace.scenario.get("family", "stability")
    return None if family == "causal" else f"{family} protocols do not promise delivery"


def check(trace: Trace) -> list[Violation]:
    """Find messages that some member delivered and a member that stays did not."""
    events, members = well_formed(trace)
    first = number_messages(events)
    if has_views(trace):
        leavers_stay = bool(trace.scenario.get("left_settled", False))
        return _check_views(events, members, first, leavers_stay)
    if first[-1] == 0:
        return []
    stays = _up_at_the_end(events, members)
    witness = np.full(first[-1], -1, np.int64)
    got = np.zeros((members, int(first[-1])), np.bool_)
    _scan(events, first, stays | (_few_crashes(stays) and _passes_on(trace)), witness, got)
    missing = ~got[stays] & (witness >= 0)
    places = np.argwhere(missing)
    ranks = np.flatnonzero(stays)
    shown = [_describe(events, first, int(ranks[place]), int(number), witness) for place, number in places[:LISTED_MAX]]
    return listed(NAME, len(places), shown)


def _up_at_the_end(events: Events, members: int) -> npt.NDArray[np.bool_]:
    up = np.ones(members, np.bool_)
    fates = events[(events["event"] == CRASH) | (events["event"] == RECOVER)]
    up[fates["member"]] = fates["event"] == RECOVER  # the last of several fates of a member counts
    return up


def _passes_on(trace: Trace) -> bool:
    """Has a member that delivered a message sent it to several members already?"""
    return not trace.scenario.get("live") and bool(trace.scenario.get("floods"))


def _few_crashes(stays: npt.NDArray[np.bool_]) -> bool:
    """Fewer than ⌈log2 n⌉ − 1, the smallest degree of the hypercube: the others stay connected."""
    return int((~stays).sum()) < (len(stays) - 1).bit_length() - 1


def _describe(
    events: Events, first: npt.NDArray[np.int64], member: int, number: int, witness: npt.NDArray[np.int64]
) -> Violation:
    sender = int(np.searchsorted(first, number, side="right")) - 1
    row = int(witness[number])
    message = (
        f"member {member} stays up and never delivers message {number - first[sender] + 1} of sender {sender}, "
        f"which member {events['member'][row]} delivered ({at(events, row)})"
    )
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=int(events["time_ns"][-1]))


@allocating
def _scan(events: Any, first: Any, counts: Any, witness: Any, got: Any) -> None:
    """Mark who delivered which message, and for each message the first row of a member whose deliveries count."""
    for row in range(len(events)):
        sequence = events["sequence"][row]
        kind = events["event"][row]
        if (kind != DELIVER and kind != RESTORE and kind != SENT) or sequence < 1:
            continue
        member = events["member"][row]
        sender = events["sender"][row]
        number = first[sender] + sequence - 1
        if witness[number] < 0 and counts[member] and kind != RESTORE:
            witness[number] = row
        if kind == SENT:
            continue
        lowest = first[sender] if kind == RESTORE or events["peer"][row] >= 0 else number
        for held in range(lowest, number + 1):
            got[member, held] = True


def _check_views(events: Events, members: int, first: npt.NDArray[np.int64], leavers_stay: bool) -> list[Violation]:
    """Compare the members of each last view."""
    views = read_views(events, members)
    ends = _ends(events, members, views, leavers_stay)
    got = np.zeros((members, int(first[-1])), np.bool_)
    violations: list[Violation] = []
    total = 0
    for view in np.unique(ends[ends >= 0]):
        stays = ends == view
        witness = np.full(first[-1], -1, np.int64)
        _scan(events, first, stays, witness, got)
        ranks = np.flatnonzero(stays)
        places = np.argwhere(~got[stays] & (witness >= 0))
        shown = places[: max(LISTED_MAX - total, 0)]
        violations += [_describe(events, first, int(ranks[place]), int(number), witness) for place, number in shown]
        total += len(places)
    unsent = _unsent(events, np.flatnonzero(ends >= 0))
    violations += [_describe_unsent(events, row) for row in unsent[: max(LISTED_MAX - total, 0)]]
    return listed(NAME, total + len(unsent), violations)


def _unsent(events: Events, members: npt.NDArray[np.int64]) -> list[int]:
    """Return the multicast rows of messages that were neither sent nor returned, of members that never restarted."""
    found = []
    known = events[np.isin(events["event"], (SENT, RETURNED))]
    for member in members:
        own = events["member"] == member
        if (own & (events["event"] == RESTART)).any():
            continue  # a call just before the crash may not have reached the journal
        rows = np.flatnonzero(own & (events["event"] == MULTICAST))
        serials = known["message"][known["member"] == member]
        found += rows[~np.isin(events["message"][rows], serials)].tolist()
    return sorted(found)


def _describe_unsent(events: Events, row: int) -> Violation:
    message = (
        f"member {events['member'][row]} stays up and never sends its multicast {events['message'][row]} "
        f"({at(events, row)})"
    )
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=int(events["time_ns"][-1]))


def _ends(events: Events, members: int, views: Views, leavers_stay: bool) -> npt.NDArray[np.int64]:
    """Return the last view that each member should have reached if it stays, else -1."""
    current, left, stays = _follow(events, members, views, leavers_stay)
    ends = np.full(members, -1, np.int64)
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
def _follow(events: Any, members: int, views: Any, leavers_stay: bool) -> Any:
    """Return the last view of each member, which views some member left for another one, and which members stay."""
    current = np.full(members, -1, np.int64)
    left = np.zeros(len(views.numbers), np.bool_)
    down = np.zeros(members, np.bool_)
    out = np.zeros(members, np.bool_)
    blocked = np.zeros(members, np.bool_)
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        if kind == INSTALL and not views.replay[row]:
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

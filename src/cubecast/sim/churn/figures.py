"""Times read from the history of a changing group."""

from __future__ import annotations

from collections.abc import Sequence

from cubecast.core.membership import MemberId, View
from cubecast.sim.churn.history import History


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of all lies; 0 when there is none."""
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


def waits_ns(history: History) -> list[int]:
    """How long each message waited until it was sent."""
    asked = {row.data: row.time_ns for row in history if row.event == "multicast"}
    return [row.time_ns - asked[row.data[2]] for row in history if row.event == "sent"]


def stable_times_ns(history: History) -> list[int]:
    """From sending until the sender knew it stable: every member had it, or the next view began with it."""
    times: list[int] = []
    views: dict[MemberId, View] = {}
    waiting: dict[MemberId, list[tuple[int, int, int]]] = {}
    for row in history:
        if row.event == "sent":
            view, number, _ = row.data
            waiting.setdefault(row.who, []).append((view, number, row.time_ns))
        elif row.event == "install":
            views[row.who] = row.data
            times += [row.time_ns - then for _, _, then in waiting.pop(row.who, [])]
        elif row.event == "stable" and row.who in waiting:
            view, delivered = row.data
            upto = delivered[views[row.who].members.index(row.who)]
            own = waiting[row.who]
            times += [row.time_ns - then for place, number, then in own if place == view and number <= upto]
            waiting[row.who] = [one for one in own if one[0] != view or one[1] > upto]
    return times

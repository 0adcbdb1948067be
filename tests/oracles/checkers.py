"""Slow and obvious twins of the trace checkers: each restates its promise over the whole trace, without state.

Every function gives the rows (or members, or values) that the checker of the same name must name.
"""

from __future__ import annotations

from typing import Any

from cubecast.trace.schema import Event, Events

Row = dict[str, int]


def to_rows(events: Events) -> list[Row]:
    names = events.dtype.names or ()
    return [{name: int(event[name]) for name in names} for event in events]


def is_up(rows: list[Row], member: int) -> bool:
    """A member is up unless the last thing that befell it is a crash."""
    fates = [row["event"] for row in rows if row["member"] == member and row["event"] in (Event.CRASH, Event.RECOVER)]
    return not fates or fates[-1] == Event.RECOVER


def holds(rows: list[Row], member: int, sender: int) -> int:
    wanted = (Event.DELIVER, member, sender)
    return max((row["sequence"] for row in rows if (row["event"], row["member"], row["sender"]) == wanted), default=0)


def premature_stability(rows: list[Row], members: int) -> list[int]:
    return [
        index
        for index, row in enumerate(rows)
        if row["event"] == Event.STABLE
        and any(
            is_up(rows[:index], member) and holds(rows[:index], member, row["sender"]) < row["sequence"]
            for member in range(members)
        )
    ]


def stable_never_decreases(rows: list[Row]) -> list[int]:
    bad = []
    for index, row in enumerate(rows):
        if row["event"] != Event.STABLE:
            continue
        before = _before(rows[:index], row, ("event", "member", "sender"))
        if before and before[-1]["sequence"] > row["sequence"]:
            bad.append(index)
    return bad


def in_order_delivery(rows: list[Row]) -> list[int]:
    bad = []
    for index, row in enumerate(rows):
        if row["event"] != Event.DELIVER:
            continue
        before = _before(rows[:index], row, ("event", "member", "sender"))
        if (not before and row["time_ns"] == 0) or row["peer"] >= 0:
            continue
        if row["sequence"] != (before[-1]["sequence"] if before else 0) + 1:
            bad.append(index)
    return bad


def fifo(rows: list[Row]) -> list[int]:
    bad = []
    for index, row in enumerate(rows):
        if row["event"] == Event.HOP:
            before = _before(rows[:index], row, ("event", "link"))
            if before and before[-1]["entered_ns"] > row["entered_ns"]:
                bad.append(index)
        if row["event"] == Event.RECEIVE and _is_unicast(rows[:index], row):
            same = _before(rows[:index], row, ("event", "member", "peer", "layer"))
            unicasts = [old for place, old in enumerate(rows[:index]) if old in same and _is_unicast(rows[:place], old)]
            if unicasts and unicasts[-1]["message"] > row["message"]:
                bad.append(index)
    return bad


def _is_unicast(before: list[Row], row: Row) -> bool:
    trees = [old["message"] for old in before if old["event"] == Event.SEND and old["peer"] == -2]
    return row["message"] >= 0 and row["message"] not in trees


def _before(earlier: list[Row], row: Row, columns: tuple[str, ...]) -> list[Row]:
    return [old for old in earlier if all(old[column] == row[column] for column in columns)]


def members_not_done(rows: list[Row], members: int) -> list[int]:
    """Members up at the end that miss a round: no done row of it or of a later one."""
    begun = {row["round"] for row in rows if row["event"] == Event.ROUND}
    late = []
    for member in range(members):
        done = [row["round"] for row in rows if row["event"] == Event.DONE and row["member"] == member]
        if is_up(rows, member) and not all(any(end >= start for end in done) for start in begun):
            late.append(member)
    return late


def counts(rows: list[Row], members: int) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for layer, prefix in ((0, ""), (1, "data_"), (2, "failure_")):
        sends = [row for row in rows if row["event"] == Event.SEND and row["layer"] == layer]
        copies = [row for row in sends for _ in range(members - 1 if row["peer"] == -2 else 1)]
        said[prefix + "messages"] = len(copies)
        said[prefix + "bytes"] = sum(row["size"] for row in copies)
        said[prefix + "hops"] = sum(row["event"] == Event.HOP and row["layer"] == layer for row in rows)
    said["drops"] = sum(row["event"] == Event.DROP for row in rows)
    said["rtt_first_ms"], said["rtt_last_ms"] = _round_times(rows, members)
    return said


def _round_times(rows: list[Row], members: int) -> tuple[float | None, float | None]:
    first, last = [], []
    for number in {row["round"] for row in rows if row["event"] == Event.ROUND}:
        begun = min(row["time_ns"] for row in rows if (row["event"], row["round"]) == (Event.ROUND, number))
        ends = [_done_with(rows, member, number) for member in range(members)]
        times = [rows[end]["time_ns"] for end in ends if end is not None]
        if times and any(_is_over(rows[: end + 1], members, number) for end in range(len(rows))):
            first.append(rows[min(end for end in ends if end is not None)]["time_ns"] - begun)
            last.append(rows[max(end for end in ends if end is not None)]["time_ns"] - begun)
    if not first:
        return None, None
    return sum(first) / len(first) / 1e6, sum(last) / len(last) / 1e6


def _done_with(rows: list[Row], member: int, number: int) -> int | None:
    """The row by which a member was first done with this round, or a later one."""
    for index, row in enumerate(rows):
        if row["event"] == Event.DONE and row["member"] == member and row["round"] >= number:
            return index
    return None


def _is_over(rows: list[Row], members: int, number: int) -> bool:
    """The round has begun, and everyone who is up is done with it."""
    begun = any((row["event"], row["round"]) == (Event.ROUND, number) for row in rows)
    waited_for = [member for member in range(members) if is_up(rows, member)]
    return begun and all(_done_with(rows, member, number) is not None for member in waited_for)

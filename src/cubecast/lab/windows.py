"""Who holds a live group back, window by window: what `lab.spark.follow` keeps up to date.

Spark reduces the events to one row a window, member and sender: how far the member had received and how far it knew
stability at the end of the window. Here they are carried forward (a member that was silent in a window stands where it
stood) and compared.

| column | meaning |
|---|---|
| `window_s` | end of the window, in seconds of the trace's clock |
| `lag_messages` | messages received by someone and not known stable by everyone: Σ over senders of max R − min S |
| `lag_s` | age of the oldest of them, to the length of a window |
| `slowest`, `behind` | the member that has received least, and how many messages it lacks that someone has |
| `buffer_mean`, `buffer_max` | messages a member holds that it does not know to be stable |
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


class Windows:
    """The state of the group at the end of every window so far."""

    def __init__(self, window_s: float, *, keep: int = 10_000) -> None:
        self.window_s = window_s
        self.keep = keep
        self._cells: dict[int, dict[tuple[int, int], list[int]]] = {}
        self._gone: dict[int, set[int]] = {}

    def merge(self, rows: Iterable[Row]) -> None:
        """Take rows of (window, member, sender, received, stable, gone); newer ones of a cell replace older ones."""
        for row in rows:
            if row["gone"]:
                self._gone.setdefault(row["window"], set()).add(row["member"])
            if row["sender"] is None or row["sender"] < 0:
                continue
            cell = self._cells.setdefault(row["window"], {}).setdefault((row["member"], row["sender"]), [0, 0])
            cell[0] = max(cell[0], row["received"] or 0)
            cell[1] = max(cell[1], row["stable"] or 0)

    def table(self) -> list[Row]:
        """One row a window, from the first that had an event to the last."""
        seen = sorted({*self._cells, *self._gone})
        if not seen:
            return []
        received: dict[int, dict[int, int]] = {}
        stable: dict[int, dict[int, int]] = {}
        frontiers: list[tuple[int, dict[int, int]]] = []
        told = []
        for window in range(max(seen[0], seen[-1] - self.keep + 1), seen[-1] + 1):
            for (member, sender), (held, known) in self._cells.get(window, {}).items():
                received.setdefault(member, {})[sender] = max(received.get(member, {}).get(sender, 0), held)
                stable.setdefault(member, {})[sender] = max(stable.get(member, {}).get(sender, 0), known)
            for member in self._gone.get(window, ()):
                received.pop(member, None)
                stable.pop(member, None)
            if received:
                told.append(self._row(window, received, stable, frontiers))
        return told

    def _row(
        self,
        window: int,
        received: dict[int, dict[int, int]],
        stable: dict[int, dict[int, int]],
        frontiers: list[tuple[int, dict[int, int]]],
    ) -> Row:
        senders = sorted({sender for row in received.values() for sender in row})
        front = {sender: max(row.get(sender, 0) for row in received.values()) for sender in senders}
        floor = {sender: min(stable[member].get(sender, 0) for member in received) for sender in senders}
        frontiers.append((window, front))
        totals = {member: sum(row.get(sender, 0) for sender in senders) for member, row in received.items()}
        slowest = min(totals, key=lambda member: (totals[member], member))
        held = [
            sum(row.get(sender, 0) - stable[member].get(sender, 0) for sender in senders)
            for member, row in received.items()
        ]
        return {
            "window_s": (window + 1) * self.window_s,
            "members": len(received),
            "lag_messages": sum(front[sender] - floor[sender] for sender in senders),
            "lag_s": self._lag_s(window, floor, frontiers),
            "slowest": slowest,
            "behind": sum(front.values()) - totals[slowest],
            "buffer_mean": math.fsum(held) / len(held),
            "buffer_max": max(held),
        }

    def _lag_s(self, window: int, floor: dict[int, int], frontiers: list[tuple[int, dict[int, int]]]) -> float:
        """Since which window has something been received that is not stable everywhere even now?"""
        while frontiers and all(frontiers[0][1].get(sender, 0) <= known for sender, known in floor.items()):
            frontiers.pop(0)
        return (window + 1 - frontiers[0][0]) * self.window_s if frontiers else 0.0

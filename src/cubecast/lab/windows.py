"""The slowest member of a live group per time window; `lab.spark.follow` updates it.

Spark reduces the events of a batch to one row per window, member, view of that member and sender: up to which message
the member had received, and up to which it knew stability. This module carries the values forward (a member that was
silent in a window keeps its values) and compares them.

| column | meaning |
|---|---|
| `window_s` | end of the window, in seconds of the trace's clock |
| `view`, `members` | number of the group's view, and how many of its members have a trace |
| `lag_messages` | messages that some member received and not all know to be stable: Σ over senders of max R − min S |
| `lag_s` | age of the oldest of them, rounded to windows |
| `slowest`, `behind` | the member that has received least, and how many messages of the others it lacks |
| `buffer_mean`, `buffer_max` | messages that a member holds and does not know to be stable |

**Views.** The group is the view with the highest number that any member has installed, or the founding view of a group
that was founded later; members and senders outside it do not count. In a trace without views the group is every member
that wrote an event and did not crash. A member that installs a view knows that everything it received before is stable:
views are synchronous, so every member of the new view has it.

**Watermark.** A window stays open for a minute and a hundred windows. Later events count in the oldest open window.
When windows are closed, views and members without references are removed; so the state is bounded, however long the
group runs. `state` is the complete state: windows restored from it continue as if there had been no interruption.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cubecast.errors import LocalProtocolError

Row = dict[str, Any]
Vector = dict[str, int]
"""By sender, a sequence number."""
ViewId = tuple[int, int]
"""Number and tag."""
FOUNDING = 1
"""Number of the first view of a group."""
NO_VIEW = -1
OPEN_WINDOWS = 100
OPEN_S = 60.0
FRONTS_MAX = 10_000
"""Beyond this number every second entry is dropped: the age of unstable messages becomes less exact, but bounded."""


@dataclass(kw_only=True)
class _Window:
    """The events of a window."""

    cells: dict[tuple[str, int], dict[str, list[int]]] = field(default_factory=dict)
    """By member and its view, for each sender: received, stable."""
    gone: set[str] = field(default_factory=set)
    views: set[ViewId] = field(default_factory=set)
    """Views that were installed here for the first time."""

    def to_json(self) -> Row:
        """As plain JSON data."""
        cells = [[member, view, senders] for (member, view), senders in self.cells.items()]
        return {"cells": cells, "gone": sorted(self.gone), "views": sorted(self.views)}

    @classmethod
    def from_json(cls, state: Row) -> _Window:
        """Restore from the data of `to_json`."""
        cells = {(member, view): senders for member, view, senders in state["cells"]}
        return cls(cells=cells, gone=set(state["gone"]), views={(number, tag) for number, tag in state["views"]})


@dataclass(kw_only=True)
class _View:
    """A view that some member installed: when it was first installed, and its members."""

    time_ns: int
    window: int
    members: set[str] = field(default_factory=set)


Views = dict[ViewId, _View]


@dataclass(kw_only=True)
class _Group:
    """The state of the group at the end of a window."""

    received: dict[str, Vector] = field(default_factory=dict)
    stable: dict[str, Vector] = field(default_factory=dict)
    view_of: dict[str, int] = field(default_factory=dict)
    view: ViewId | None = None
    fronts: deque[tuple[int, Vector]] = field(default_factory=deque)
    """By window, up to where any member had received, from the oldest window with an unstable message."""

    def copy(self) -> _Group:
        """An independent copy."""
        return _Group(
            received={member: dict(row) for member, row in self.received.items()},
            stable={member: dict(row) for member, row in self.stable.items()},
            view_of=dict(self.view_of),
            view=self.view,
            fronts=self.fronts.copy(),
        )

    def to_json(self) -> Row:
        """As plain JSON data."""
        tables = {"received": self.received, "stable": self.stable, "view_of": self.view_of}
        return tables | {"view": self.view, "fronts": list(self.fronts)}

    @classmethod
    def from_json(cls, state: Row) -> _Group:
        """Restore from the data of `to_json`."""
        view = None if state["view"] is None else (state["view"][0], state["view"][1])
        tables = {name: state[name] for name in ("received", "stable", "view_of")}
        return cls(**tables, view=view, fronts=deque((window, front) for window, front in state["fronts"]))

    def forget(self, wanted: set[str]) -> None:
        """Keep only these members and senders."""
        for table in (self.received, self.stable):
            for member in table.keys() - wanted:
                del table[member]
            for row in table.values():
                for sender in row.keys() - wanted:
                    del row[sender]
        self.view_of = {member: view for member, view in self.view_of.items() if member in wanted}

    def take(self, happened: _Window, views: Views) -> None:
        """Advance to the end of the next window."""
        for (member, view), cells in sorted(happened.cells.items(), key=lambda one: one[0][1]):
            received, stable = self.received.setdefault(member, {}), self.stable.setdefault(member, {})
            if view > self.view_of.get(member, NO_VIEW):
                self.view_of[member] = view
                stable |= received
            for sender, (held, known) in cells.items():
                stable[sender] = max(stable.get(sender, 0), known)
                received[sender] = max(received.get(sender, 0), held, stable[sender])
        for member in happened.gone:
            self.received.pop(member, None)
            self.stable.pop(member, None)
        for view_id in sorted(happened.views, key=lambda one: views[one].time_ns):
            if self.view is None or view_id > self.view or view_id[0] == FOUNDING:
                self.view = view_id

    def describe(self, window: int, window_s: float, views: Views) -> Row | None:
        """The row of this window; None while no member of the group has written an event."""
        group = None if self.view is None else views[self.view].members
        received = {who: row for who, row in self.received.items() if group is None or who in group}
        if not received:
            return None
        senders = {sender for row in received.values() for sender in row if group is None or sender in group}
        front = {sender: max(row.get(sender, 0) for row in received.values()) for sender in senders}
        floor = {sender: min(self.stable[member].get(sender, 0) for member in received) for sender in senders}
        totals = {member: sum(row.get(sender, 0) for sender in senders) for member, row in received.items()}
        slowest = min(totals, key=lambda member: (totals[member], member))
        held = [totals[who] - sum(self.stable[who].get(sender, 0) for sender in senders) for who in received]
        if not self.fronts or self.fronts[-1][1] != front:  # an unchanged front keeps its age
            self.fronts.append((window, front))
        if len(self.fronts) > FRONTS_MAX:
            self.fronts = deque(one for place, one in enumerate(self.fronts) if place % 2 == 0)
        return {
            "window_s": (window + 1) * window_s,
            "view": None if self.view is None else self.view[0],
            "members": len(received),
            "lag_messages": sum(front[sender] - floor[sender] for sender in senders),
            "lag_s": self._lag(window, floor) * window_s,
            "slowest": slowest,
            "behind": sum(front.values()) - totals[slowest],
            "buffer_mean": math.fsum(held) / len(held),
            "buffer_max": max(held),
        }

    def _lag(self, window: int, floor: Vector) -> int:
        """The age in windows of the oldest message that is not known to be stable by all members."""
        while self.fronts and all(self.fronts[0][1].get(sender, 0) <= known for sender, known in floor.items()):
            self.fronts.popleft()
        return window + 1 - self.fronts[0][0] if self.fronts else 0


class Windows:
    """The state of the group at the end of every window so far."""

    def __init__(self, window_s: float, *, state: Row | None = None, keep: int = 10_000) -> None:
        """Continue with an earlier `state`; the newest `keep` windows are shown."""
        self.window_s = window_s
        self._open = max(OPEN_WINDOWS, math.ceil(OPEN_S / window_s))
        self._windows: dict[int, _Window] = {}
        self._views: Views = {}
        self._view_of: dict[str, int] = {}
        self._first: int | None = None
        """The oldest open window, once an older one is closed."""
        self._closed = _Group()
        self._rows: deque[Row] = deque(maxlen=keep)
        """Of the closed windows."""
        if state is not None:
            self._restore(state)

    def state(self) -> Row:
        """Everything, as plain JSON data."""
        return {
            "window_s": self.window_s,
            "first": self._first,
            "closed": self._closed.to_json(),
            "rows": list(self._rows),
            "view_of": self._view_of,
            "windows": [[number, window.to_json()] for number, window in self._windows.items()],
            "views": [[*one, view.time_ns, view.window, sorted(view.members)] for one, view in self._views.items()],
        }

    def _restore(self, state: Row) -> None:
        if state["window_s"] != self.window_s:
            raise LocalProtocolError(
                f"window of {self.window_s:g} s: the checkpoint has windows of {state['window_s']:g} s, use a new one"
            )
        self._first = state["first"]
        self._closed = _Group.from_json(state["closed"])
        self._rows.extend(state["rows"])
        self._view_of = dict(state["view_of"])
        self._windows = {number: _Window.from_json(window) for number, window in state["windows"]}
        for number, tag, time_ns, window, members in state["views"]:
            self._views[number, tag] = _View(time_ns=time_ns, window=window, members=set(members))

    def merge(self, rows: Iterable[Row]) -> None:
        """Add the rows of a batch from `lab.spark.follow.furthest`."""
        known = dict(self._view_of)
        for row in rows:
            window = row["window"] if self._first is None else max(row["window"], self._first)
            if row["number"] is not None:
                self._merge_view((row["number"], row["tag"]), row["peer"], row["time_ns"], window)
                continue
            member = row["member"]
            view = max(row["view"], known.get(member, NO_VIEW))  # the row says what was installed in this batch
            self._view_of[member] = max(view, self._view_of.get(member, NO_VIEW))
            happened = self._windows.setdefault(window, _Window())
            cells = happened.cells.setdefault((member, view), {})
            if row["gone"]:
                happened.gone.add(member)
            if row["sender"] is not None:
                cell = cells.setdefault(row["sender"], [0, 0])
                cell[:] = max(cell[0], row["received"]), max(cell[1], row["stable"])
        self._close_old()

    def _merge_view(self, view_id: ViewId, peer: str, time_ns: int, window: int) -> None:
        view = self._views.setdefault(view_id, _View(time_ns=time_ns, window=window))
        if not view.members or window < view.window:
            self._windows.setdefault(view.window, _Window()).views.discard(view_id)
            self._windows.setdefault(window, _Window()).views.add(view_id)
            view.window = window
        view.time_ns = min(view.time_ns, time_ns)
        view.members.add(peer)

    def _close_old(self) -> None:
        if not self._windows:
            return
        first = min(self._windows) if self._first is None else self._first
        end = max(self._windows) - self._open
        if end > first:
            self._rows.extend(self._describe(self._closed, first, end, is_last=True))
            self._first = end
            self._forget()

    def _forget(self) -> None:
        """Drop views that no open window installs, and members that are in no remaining view and no open window.

        Founding views stay: a founding view that a member repeats later must not become the group again.
        """
        used = {view for window in self._windows.values() for view in window.views} | {self._closed.view}
        self._views = {one: view for one, view in self._views.items() if one in used or one[0] == FOUNDING}
        if self._closed.view is None:
            return  # without views all members count
        wanted = {member for one, view in self._views.items() if one in used for member in view.members}
        wanted |= {member for window in self._windows.values() for member, _ in window.cells}
        self._closed.forget(wanted)
        self._view_of = {member: view for member, view in self._view_of.items() if member in wanted}

    def table(self) -> list[Row]:
        """One row per window, from the first that had an event to the last."""
        rows = list(self._rows)
        if self._windows:
            first = min(self._windows) if self._first is None else self._first
            rows += self._describe(self._closed.copy(), first, max(self._windows) + 1)
        return rows[-(self._rows.maxlen or 0) :]

    def _describe(self, state: _Group, first: int, end: int, *, is_last: bool = False) -> list[Row]:
        """Advance the state over these windows; those described for the last time are dropped."""
        rows = []
        for window in range(first, end):
            state.take(self._windows.get(window, _Window()), self._views)
            if is_last:
                self._windows.pop(window, None)
            row = state.describe(window, self.window_s, self._views)
            if row is not None:
                rows.append(row)
        return rows

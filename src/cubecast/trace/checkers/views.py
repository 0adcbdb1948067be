"""The views of a trace, and the meaning of each row for them: computed once, used by every checker of views.

A view is identified by its number and its tag; its VIEW rows list its members. A member is *in* the view of its last
install row. A run without install rows has no views: its group is the fixed set of ranks 0…n−1.

| state | shape | meaning |
|---|---|---|
| `numbers`, `tags` | views | the name of each view, sorted |
| `belongs` | views × members | its members |
| `rows` | rows of membership | their numbers in the trace |
| `of_row` | rows of membership | the view that an install, view or restore row names, or −1 |
| `repeats` | rows of membership | the row repeats what happened before a restart from the journal |
| `place` | rows of membership | how many install rows are before it |
| `install_row`, `install_view` | install rows | the row, and the view that it names |
| `newcomer` | members | it joined an existing group: some member came from a view without it, or it restored a state |
| `ready` | members | the first row at which it has its state: 0 for a founder, the number of rows if never |
| `state_view` | members | the view to whose beginning its state belongs, or −1 |

All this follows from the rows of membership and the first deliver row of each member. `followed_parts` computes, part
by part, what follows from the other rows.

A message that a newcomer held for its application (a hold row) is delivered in the view in which it was held: the
install rows of a newcomer may run ahead of its application, which gets the deliveries of several views when the state
has arrived.

Replay: between a member's restart and restarted rows, an install of a view that it installed before, a deliver row not
above what it delivered or restored of that sender, a sent row not above what it had sent, and a restore row (its
checkpoint) if it had a state before the restart. A kill may have lost the last rows before the restart. So a message
of its own that a restarting member delivers was sent, even if no row says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.schema import CRASH, INSTALL, RESTART, RESTARTED, RESTORE, VIEW, Events

NO_VIEWS = "the run has no views"


class Described(Protocol):
    """The properties of a trace that need no judging."""

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario that was run."""
        ...

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics that were measured."""
        ...

    def has(self, kind: int, /) -> bool:
        """Is there an event of this kind?"""
        ...


class Views(NamedTuple):
    """Arrays, so that compiled scans can take them."""

    numbers: npt.NDArray[np.int64]
    tags: npt.NDArray[np.int64]
    belongs: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]
    of_row: npt.NDArray[np.int32]
    repeats: npt.NDArray[np.bool_]
    place: npt.NDArray[np.int64]
    install_row: npt.NDArray[np.int64]
    install_view: npt.NDArray[np.int32]
    newcomer: npt.NDArray[np.bool_]
    ready: npt.NDArray[np.int64]
    state_view: npt.NDArray[np.int64]

    def name(self, view: int) -> str:
        """The name of a view in messages; the tag is added only if two views share a number."""
        number = int(self.numbers[view])
        alone = int((self.numbers == number).sum()) == 1
        return f"view {number}" if alone else f"view {number} (tag {int(self.tags[view]):x})"


def has_views(trace: Described) -> bool:
    """Return whether any member of the run installed a view."""
    return trace.has(INSTALL)


def without_views(trace: Described) -> str | None:
    """Return why a promise about views is not made, or None if there are views."""
    return None if has_views(trace) else NO_VIEWS


def read_views(
    membership: Events,
    rows: npt.NDArray[np.int64],
    members: int,
    first_delivery: npt.NDArray[np.int64],
    rows_of_trace: int,
) -> Views:
    """Read the views from the rows of membership; without views, return arrays of a trace without views."""
    named = np.flatnonzero(np.isin(membership["event"], (INSTALL, VIEW)))
    keys = np.stack([membership["round"][named].astype(np.int64), membership["message"][named]], axis=1)
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    of_row = np.full(len(membership), -1, np.int32)
    of_row[named] = inverse.reshape(-1)
    _name_restored(membership, unique, of_row)
    belongs = np.zeros((len(unique), members), np.bool_)
    is_view = membership["event"] == VIEW
    belongs[of_row[is_view], membership["peer"][is_view]] = True
    installs = membership["event"] == INSTALL
    ready = np.minimum(first_delivery, rows_of_trace)
    repeats, newcomer, state_view = _follow(membership, rows, of_row, belongs, ready)
    ready[~newcomer] = 0
    return Views(
        numbers=np.ascontiguousarray(unique[:, 0]),
        tags=np.ascontiguousarray(unique[:, 1]),
        belongs=belongs,
        rows=rows,
        of_row=of_row,
        repeats=repeats,
        place=np.cumsum(installs) - installs,
        install_row=rows[installs],
        install_view=of_row[installs],
        newcomer=newcomer,
        ready=ready,
        state_view=state_view,
    )


def _name_restored(membership: Events, unique: npt.NDArray[np.int64], of_row: npt.NDArray[np.int32]) -> None:
    """Find the view that each restore row names."""
    places = {(int(number), int(tag)): place for place, (number, tag) in enumerate(unique)}
    for row in np.flatnonzero(membership["event"] == RESTORE):
        of_row[row] = places.get((int(membership["round"][row]), int(membership["message"][row])), -1)


@allocating
def _follow(membership: Any, rows: Any, of_row: Any, belongs: Any, ready: Any) -> Any:
    """Return `repeats`, `newcomer` and `state_view`; lower `ready`, the first deliver rows, to the first restore rows.

    A member has its state at a row if it has delivered or restored something before. `ready` may hold a later deliver
    row, which is then not below the row.
    """
    members = belongs.shape[1]
    repeats = np.zeros(len(membership), np.bool_)
    newcomer = np.zeros(members, np.bool_)
    state_view = np.full(members, -1, np.int64)
    current = np.full(members, -1, np.int64)
    installed = np.zeros(belongs.shape, np.bool_)
    restarting = np.zeros(members, np.bool_)
    had_state = np.zeros(members, np.bool_)
    for place in range(len(membership)):
        kind = membership["event"][place]
        member = membership["member"][place]
        if kind == RESTART:
            restarting[member] = True
            had_state[member] = ready[member] < rows[place]
        elif kind == RESTARTED or kind == CRASH:
            restarting[member] = False
        elif kind == INSTALL:
            view = of_row[place]
            repeats[place] = restarting[member] and installed[view, member]
            if not repeats[place]:
                installed[view, member] = True
                if current[member] >= 0:
                    newcomer |= belongs[view] & ~belongs[current[member]]
                current[member] = view
        elif kind == RESTORE:
            repeats[place] = restarting[member] and had_state[member]
            if not repeats[place]:
                newcomer[member] = True
                ready[member] = min(ready[member], rows[place])
                state_view[member] = of_row[place]
    return repeats, newcomer, state_view

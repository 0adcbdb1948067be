"""The views of a trace, and what each row means for them: read once, used by every checker of views.

A view is named by its number and its tag; its members are those of its VIEW rows. A member is *in* the view of its last
install row. A run without install rows has no views: its group is the fixed set of ranks 0…n−1.

| state | shape | meaning |
|---|---|---|
| `numbers`, `tags` | views | the name of each view, sorted |
| `belongs` | views × members | who is a member of it |
| `of_row` | rows | the view that an install, view or restore row names, or −1 |
| `segment` | rows | the install row of the view in which a sent or deliver row takes place, or −1 |
| `replay` | rows | the row repeats what happened before a restart from the journal |
| `restarting` | rows | a deliver row between the restart and restarted rows of its member |
| `newcomer` | members | joined a group that existed: some member came from a view without it, or it restored a state |
| `ready` | members | the first row at which it has its state: 0 for a founder, the number of rows if it never has |
| `state_view` | members | the view at whose beginning its state was, or −1 |

A message that a newcomer held for its application (a hold row) is delivered in the view in which it was held: the
install rows of a newcomer may run ahead of its application, which gets the deliveries of several views when the state
has arrived.

Replay: between a member's restart and restarted rows, an install of a view that it installed before, a deliver row not
above what it delivered or restored of that sender, a sent row not above what it had sent, and a restore row (its
checkpoint) if it had a state before the restart. A kill may have lost the last rows before the restart. So a message
of its own that a restarting member delivers was sent, even if no row says so.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.rows import new_memory, remember, senders_in
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DELIVER, HOLD, INSTALL, RESTART, RESTARTED, RESTORE, SENT, VIEW, Events

NO_VIEWS = "the run has no views"


class Views(NamedTuple):
    """Arrays, so that compiled scans can take them."""

    numbers: npt.NDArray[np.int64]
    tags: npt.NDArray[np.int64]
    belongs: npt.NDArray[np.bool_]
    of_row: npt.NDArray[np.int32]
    segment: npt.NDArray[np.int32]
    replay: npt.NDArray[np.bool_]
    restarting: npt.NDArray[np.bool_]
    newcomer: npt.NDArray[np.bool_]
    ready: npt.NDArray[np.int64]
    state_view: npt.NDArray[np.int64]

    def name(self, view: int) -> str:
        """Name a view for a reader; the tag matters only where two views share a number."""
        number = int(self.numbers[view])
        alone = int((self.numbers == number).sum()) == 1
        return f"view {number}" if alone else f"view {number} (tag {int(self.tags[view]):x})"


def has_views(trace: Trace) -> bool:
    """Return whether any member of the run installed a view."""
    return bool((trace.arrays()["event"] == INSTALL).any())


def without_views(trace: Trace) -> str | None:
    """Return why a promise about views is not made, or None when there are views."""
    return None if has_views(trace) else NO_VIEWS


def read_views(events: Events, members: int) -> Views:
    """Read the views of a well-formed trace; of one without views, arrays that say so."""
    named = np.flatnonzero(np.isin(events["event"], (INSTALL, VIEW)))
    keys = np.stack([events["round"][named].astype(np.int64), events["message"][named]], axis=1)
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    of_row = np.full(len(events), -1, np.int32)
    of_row[named] = inverse.reshape(-1)
    _name_restored(events, unique, of_row)
    belongs = np.zeros((len(unique), members), np.bool_)
    is_view = events["event"] == VIEW
    belongs[of_row[is_view], events["peer"][is_view]] = True
    followed = _follow(events, members, senders_in(events), of_row, belongs)
    numbers, tags = (np.ascontiguousarray(unique[:, column]) for column in (0, 1))
    return Views(numbers, tags, belongs, of_row, *followed)


def read_restarts(events: Events, members: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return `replay` and `restarting` of a well-formed trace, with or without views."""
    if not (events["event"] == RESTART).any():
        return np.zeros(len(events), np.bool_), np.zeros(len(events), np.bool_)
    views = read_views(events, members)
    return views.replay, views.restarting


def _name_restored(events: Events, unique: npt.NDArray[np.int64], of_row: npt.NDArray[np.int32]) -> None:
    """Find the view that each restore row names."""
    places = {(int(number), int(tag)): place for place, (number, tag) in enumerate(unique)}
    for row in np.flatnonzero(events["event"] == RESTORE):
        of_row[row] = places.get((int(events["round"][row]), int(events["message"][row])), -1)


@allocating
def _follow(events: Any, members: int, senders: int, of_row: Any, belongs: Any) -> Any:
    """Return `segment`, `replay`, `restarting`, `newcomer`, `ready` and `state_view`."""
    of_restart = np.zeros(len(events), np.bool_)
    segment = np.full(len(events), -1, np.int32)
    last_install = np.full(members, -1, np.int64)
    holds = new_memory()
    replay = np.zeros(len(events), np.bool_)
    newcomer = np.zeros(members, np.bool_)
    ready = np.full(members, len(events), np.int64)
    state_view = np.full(members, -1, np.int64)
    held = np.zeros((members, senders), np.int32)
    sent = np.zeros(members, np.int32)
    current = np.full(members, -1, np.int64)
    installed = np.zeros(belongs.shape, np.bool_)
    restarting = np.zeros(members, np.bool_)
    had_state = np.zeros(members, np.bool_)
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if kind == RESTART:
            restarting[member] = True
            had_state[member] = ready[member] < row
        elif kind == RESTARTED or kind == CRASH:
            restarting[member] = False
        elif kind == INSTALL:
            view = of_row[row]
            replay[row] = restarting[member] and installed[view, member]
            if not replay[row]:
                installed[view, member] = True
                if current[member] >= 0:
                    newcomer |= belongs[view] & ~belongs[current[member]]
                current[member] = view
                last_install[member] = row
        elif kind == HOLD:
            remember(holds, _key(member, senders, sender, sequence), last_install[member])
        elif kind == SENT:
            segment[row] = last_install[member]
            replay[row] = restarting[member] and sequence <= sent[member]
            sent[member] = max(sent[member], sequence)
        elif kind == RESTORE:
            replay[row] = restarting[member] and had_state[member]
            if not replay[row]:
                newcomer[member] = True
                ready[member] = min(ready[member], row)
                state_view[member] = of_row[row]
                held[member, sender] = max(held[member, sender], sequence)
        elif kind == DELIVER:
            of_restart[row] = restarting[member]
            replay[row] = restarting[member] and sequence <= held[member, sender]
            ready[member] = min(ready[member], row)
            held[member, sender] = max(held[member, sender], sequence)
            segment[row] = last_install[member]
            key = _key(member, senders, sender, sequence)
            if key in holds and holds[key] >= 0:
                segment[row] = holds[key]
    for member in range(members):
        if not newcomer[member]:
            ready[member] = 0
    return segment, replay, of_restart, newcomer, ready, state_view


@allocating
def _key(member: int, senders: int, sender: int, sequence: int) -> Any:
    """Number a message at a member."""
    return (np.int64(member) * senders + sender) << 32 | np.int64(sequence)

"""Judge a trace part by part: only the state of a checker crosses the boundary between two parts.

A checker's `scan` is a generator. It is sent the parts of the trace in order, then None for the end of the pass; it
returns its violations, or continues with another pass. Its state is that of a scan over the rows in order: it is
allocated before the first part, and each part continues it. So the verdict does not depend on how a trace is divided:
after every row the state has seen the same rows, in whatever parts, and before the first part it knows only the
`Facts`, which do not depend on the division either. Rows are identified by their number in the trace; what a checker
needs of an earlier row is in its state, or is read again at the end (`Facts.cite`).

The meaning of a part for views and restarts is computed once for all checkers (`Part`):

| field | meaning |
|---|---|
| `events`, `start` | the rows, and the number of the first |
| `of_row` | the view that an install, view or restore row names, or −1 |
| `install` | which install row of the trace this is, or −1 |
| `segment` | in which install of its member a sent or deliver row takes place, or −1 |
| `replay` | the row repeats what happened before a restart from the journal |
| `restarting` | a deliver row between the restart and restarted rows of its member |

Memory, in addition to one part, the rows of membership and the listed violations: a few numbers per member and sender,
at most some tens of bytes and one bit per member for each message, and one vector of senders for each message that some
member has still to deliver (`in_flight`); 8 bytes for each delivery of a member that restarts. No checker holds rows of
messages or hops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import new_memory, remember
from cubecast.trace.schema import CRASH, DELIVER, HOLD, INSTALL, RESTART, RESTARTED, RESTORE, SENT, Events


class Part(NamedTuple):
    """Consecutive rows of a trace, and their meaning for views and restarts."""

    events: Events
    start: int
    of_row: npt.NDArray[np.int32]
    install: npt.NDArray[np.int32]
    segment: npt.NDArray[np.int32]
    replay: npt.NDArray[np.bool_]
    restarting: npt.NDArray[np.bool_]


Scan = Generator[None, Part | None, list[Violation]]


def judge(facts: Facts, scans: Sequence[Scan]) -> list[list[Violation]]:
    """Send every part to every scan, in as many passes as the scans need; return the violations of each."""
    found: list[list[Violation]] = [[] for _ in scans]
    waiting = [number for number, scan in enumerate(scans) if _goes_on(scan, found[number])]
    while waiting:
        for part in followed_parts(facts):
            for number in waiting:
                scans[number].send(part)
        waiting = [number for number in waiting if _goes_on(scans[number], found[number])]
    return found


def _goes_on(scan: Scan, found: list[Violation]) -> bool:
    """Begin a scan, or end its pass; return False if it is finished, with its violations added to `found`."""
    try:
        scan.send(None)
    except StopIteration as end:
        found += end.value
        return False
    return True


class _Followed(NamedTuple):
    """The state of each member after the rows so far."""

    restarting: npt.NDArray[np.bool_]
    install: npt.NDArray[np.int32]  # its last install that is no replay, or -1
    held: npt.NDArray[np.int32]  # members × senders: highest sequence delivered or restored
    sent: npt.NDArray[np.int32]
    holds: Any  # message at a member -> install in which it was held


def followed_parts(facts: Facts) -> Iterator[Part]:
    """Yield the parts of a trace with their meaning for views and restarts."""
    if not facts.has(INSTALL) and not facts.has(RESTART):
        yield from _without_views(facts)
        return
    members = facts.members
    state = _Followed(
        restarting=np.zeros(members, np.bool_),
        install=np.full(members, -1, np.int32),
        held=np.zeros((members, facts.senders), np.int32),
        sent=np.zeros(members, np.int32),
        holds=new_memory(),
    )
    views = facts.views
    for start, events in facts.source.parts():
        part = _blank_part(events, start)
        first, end = np.searchsorted(views.rows, [start, start + len(events)])
        inside = views.rows[first:end] - start
        part.of_row[inside] = views.of_row[first:end]
        part.replay[inside] = views.repeats[first:end]
        installs = events["event"][inside] == INSTALL
        part.install[inside[installs]] = views.place[first:end][installs]
        _follow(part.events, part.install, state, part.segment, part.replay, part.restarting)
        yield part


def _without_views(facts: Facts) -> Iterator[Part]:
    part = None
    for start, events in facts.source.parts():
        if part is None or len(part.of_row) != len(events):
            part = _blank_part(events, start)
        yield part._replace(events=np.require(events, requirements=["C", "W"]), start=start)


def _blank_part(events: Events, start: int) -> Part:
    count = len(events)
    return Part(
        events=np.require(events, requirements=["C", "W"]),
        start=start,
        of_row=np.full(count, -1, np.int32),
        install=np.full(count, -1, np.int32),
        segment=np.full(count, -1, np.int32),
        replay=np.zeros(count, np.bool_),
        restarting=np.zeros(count, np.bool_),
    )


@allocating
def _follow(events: Any, install: Any, state: Any, segment: Any, replay: Any, of_restart: Any) -> None:
    """Fill `segment`, `of_restart`, and `replay` of sent and deliver rows; other rows already have theirs."""
    senders = state.held.shape[1]
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        sender = events["sender"][row]
        sequence = events["sequence"][row]
        if kind == RESTART:
            state.restarting[member] = True
        elif kind == RESTARTED or kind == CRASH:
            state.restarting[member] = False
        elif kind == INSTALL:
            if not replay[row]:
                state.install[member] = install[row]
        elif kind == HOLD:
            remember(state.holds, _key(member, senders, sender, sequence), state.install[member])
        elif kind == SENT:
            segment[row] = state.install[member]
            replay[row] = state.restarting[member] and sequence <= state.sent[member]
            state.sent[member] = max(state.sent[member], sequence)
        elif kind == RESTORE:
            if not replay[row]:
                state.held[member, sender] = max(state.held[member, sender], sequence)
        elif kind == DELIVER:
            of_restart[row] = state.restarting[member]
            replay[row] = state.restarting[member] and sequence <= state.held[member, sender]
            state.held[member, sender] = max(state.held[member, sender], sequence)
            segment[row] = state.install[member]
            key = _key(member, senders, sender, sequence)
            if key in state.holds and state.holds[key] >= 0:
                segment[row] = state.holds[key]


@allocating
def _key(member: int, senders: int, sender: int, sequence: int) -> Any:
    """Number a message at a member."""
    return (np.int64(member) * senders + sender) << 32 | np.int64(sequence)

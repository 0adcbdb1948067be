"""A summary of a whole trace before it is judged: the first of two passes.

A checker judges a trace part by part (`fold`), and some need to know what comes later: how many messages a sender has,
which members are up at the end, which views exist. A *summary* contains this for any part of a trace. Summaries of
consecutive parts are joined (`joined`, associative), so the parts may be summarised in any order and on any machine;
the summary of the whole trace does not depend on the division.

| field | shape | meaning | joined by |
|---|---|---|---|
| `rows`, `last_ns` | | number of rows; time of the last one | sum; the later |
| `counts` | kinds | number of events of each kind | sum |
| `senders` | | one more than the highest sender named | maximum |
| `highest` | members | highest sequence number of each sender: sent, delivered, restored or returned | maximum |
| `first_delivery` | members | the first deliver row of each member, or `NEVER` | minimum |
| `rounds` | rounds begun | their numbers, sorted | union |
| `totals` | layers + 1 × 3 | messages, bytes and hops of each layer; drops | sum |
| `membership`, `membership_rows` | rows of membership | those events and their row numbers | one after the other |

Rows of membership are events of members and views, not of messages. A long trace has few of them, so they are held in
memory.

A part is validated when it is summarised; the checkers rely on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.rows import require_well_formed
from cubecast.trace.checkers.views import Views, read_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import (
    BLOCKED,
    CRASH,
    DELIVER,
    DROP,
    EVENT_NAMES,
    EVERYONE,
    EXCLUDED,
    HOP,
    INSTALL,
    LAYER_NAMES,
    LEAVE,
    RECOVER,
    RESTART,
    RESTARTED,
    RESTORE,
    RETURNED,
    ROUND,
    SEND,
    SENT,
    UNBLOCKED,
    VIEW,
    Events,
    blank_events,
)

MEMBERSHIP = (
    *(CRASH, RECOVER, INSTALL, VIEW, RESTORE, RETURNED),
    *(LEAVE, EXCLUDED, BLOCKED, UNBLOCKED, RESTART, RESTARTED),
)
NEVER = (1 << 63) - 1


class Source(Protocol):
    """A trace, in memory or on disk."""

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario that was run."""
        ...

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics that were measured."""
        ...

    def parts(self) -> Iterator[tuple[int, Events]]:
        """Yield the number of the first row of each part and its events."""
        ...

    def events_at(self, rows: npt.NDArray[np.int64], /) -> Events:
        """Return the events of some rows."""
        ...

    def whole(self) -> Trace:
        """Return the trace in memory."""
        ...


class PartSummary(NamedTuple):
    """The summary of a part of a trace."""

    rows: int
    last_ns: int
    counts: npt.NDArray[np.int64]
    senders: int
    highest: npt.NDArray[np.int64]
    first_delivery: npt.NDArray[np.int64]
    rounds: npt.NDArray[np.int32]
    totals: npt.NDArray[np.int64]
    membership: Events
    membership_rows: npt.NDArray[np.int64]


def members_of(scenario: dict[str, Any]) -> int:
    """Return the number of members; raise an error if the scenario gives none."""
    members = scenario.get("members")
    if not isinstance(members, int) or isinstance(members, bool) or members < 1:
        raise LocalProtocolError(f"the trace's scenario says members = {members!r}; it must be a whole number above 0")
    return members


def summarise(events: Events, start: int, members: int) -> PartSummary:
    """Validate and summarise a part whose first row has the number `start`."""
    events = require_well_formed(events, start, members)
    counts = np.zeros(len(EVENT_NAMES), np.int64)
    highest = np.zeros(members, np.int64)
    first_delivery = np.full(members, NEVER, np.int64)
    totals = np.zeros((len(LAYER_NAMES) + 1, 3), np.int64)
    senders = int(_summarise(events, start, counts, highest, first_delivery, totals)) + 1
    rows = np.zeros(0, np.int64)
    if counts[list(MEMBERSHIP)].any():
        rows = np.flatnonzero(np.isin(events["event"], MEMBERSHIP)).astype(np.int64)
    return PartSummary(
        rows=len(events),
        last_ns=int(events["time_ns"][-1]) if len(events) else 0,
        counts=counts,
        senders=senders,
        highest=highest,
        first_delivery=first_delivery,
        rounds=np.unique(events["round"][events["event"] == ROUND]),
        totals=totals,
        membership=events[rows],
        membership_rows=rows + start,
    )


def joined(summaries: Iterable[PartSummary]) -> PartSummary:
    """Join the summaries of consecutive parts; there is at least one."""
    parts = list(summaries)
    return PartSummary(
        rows=sum(part.rows for part in parts),
        last_ns=next((part.last_ns for part in reversed(parts) if part.rows), 0),
        counts=np.sum([part.counts for part in parts], axis=0),
        senders=max(part.senders for part in parts),
        highest=np.max([part.highest for part in parts], axis=0),
        first_delivery=np.min([part.first_delivery for part in parts], axis=0),
        rounds=np.unique(np.concatenate([part.rounds for part in parts])),
        totals=np.sum([part.totals for part in parts], axis=0),
        membership=np.concatenate([part.membership for part in parts]),
        membership_rows=np.concatenate([part.membership_rows for part in parts]),
    )


@allocating
def _summarise(events: Any, start: int, counts: Any, highest: Any, first_delivery: Any, totals: Any) -> int:
    """Fill the tables; return the highest sender named."""
    members = len(highest)
    top = -1
    for row in range(len(events)):
        kind = events["event"][row]
        counts[kind] += 1
        sender = events["sender"][row]
        top = max(top, sender)
        if kind == HOP:
            totals[events["layer"][row], 2] += 1
        elif kind == SEND:
            copies = members - 1 if events["peer"][row] == EVERYONE else 1
            totals[events["layer"][row], 0] += copies
            totals[events["layer"][row], 1] += copies * np.int64(events["size"][row])
        elif kind == DROP:
            totals[len(totals) - 1, 0] += 1
        elif kind == DELIVER or kind == SENT or kind == RESTORE or kind == RETURNED:
            highest[sender] = max(highest[sender], events["sequence"][row])
            if kind == DELIVER:
                first_delivery[events["member"][row]] = min(first_delivery[events["member"][row]], start + row)
    return top


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A trace and its summary, which a checker gets before the first part."""

    source: Source
    members: int
    summary: PartSummary

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario that was run."""
        return self.source.scenario

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics that were measured."""
        return self.source.metrics

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.summary.rows

    @property
    def senders(self) -> int:
        """One more than the highest sender named."""
        return self.summary.senders

    def has(self, kind: int) -> bool:
        """Is there an event of this kind?"""
        return bool(self.summary.counts[kind])

    @cached_property
    def first(self) -> npt.NDArray[np.int64]:
        """Number the messages: the first number of every sender, followed by the number of all messages.

        Message `sequence` of `sender` has the number first[sender] + sequence − 1.
        """
        highest = self.summary.highest[: self.senders]
        if highest.sum() > 16 * self.rows + 65_536:
            sender = int(highest.argmax())
            raise LocalProtocolError(
                f"the trace names message {highest[sender]} of sender {sender} in {self.rows} rows: some are missing"
            )
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(highest)])

    @cached_property
    def views(self) -> Views:
        """The views of the trace, and the meaning of the rows of membership."""
        summary = self.summary
        return read_views(
            summary.membership, summary.membership_rows, self.members, summary.first_delivery, summary.rows
        )

    def membership(self, *kinds: int) -> tuple[Events, npt.NDArray[np.int64]]:
        """Return the rows of membership of these kinds, and their numbers."""
        chosen = np.isin(self.summary.membership["event"], kinds)
        return self.summary.membership[chosen], self.summary.membership_rows[chosen]

    def cite(self, rows: Iterable[int]) -> dict[int, Any]:
        """Return the events of the rows that a violation names, by row number; −1 stands for none."""
        wanted = np.array(sorted({row for row in rows if row >= 0}), np.int64)
        return dict(zip(wanted.tolist(), self.source.events_at(wanted), strict=True)) if len(wanted) else {}


def facts_of(source: Source) -> Facts:
    """Read a trace and summarise it."""
    members = members_of(source.scenario)
    empty = summarise(blank_events(0), 0, members)
    parts = (summarise(events, start, members) for start, events in source.parts())
    return Facts(source=source, members=members, summary=joined([empty, *parts]))

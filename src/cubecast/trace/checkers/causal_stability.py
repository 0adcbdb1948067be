"""Causal stability: after a message is reported causally stable, a member delivers only messages that follow it.

A message follows another if its sender had delivered that one before the application multicast it. If the trace has
multicast rows, that call counts, not the time at which the message got its number: a message that waited for a new view
was made before, and does not follow what was delivered while it waited. What an application multicasts before it has
the group's state, or before a restart has repeated its deliveries, is sent afterwards, and counts as made then. If the
trace has no sent rows either (groups without views), a sender's own delivery is the time of its multicast.

| state    | shape              | meaning                                                                |
|----------|--------------------|------------------------------------------------------------------------|
| `clock`  | members × senders  | the member delivered, or got with a state, messages up to this one     |
| `made`   | in flight × senders| the clock of the sender when the message was multicast                 |
| `causal` | members × senders  | reported causally stable at the member                                 |

Messages of one sender follow each other. What a member repeats after a restart is ignored.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.in_flight import InFlight, find_last_uses, none_in_flight, release, with_room, write
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import LISTED_MAX, at, list_fault, listed, new_findings
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import (
    CAUSAL,
    DELIVER,
    MULTICAST,
    NOBODY,
    RESTARTED,
    RESTORE,
    SENT,
    Events,
)

NAME = "causal stability"
PROMISE = "once a message is called causally stable, a member delivers only messages that follow it"
CONCURRENT, UNDELIVERED = range(2)


class _State(NamedTuple):
    clock: npt.NDArray[np.int32]
    causal: npt.NDArray[np.int32]
    made: InFlight
    made_at: npt.NDArray[np.int64]
    begun_at: npt.NDArray[np.int64]


def not_promised(trace: Described) -> str | None:
    """Live and fuzzed members report causal stability; simulated ones do if the scenario asks for it."""
    return None if trace.has(CAUSAL) else "the run reports no causal stability"


def scan(facts: Facts) -> Scan:
    """Find deliveries of messages that are concurrent with one reported causally stable, and early reports."""
    first = facts.first
    messages = int(first[-1])
    if messages == 0:
        return []
    made = none_in_flight(first)
    sends = _Sends()
    while (part := (yield)) is not None:
        find_last_uses(part.events, part.start, first, made.last_use)
        sends.add(part.events, first)
    sends.sort()
    shape = (facts.members, facts.senders)
    state = _State(
        clock=np.zeros(shape, np.int32),
        causal=np.zeros(shape, np.int32),
        made=made,
        made_at=np.full(messages, -1, np.int64),
        begun_at=np.full(facts.members, -1, np.int64),
    )
    found, total = new_findings(4), 0
    while (part := (yield)) is not None:
        state = state._replace(made=with_room(state.made, _multicasts(part.events)))
        total = int(_scan(part, first, sends.becomes(part.events), state, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(line[0] for line in lines)
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _multicasts(events: Events) -> int:
    """An upper bound of the messages whose vectors a part can add."""
    is_own = (events["event"] == DELIVER) & (events["sender"] == events["member"])
    return int((np.isin(events["event"], (MULTICAST, SENT)) | is_own).sum())


class _Sends:
    """The message of each multicast: the first that its member sent with its serial."""

    def __init__(self) -> None:
        self._members: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._serials: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._numbers: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._count = 0
        """An upper bound of the serials."""

    def add(self, events: Events, first: npt.NDArray[np.int64]) -> None:
        """Add the sent rows of a part; rows without a serial are ignored."""
        sent = events[(events["event"] == SENT) & (events["sequence"] > 0) & (events["message"] >= 0)]
        self._members.append(sent["member"])
        self._serials.append(sent["message"])
        self._numbers.append(first[sent["sender"]] + sent["sequence"] - 1)
        self._count = max(self._count, int(sent["message"].max(initial=-1)) + 1)

    def sort(self) -> None:
        """Sort the sent rows, after all of them were added."""
        keys = np.concatenate(self._members).astype(np.int64) * self._count + np.concatenate(self._serials)
        order = np.argsort(keys, kind="stable")
        self._keys, self._sorted = keys[order], np.concatenate(self._numbers)[order]
        del self._members, self._serials, self._numbers

    def becomes(self, events: Events) -> npt.NDArray[np.int64]:
        """For every multicast row the number of its message; −1 if the same member did not send it."""
        made = np.full(len(events), NOBODY, np.int64)
        calls = np.flatnonzero((events["event"] == MULTICAST) & (events["message"] < self._count))
        if len(calls):
            wanted = events["member"][calls].astype(np.int64) * self._count + events["message"][calls]
            place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            is_found = self._keys[place] == wanted
            made[calls[is_found]] = self._sorted[place[is_found]]
        return made


def _describe(events: dict[int, Any], row: int, fault: int, sender: int, sequence: int) -> Violation:
    late = events[row]
    if fault == UNDELIVERED:
        message = (
            f"member {late['member']} calls message {late['sequence']} of sender {late['sender']} causally stable "
            f"({at(events, row)}), but has delivered up to {sequence}"
        )
    else:
        message = (
            f"member {late['member']} delivers message {late['sequence']} of sender {late['sender']} "
            f"({at(events, row)}), which does not follow message {sequence} of sender {sender}, causally stable here"
        )
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=int(late["time_ns"]))


@allocating
def _scan(part: Any, first: Any, becomes: Any, state: Any, found: Any, total: int) -> int:
    """Write (row, fault, sender, sequence) of the first violations; return how many there are."""
    events = part.events
    clock, causal, made, made_at = state.clock, state.causal, state.made, state.made_at
    for row in range(len(events)):
        kind = events["event"][row]
        sequence = events["sequence"][row]
        names = sequence >= 1 and (kind == DELIVER or kind == SENT or kind == RESTORE or kind == CAUSAL)
        number = first[events["sender"][row]] + sequence - 1 if names else -1
        if part.replay[row]:
            if names:
                release(made, number, part.start + row)
            continue
        member = events["member"][row]
        if kind == MULTICAST:
            number = becomes[row]
            if number >= 0:
                write(made, number, part.start + row, clock[member])
                made_at[number] = part.start + row
            continue
        if kind == RESTORE or kind == RESTARTED:
            state.begun_at[member] = part.start + row
        if not names:
            continue
        sender = events["sender"][row]
        fault = -1
        other = sender
        needs = 0
        if kind == SENT:
            if made_at[number] <= state.begun_at[member]:
                write(made, number, part.start + row, clock[member])
                made_at[number] = part.start + row
        elif kind == CAUSAL:
            if sequence > clock[member, sender]:
                fault = UNDELIVERED
                needs = clock[member, sender]
            causal[member, sender] = max(causal[member, sender], sequence)
        else:
            if kind == DELIVER and sender == member and made_at[number] < 0:
                write(made, number, part.start + row, clock[member])
                made_at[number] = part.start + row
            elif kind == DELIVER and made_at[number] >= 0:
                other = _concurrent(causal[member], made.vectors[made.slot[number]], sender)
                if other >= 0:
                    fault = CONCURRENT
                    needs = causal[member, other]
            clock[member, sender] = max(clock[member, sender], sequence)
        if kind != CAUSAL:
            release(made, number, part.start + row)
        if fault >= 0:
            total = list_fault(found, total, part.start + row, fault, other, needs)
    return total


@allocating
def _concurrent(causal: Any, made: Any, sender: int) -> int:
    """A sender with a causally stable message that the sender of this one did not have; −1 if there is none."""
    for other in range(len(causal)):
        if other != sender and causal[other] > made[other]:
            return other
    return -1

"""Causal stability: after a message is reported causally stable, a member delivers only messages that follow it.

A message follows another when its sender had delivered that one before the application multicast it. Where the trace
has multicast rows, that call counts, not the moment in which the message got its number: a message that waited for a
new view was made before, and does not follow what was delivered while it waited. What an application multicasts before
it has the group's state, or has taken again what a restart repeats, is sent afterwards, and counts as made then. Where
the trace has no row of sending either (groups without views), a sender's own delivery is the moment of its multicast.

| state    | shape              | meaning                                                                |
|----------|--------------------|------------------------------------------------------------------------|
| `clock`  | members × senders  | the member has delivered, or was given with a state, messages up to it |
| `made`   | messages × senders | the clock of the sender when the message was multicast                 |
| `causal` | members × senders  | reported causally stable at the member                                 |

Messages of one sender follow each other. What a member repeats after a restart is left out.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.deliveries import number_messages
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import LISTED_MAX, at, list_fault, listed, new_findings, well_formed
from cubecast.trace.checkers.views import read_restarts
from cubecast.trace.files import Trace
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


def not_promised(trace: Trace) -> str | None:
    """Live and fuzzed members report it, simulated ones where the scenario asks for it."""
    return None if (trace.arrays()["event"] == CAUSAL).any() else "the run reports no causal stability"


def check(trace: Trace) -> list[Violation]:
    """Find deliveries of messages that are concurrent with one reported causally stable, and early reports."""
    events, members = well_formed(trace)
    first = number_messages(events)
    if first[-1] == 0:
        return []
    found = new_findings(4)
    replay, _ = read_restarts(events, members)
    total = int(_scan(events, members, first, replay, _multicasts(events, first), found))
    return listed(NAME, total, [_describe(events, *map(int, line)) for line in found[: min(total, LISTED_MAX)]])


def _multicasts(events: Events, first: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For every multicast row the message that it became, −1 where the same member did not send it."""
    made = np.full(len(events), NOBODY, np.int64)
    sent = np.flatnonzero((events["event"] == SENT) & (events["sequence"] > 0))
    calls = np.flatnonzero(events["event"] == MULTICAST)
    if not len(sent) or not len(calls):
        return made
    serials = int(events["message"][np.concatenate([sent, calls])].max()) + 1
    keys = events["member"][sent].astype(np.int64) * serials + events["message"][sent]
    order = np.argsort(keys, kind="stable")
    wanted = events["member"][calls].astype(np.int64) * serials + events["message"][calls]
    place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    is_found = keys[order][place] == wanted
    rows = sent[order][place][is_found]
    made[calls[is_found]] = first[events["sender"][rows]] + events["sequence"][rows] - 1
    return made


def _describe(events: Events, row: int, fault: int, sender: int, sequence: int) -> Violation:
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
def _scan(events: Any, members: int, first: Any, replay: Any, becomes: Any, found: Any) -> int:
    """Write (row, fault, sender, sequence) of the first violations; return how many there are."""
    senders = len(first) - 1
    clock = np.zeros((members, senders), np.int32)
    causal = np.zeros((members, senders), np.int32)
    made = np.zeros((first[-1], senders), np.int32)
    made_at = np.full(first[-1], -1, np.int64)
    begun_at = np.full(members, -1, np.int64)
    total = 0
    for row in range(len(events)):
        kind = events["event"][row]
        if replay[row]:
            continue
        member = events["member"][row]
        if kind == MULTICAST:
            number = becomes[row]
            if number >= 0:
                made[number] = clock[member]
                made_at[number] = row
            continue
        if kind == RESTORE or kind == RESTARTED:
            begun_at[member] = row
        sequence = events["sequence"][row]
        if sequence < 1 or (kind != DELIVER and kind != SENT and kind != RESTORE and kind != CAUSAL):
            continue
        sender = events["sender"][row]
        number = first[sender] + sequence - 1
        fault = -1
        other = sender
        needs = 0
        if kind == SENT:
            if made_at[number] <= begun_at[member]:
                made[number] = clock[member]
                made_at[number] = row
        elif kind == CAUSAL:
            if sequence > clock[member, sender]:
                fault = UNDELIVERED
                needs = clock[member, sender]
            causal[member, sender] = max(causal[member, sender], sequence)
        else:
            if kind == DELIVER and sender == member and made_at[number] < 0:
                made[number] = clock[member]
                made_at[number] = row
            elif kind == DELIVER and made_at[number] >= 0:
                other = _concurrent(causal[member], made[number], sender)
                if other >= 0:
                    fault = CONCURRENT
                    needs = causal[member, other]
            clock[member, sender] = max(clock[member, sender], sequence)
        if fault >= 0:
            total = list_fault(found, total, row, fault, other, needs)
    return total


@allocating
def _concurrent(causal: Any, made: Any, sender: int) -> int:
    """A sender with a causally stable message that the maker of this one did not have; −1: none."""
    for other in range(len(causal)):
        if other != sender and causal[other] > made[other]:
            return other
    return -1

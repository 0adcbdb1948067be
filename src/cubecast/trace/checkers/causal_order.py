"""Causal order: no member delivers a message before a message that happened before it (causal §2, Definition 2.2).

A member's deliver row of its own message is the send. A message's *past* is all that was sent before it in the sense
of Definition 2.1: what its sender had sent or delivered, and the pasts of those. Numbers of one sender grow with its
sends, so a past is a vector, and the relation is exact, not an approximation.

| state | shape | meaning |
|---|---|---|
| `past` | messages × senders | how many messages of each sender happened before this one |
| `clock` | members × senders | the past of whatever the member would send next |
| `prefix` | members × senders | the member delivered every message up to this one |
| `got` | members × messages | the member delivered this message |

`clock` runs ahead of `prefix` only at a member that broke the order: what it sends later still depends on what it
skipped. One vector comparison per delivery.

Where the trace has sent rows, they are the sends: the past of a message is what its sender had delivered when it got
its number. A restore row gives a member everything up to it. What a member repeats after a restart is left out.
"""

from typing import Any

import numpy as np

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.deliveries import number_messages
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    list_fault,
    listed,
    new_findings,
    well_formed,
)
from cubecast.trace.checkers.views import read_restarts
from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, RESTORE, SENT, Events

NAME = "causal order"
PROMISE = "a member delivers no message twice, none that was not sent, and none before one that happened before it"
EARLY, TWICE, UNSENT, UNORDERED = range(4)


def not_promised(trace: Trace) -> str | None:
    """Only causal protocols promise it."""
    family = trace.scenario.get("family", "stability")
    return None if family == "causal" else f"{family} protocols do not order messages of different senders"


def check(trace: Trace) -> list[Violation]:
    """Find deliver rows that come before a message of their past, again, or before the send."""
    events, members = well_formed(trace)
    first = number_messages(events)
    if first[-1] == 0:
        return []
    found = new_findings(4)
    uses_sent = bool((events["event"] == SENT).any())
    total = int(_scan(events, members, first, *read_restarts(events, members), uses_sent, found))
    return listed(NAME, total, [_describe(events, *map(int, line)) for line in found[: min(total, LISTED_MAX)]])


def _describe(events: Events, row: int, fault: int, sender: int, sequence: int) -> Violation:
    late = events[row]
    what = f"message {late['sequence']} of sender {late['sender']}"
    reason = {
        EARLY: f"without message {sequence} of sender {sender}, which happened before it",
        TWICE: "a second time",
        UNSENT: "before it was sent",
        UNORDERED: f"as its own, but its next message is number {sequence}",
    }[fault]
    message = f"member {late['member']} delivers {what} ({at(events, row)}) {reason}"
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=int(late["time_ns"]))


@allocating
def _scan(events: Any, members: int, first: Any, replay: Any, restarting: Any, uses_sent: bool, found: Any) -> int:
    """Write (row, fault, sender and sequence it lacks) of the first violations; return how many there are."""
    senders = len(first) - 1
    past = np.zeros((first[-1], senders), np.int32)
    sent = np.zeros(first[-1], np.bool_)
    clock = np.zeros((members, senders), np.int32)
    prefix = np.zeros((members, senders), np.int32)
    got = np.zeros((members, first[-1]), np.bool_)
    total = 0
    for row in range(len(events)):
        sequence = events["sequence"][row]
        kind = events["event"][row]
        if (kind != DELIVER and kind != SENT and kind != RESTORE) or sequence < 1 or replay[row]:
            continue
        member = events["member"][row]
        sender = events["sender"][row]
        number = first[sender] + sequence - 1
        if kind == SENT:
            if not sent[number]:
                sent[number] = True
                past[number] = clock[member]
            clock[member, sender] = max(clock[member, sender], sequence)
            continue
        if kind == RESTORE or events["peer"][row] >= 0:
            _take_over(got[member], prefix[member], clock[member], past, first, sender, sequence)
            continue
        fault = -1
        lacks = 0
        needs = 0
        if member == sender:
            needs = prefix[member, sender] + 1
            if sequence != needs:
                fault = UNORDERED
            elif not sent[number] and (not uses_sent or restarting[row]):
                sent[number] = True
                if uses_sent:
                    past[number, sender] = sequence - 1  # the sent row is lost, and with it what it depends on
                else:
                    past[number] = clock[member]
        if got[member, number]:
            fault = TWICE
        elif not sent[number] and fault < 0:
            fault = UNSENT
        elif fault < 0:
            lacks = _first_lacking(past[number], prefix[member])
            if lacks >= 0:
                fault = EARLY
                needs = prefix[member, lacks] + 1
        _mark(got[member], prefix[member], first, sender, sequence)
        if sent[number]:
            _learn(clock[member], past[number], sender, sequence)
        if fault >= 0:
            total = list_fault(found, total, row, fault, lacks, needs)
    return total


@allocating
def _first_lacking(past: Any, prefix: Any) -> int:
    """Return the first sender of whom something in the past is not delivered, or -1."""
    for sender in range(len(past)):
        if past[sender] > prefix[sender]:
            return sender
    return -1


@allocating
def _mark(got: Any, prefix: Any, first: Any, sender: int, sequence: int) -> None:
    """The member has this message now."""
    got[first[sender] + sequence - 1] = True
    held = prefix[sender]
    while first[sender] + held < first[sender + 1] and got[first[sender] + held]:
        held += 1
    prefix[sender] = held


@allocating
def _learn(clock: Any, past: Any, sender: int, sequence: int) -> None:
    """This message, and whatever happened before it, happened before all that the member does from now on."""
    for other in range(len(past)):
        clock[other] = max(clock[other], past[other])
    clock[sender] = max(clock[sender], sequence)


@allocating
def _take_over(got: Any, prefix: Any, clock: Any, past: Any, first: Any, sender: int, sequence: int) -> None:
    """A member that joins holds everything up to this message, as its peer does."""
    for number in range(first[sender] + prefix[sender], first[sender] + sequence):
        got[number] = True
    _mark(got, prefix, first, sender, sequence)
    _learn(clock, past[first[sender] + sequence - 1], sender, sequence)

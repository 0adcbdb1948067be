"""Causal order: no member delivers a message before a message that happened before it (causal §2, Definition 2.2).

A member's deliver row of its own message is the send. A message's *past* is everything that was sent before it in the
sense of Definition 2.1: what its sender had sent or delivered, and the pasts of those messages. Numbers of one sender
grow with its sends, so a past is a vector, and the relation is exact.

| state | shape | meaning |
|---|---|---|
| `past` | messages in flight × senders | how many messages of each sender happened before this one |
| `clock` | members × senders | the past of the next message that the member sends |
| `prefix` | members × senders | the member delivered every message up to this one |
| `got` | members × messages | the member delivered this message (bits) |
| `sent` | messages | the message was sent (bits) |

`clock` is ahead of `prefix` only at a member that broke the order: what it sends later still depends on what it
skipped. Each delivery takes one vector comparison.

If the trace has sent rows, they are the sends: the past of a message is what its sender had delivered when the message
got its number. A restore row gives a member everything up to it. What a member repeats after a restart is ignored.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.bits import Bits, has_bit, no_bits, set_bit
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Scan
from cubecast.trace.checkers.in_flight import InFlight, find_last_uses, none_in_flight, release, with_room, write
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import (
    LISTED_MAX,
    at,
    list_fault,
    listed,
    new_findings,
)
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import DELIVER, RESTORE, SENT

NAME = "causal order"
PROMISE = "a member delivers no message twice, none that was not sent, and none before one that happened before it"
EARLY, TWICE, UNSENT, UNORDERED = range(4)


class _State(NamedTuple):
    past: InFlight
    sent: Bits
    clock: npt.NDArray[np.int32]
    prefix: npt.NDArray[np.int32]
    got: Bits


def not_promised(trace: Described) -> str | None:
    """Only causal protocols make the promise."""
    family = trace.scenario.get("family", "stability")
    return None if family == "causal" else f"{family} protocols do not order messages of different senders"


def scan(facts: Facts) -> Scan:
    """Find deliver rows before a message of their past, repeated ones, and those before the send."""
    first = facts.first
    messages = int(first[-1])
    if messages == 0:
        return []
    past = none_in_flight(first)
    while (part := (yield)) is not None:
        find_last_uses(part.events, part.start, first, past.last_use)
    state = _State(
        past=past,
        sent=no_bits(1, messages),
        clock=np.zeros((facts.members, facts.senders), np.int32),
        prefix=np.zeros((facts.members, facts.senders), np.int32),
        got=no_bits(facts.members, messages),
    )
    found, total = new_findings(4), 0
    while (part := (yield)) is not None:
        kind = part.events["event"]
        sends = (kind == SENT) | ((kind == DELIVER) & (part.events["member"] == part.events["sender"]))
        state = state._replace(past=with_room(state.past, int(sends.sum())))
        total = int(_scan(part, first, facts.has(SENT), state, found, total))
    lines = found[: min(total, LISTED_MAX)].tolist()
    events = facts.cite(line[0] for line in lines)
    return listed(NAME, total, [_describe(events, *line) for line in lines])


def _describe(events: dict[int, Any], row: int, fault: int, sender: int, sequence: int) -> Violation:
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
def _scan(part: Any, first: Any, uses_sent: bool, state: Any, found: Any, total: int) -> int:
    """Write (row, fault, sender and sequence it lacks) of the first violations; return how many there are."""
    events = part.events
    past, clock, prefix, got = state.past, state.clock, state.prefix, state.got
    sent = state.sent[0]
    nothing = np.zeros(clock.shape[1], np.int32)
    for row in range(len(events)):
        sequence = events["sequence"][row]
        kind = events["event"][row]
        if (kind != DELIVER and kind != SENT and kind != RESTORE) or sequence < 1:
            continue
        member = events["member"][row]
        sender = events["sender"][row]
        number = first[sender] + sequence - 1
        if part.replay[row]:
            release(past, number, part.start + row)
            continue
        if kind == SENT:
            if not has_bit(sent, number):
                set_bit(sent, number)
                write(past, number, part.start + row, clock[member])
            clock[member, sender] = max(clock[member, sender], sequence)
            release(past, number, part.start + row)
            continue
        if kind == RESTORE or events["peer"][row] >= 0:
            for held in range(first[sender] + prefix[member, sender], number):
                set_bit(got[member], held)
            _mark(got[member], prefix[member], first, sender, sequence)
            slot = past.slot[number]
            _learn(clock[member], past.vectors[slot] if slot >= 0 else nothing, sender, sequence)
            release(past, number, part.start + row)
            continue
        fault = -1
        lacks = 0
        needs = 0
        if member == sender:
            needs = prefix[member, sender] + 1
            if sequence != needs:
                fault = UNORDERED
            elif not has_bit(sent, number) and (not uses_sent or part.restarting[row]):
                set_bit(sent, number)
                if uses_sent:
                    only = nothing.copy()
                    only[sender] = sequence - 1  # the sent row is lost, and so is the past of the message
                    write(past, number, part.start + row, only)
                else:
                    write(past, number, part.start + row, clock[member])
        slot = past.slot[number]
        before = past.vectors[slot] if slot >= 0 else nothing
        if has_bit(got[member], number):
            fault = TWICE
        elif not has_bit(sent, number) and fault < 0:
            fault = UNSENT
        elif fault < 0:
            lacks = _first_lacking(before, prefix[member])
            if lacks >= 0:
                fault = EARLY
                needs = prefix[member, lacks] + 1
        _mark(got[member], prefix[member], first, sender, sequence)
        if has_bit(sent, number):
            _learn(clock[member], before, sender, sequence)
        release(past, number, part.start + row)
        if fault >= 0:
            total = list_fault(found, total, part.start + row, fault, lacks, needs)
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
    """Note that the member has this message now."""
    set_bit(got, first[sender] + sequence - 1)
    held = prefix[sender]
    while first[sender] + held < first[sender + 1] and has_bit(got, first[sender] + held):
        held += 1
    prefix[sender] = held


@allocating
def _learn(clock: Any, past: Any, sender: int, sequence: int) -> None:
    """Merge the past of a message into the clock: it happened before everything that the member does from now on."""
    for other in range(len(past)):
        clock[other] = max(clock[other], past[other])
    clock[sender] = max(clock[sender], sequence)

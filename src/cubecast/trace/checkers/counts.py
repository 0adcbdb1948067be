"""Counts agree with the metrics: counting again in the trace gives the reported metrics (MODELS §9).

A unicast is one send row and one message. A tree multicast is one send row with peer = everyone, and counts as n−1
messages and n−1 times its size, as in the papers; its hops are the links that its copies cross. In a network without
links a message makes one hop, which has no row.

A round is over when every member that is up has finished it or a later one. Its times are from the first member that
began it to the first and to the last member that finished it.
"""

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.facts import Facts
from cubecast.trace.checkers.fold import Part, Scan
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.views import Described
from cubecast.trace.schema import CRASH, DONE, RECOVER, ROUND

NAME = "counts agree with the metrics"
PROMISE = "messages, bytes, hops, drops and round times counted in the trace are those of the metrics"
COUNTED = (
    *("messages", "bytes", "hops"),
    *("data_messages", "data_bytes", "data_hops"),
    *("failure_messages", "failure_bytes", "failure_hops"),
    "drops",
)
TIMED = ("rtt_first_ms", "rtt_last_ms")
TOLERANCE_MS = 1e-6  # one nanosecond: the mean of exact times may be rounded differently


def not_promised(trace: Described) -> str | None:
    """A trace without metrics makes no promise."""
    if any(name in trace.metrics for name in COUNTED + TIMED):
        return None
    return "the trace carries no metrics"


def scan(facts: Facts) -> Scan:
    """Find metrics that differ from the trace."""
    said = {name: value for name, value in facts.metrics.items() if name in COUNTED + TIMED}
    found: dict[str, float | None] = dict(
        zip(COUNTED, (int(total) for total in facts.summary.totals.flat), strict=False)
    )
    if facts.scenario.get("links") == 0:
        found |= {f"{layer}hops": found[f"{layer}messages"] for layer in ("", "data_", "failure_")}
    if any(name in said for name in TIMED):
        first_ns, last_ns = yield from _round_times_ns(facts)
        found["rtt_first_ms"] = float(first_ns.mean()) / 1e6 if first_ns.size else None
        found["rtt_last_ms"] = float(last_ns.mean()) / 1e6 if last_ns.size else None
    return [
        _describe(facts, name, value, said[name])
        for name, value in found.items()
        if name in said and not _agree(value, said[name])
    ]


def _agree(value: float | None, said: Any) -> bool:
    missing = said is None or (isinstance(said, float) and math.isnan(said))
    if value is None or missing:
        return value is None and missing
    if isinstance(value, int):
        return bool(value == said)
    return math.isclose(value, said, rel_tol=1e-12, abs_tol=TOLERANCE_MS)


def _describe(facts: Facts, name: str, value: float | None, said: Any) -> Violation:
    message = f"the metrics say {name} = {said}, the trace says {value}"
    return Violation(checker=NAME, message=message, rows=(), time_ns=facts.summary.last_ns)


class _Rounds(NamedTuple):
    """For each round: its beginning, first and last end, and whether it is over; for each member: its last round."""

    begun: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    over: npt.NDArray[np.bool_]
    done: npt.NDArray[np.int64]
    up: npt.NDArray[np.bool_]
    floor: npt.NDArray[np.int64]
    """How many rounds all members that are up have finished, and how many members have finished no more."""


Times = npt.NDArray[np.int64]


def _round_times_ns(facts: Facts) -> Generator[None, Part | None, tuple[Times, Times]]:
    """Return, for every finished round, the time from its first begin to its first and last end."""
    rounds = facts.summary.rounds
    state = _Rounds(
        begun=np.full(len(rounds), -1, np.int64),
        first=np.full(len(rounds), -1, np.int64),
        last=np.full(len(rounds), -1, np.int64),
        over=np.zeros(len(rounds), np.bool_),
        done=np.zeros(facts.members, np.int64),
        up=np.ones(facts.members, np.bool_),
        floor=np.array([0, facts.members]),
    )
    while (part := (yield)) is not None:
        rows = np.flatnonzero(np.isin(part.events["event"], (ROUND, DONE, CRASH, RECOVER)))
        chosen = part.events[rows]
        _follow_rounds(chosen, np.searchsorted(rounds, chosen["round"], side="right"), state)
    over = state.over & (state.first >= 0)
    return state.first[over] - state.begun[over], state.last[over] - state.begun[over]


@allocating
def _follow_rounds(events: Any, upto: Any, state: Any) -> None:
    """Follow every round that began; `upto[row]` is how many of those rounds a done row covers."""
    begun, first, last, over = state.begun, state.first, state.last, state.over
    done, up = state.done, state.up
    floor = state.floor[0]
    slowest = state.floor[1]
    for row in range(len(events)):
        kind = events["event"][row]
        member = events["member"][row]
        time_ns = events["time_ns"][row]
        before = floor
        if kind == ROUND:
            number = upto[row] - 1
            if begun[number] < 0:
                begun[number] = time_ns
                over[number] = number < floor
        elif kind == DONE and upto[row] > done[member]:
            for number in range(done[member], upto[row]):
                first[number] = time_ns if first[number] < 0 else first[number]
                last[number] = time_ns
            slowest -= up[member] and done[member] == floor
            done[member] = upto[row]
        elif kind == CRASH and up[member]:
            up[member] = False
            slowest -= done[member] == floor
        elif kind == RECOVER and not up[member]:
            up[member] = True
            if done[member] < floor:
                floor, slowest = done[member], 0
            slowest += done[member] == floor
        if slowest == 0:
            floor, slowest = _floor(done, up, len(over))
            for number in range(before, floor):
                over[number] |= begun[number] >= 0
    state.floor[0] = floor
    state.floor[1] = slowest


@allocating
def _floor(done: Any, up: Any, rounds: int) -> Any:
    """Count the rounds that all members that are up finished (all, if none is up), and the members with no more."""
    floor = rounds
    slowest = 0
    for member in range(len(up)):
        if up[member] and done[member] < floor:
            floor = done[member]
            slowest = 0
        slowest += up[member] and done[member] == floor
    return floor, slowest

"""Counts agree with the metrics: the reported metrics can be counted again in the trace (MODELS §9).

A unicast is one send row and one message. A tree multicast is one send row with peer = everyone, and counts as n−1
messages and n−1 times its size, as the papers count it; its hops are the links its copies cross. In a network without
links a message makes one hop, which has no row of its own.

A round is over when every member that is up is done with it or with a later one. Its time is from the first member
that began it to the first and the last member that was done with it.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.report import Violation
from cubecast.trace.checkers.rows import well_formed
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DONE, DROP, EVERYONE, HOP, RECOVER, ROUND, SEND, Events

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


def not_promised(trace: Trace) -> str | None:
    """A trace without metrics has nothing to agree with."""
    if any(name in trace.metrics for name in COUNTED + TIMED):
        return None
    return "the trace carries no metrics"


def check(trace: Trace) -> list[Violation]:
    """Find metrics that differ from the trace."""
    events, members = well_formed(trace)
    said = {name: value for name, value in trace.metrics.items() if name in COUNTED + TIMED}
    found = measured(events, members)
    if trace.scenario.get("links") == 0:
        found |= {f"{layer}hops": found[f"{layer}messages"] for layer in ("", "data_", "failure_")}
    return [
        _describe(events, name, value, said[name])
        for name, value in found.items()
        if name in said and not _agree(value, said[name])
    ]


def measured(events: Events, members: int) -> dict[str, float | None]:
    """Compute from the trace the metrics of the same names; None when no round is over."""
    totals = _totals(events, members)
    values: dict[str, float | None] = dict(zip(COUNTED, (int(total) for total in totals.flat), strict=False))
    first_ns, last_ns = _round_times_ns(events, members)
    values["rtt_first_ms"] = float(first_ns.mean()) / 1e6 if first_ns.size else None
    values["rtt_last_ms"] = float(last_ns.mean()) / 1e6 if last_ns.size else None
    return values


def _agree(value: float | None, said: Any) -> bool:
    missing = said is None or (isinstance(said, float) and math.isnan(said))
    if value is None or missing:
        return value is None and missing
    if isinstance(value, int):
        return bool(value == said)
    return math.isclose(value, said, rel_tol=1e-12, abs_tol=TOLERANCE_MS)


def _describe(events: Events, name: str, value: float | None, said: Any) -> Violation:
    message = f"the metrics say {name} = {said}, the trace says {value}"
    time_ns = int(events["time_ns"][-1]) if len(events) else 0
    return Violation(checker=NAME, message=message, rows=(), time_ns=time_ns)


def _round_times_ns(events: Events, members: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give, for every round that is over, the time from its first begin to its first and last end."""
    rounds = np.unique(events["round"][events["event"] == ROUND])
    upto = np.searchsorted(rounds, events["round"], side="right")
    begun, first, last, over = _follow_rounds(events, upto, members, len(rounds))
    over &= first >= 0
    return first[over] - begun[over], last[over] - begun[over]


@allocating
def _follow_rounds(events: Any, upto: Any, members: int, rounds: int) -> Any:
    """Follow every round that began: when it began, its first and its last end, and whether it is over.

    `upto[row]` is how many of those rounds a done row covers; `floor` is how many rounds all members that are up have
    done, and `slowest` how many members have done no more.
    """
    begun, first, last = np.full(rounds, -1), np.full(rounds, -1), np.full(rounds, -1)
    over = np.zeros(rounds, np.bool_)
    done = np.zeros(members, np.int64)
    up = np.ones(members, np.bool_)
    floor, slowest = 0, members
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
            floor, slowest = _floor(done, up, rounds)
            for number in range(before, floor):
                over[number] |= begun[number] >= 0
    return begun, first, last, over


@allocating
def _floor(done: Any, up: Any, rounds: int) -> Any:
    """Count the rounds that all members that are up have done (all, when none is up), and the members with no more."""
    floor = rounds
    slowest = 0
    for member in range(len(up)):
        if up[member] and done[member] < floor:
            floor = done[member]
            slowest = 0
        slowest += up[member] and done[member] == floor
    return floor, slowest


@allocating
def _totals(events: Any, members: int) -> Any:
    """Count messages, bytes and hops (one row per layer), and the drops of all layers."""
    counts = np.zeros((4, 3), np.int64)
    for row in range(len(events)):
        kind = events["event"][row]
        layer = events["layer"][row]
        if kind == SEND:
            copies = members - 1 if events["peer"][row] == EVERYONE else 1
            counts[layer, 0] += copies
            counts[layer, 1] += copies * np.int64(events["size"][row])
        elif kind == HOP:
            counts[layer, 2] += 1
        elif kind == DROP:
            counts[3, 0] += 1
    return counts

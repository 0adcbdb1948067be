"""Counts agree with the metrics: what was reported can be counted again in the trace (MODELS §9).

A unicast is one send row and one message. A tree multicast is one send row with peer = everyone, and counts as n−1
messages and n−1 times its size, as the papers count it; its hops are the links its copies cross.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.core.compiled import allocating
from cubecast.sim.checkers.report import Violation
from cubecast.sim.checkers.rows import well_formed
from cubecast.trace import DONE, DROP, EVERYONE, HOP, ROUND, SEND, Events, Trace

NAME = "counts agree with the metrics"
PROMISE = "messages, bytes, hops, drops and round times counted in the trace are those of the metrics"
COUNTED = ("messages", "bytes", "hops", "data_messages", "data_bytes", "data_hops", "drops")
TIMED = ("rtt_first_ms", "rtt_last_ms")
TOLERANCE_MS = 1e-6  # one nanosecond: the mean of exact times may be rounded differently


def not_promised(trace: Trace) -> str | None:
    """A trace without metrics has nothing to agree with."""
    if any(name in trace.metrics for name in COUNTED + TIMED):
        return None
    return "the trace carries no metrics"


def check(trace: Trace) -> list[Violation]:
    """Find metrics that differ from what the trace says."""
    events, members = well_formed(trace)
    said = {name: value for name, value in trace.metrics.items() if name in COUNTED + TIMED}
    return [
        _tell(events, name, value, said[name])
        for name, value in measured(events, members).items()
        if name in said and not _agree(value, said[name])
    ]


def measured(events: Events, members: int) -> dict[str, float | None]:
    """Measure in the trace what the metrics of the same names should say; None when no round ended."""
    totals = _totals(events, members)
    values: dict[str, float | None] = dict(zip(COUNTED, (int(total) for total in totals.flat), strict=False))
    first_ns, last_ns = _round_times_ns(events)
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


def _tell(events: Events, name: str, value: float | None, said: Any) -> Violation:
    message = f"the metrics say {name} = {said}, the trace says {value}"
    time_ns = int(events["time_ns"][-1]) if len(events) else 0
    return Violation(checker=NAME, message=message, rows=(), time_ns=time_ns)


def _round_times_ns(events: Events) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give, for every round that somebody was done with, the time from its first begin to its first and last end."""
    begun = events[events["event"] == ROUND]
    ended = events[events["event"] == DONE]
    rounds, index = np.unique(begun["round"], return_inverse=True)
    ended = ended[np.isin(ended["round"], rounds)]
    start, first = (np.full(len(rounds), np.iinfo(np.int64).max) for _ in range(2))
    last = np.full(len(rounds), -1)
    np.minimum.at(start, index, begun["time_ns"])
    index = np.searchsorted(rounds, ended["round"])
    np.minimum.at(first, index, ended["time_ns"])
    np.maximum.at(last, index, ended["time_ns"])
    over = np.zeros(len(rounds), np.bool_)
    over[index] = True
    return first[over] - start[over], last[over] - start[over]


@allocating
def _totals(events: Any, members: int) -> Any:
    """Count messages, bytes and hops (one row a layer), and the drops of both layers."""
    counts = np.zeros((3, 3), np.int64)
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
            counts[2, 0] += 1
    return counts

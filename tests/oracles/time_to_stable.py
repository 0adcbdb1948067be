"""Times to stable and their bound, read off a trace with plain loops (guo §5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from cubecast.trace.files import Trace
from cubecast.trace.schema import DELIVER, DONE, ROUND, STABLE


@dataclass(frozen=True, kw_only=True)
class Times:
    """In nanoseconds: TTS of each message, and what the three parts of its bound were at most."""

    tts: dict[tuple[int, int], int]
    own_bound: dict[tuple[int, int], int]
    delivery_max: int
    """D: until a message was everywhere."""
    between_rounds_max: int
    """F: from the beginning of a round to that of the next."""
    round_max: int
    """TPR: from the beginning of a round until the first member knew S."""


def read_times(trace: Trace) -> Times:
    """Follow every message; requires that no member crashed."""
    sent: dict[tuple[int, int], int] = {}
    everywhere: dict[tuple[int, int], int] = {}
    stable: dict[tuple[int, int], int] = {}
    begun: dict[int, int] = {}
    known: dict[int, int] = {}
    known_upto: dict[int, int] = {}
    for row in trace.events:
        kind, time_ns, sender, sequence = row["event"], int(row["time_ns"]), int(row["sender"]), int(row["sequence"])
        if kind == DELIVER:
            if row["member"] == sender:
                sent[sender, sequence] = time_ns
            everywhere[sender, sequence] = time_ns
        elif kind == STABLE:
            for number in range(known_upto.get(sender, 0) + 1, sequence + 1):
                stable[sender, number] = time_ns
            known_upto[sender] = max(known_upto.get(sender, 0), sequence)
        elif kind == ROUND:
            begun.setdefault(int(row["round"]), time_ns)
        elif kind == DONE:
            known.setdefault(int(row["round"]), time_ns)
    rounds = sorted((begun[number], known[number]) for number in known if number in begun)
    starts = [start for start, _ in rounds]
    return Times(
        tts={message: stable[message] - sent[message] for message in sent},
        own_bound={
            message: min(end for start, end in rounds if start >= everywhere[message]) - sent[message]
            for message in sent
            if starts[-1] >= everywhere[message]
        },
        delivery_max=max(everywhere[message] - sent[message] for message in sent),
        between_rounds_max=max(later - earlier for earlier, later in pairwise(starts)),
        round_max=max(end - start for start, end in rounds),
    )

"""Faults of a run, and their times: crashes, recoveries, false suspicions, partitions.

Spellings (command line and API): a crash `3@2ms`, a crash with recovery `3@2ms-50ms`, several members `1+2+4@0ms`; a
false suspicion `5@10ms`; a partition `0-15@10ms-60ms` (those members on one side, the rest on the other).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.protocol.random import new_stream

NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
NEVER = -1
TIME_NS_MAX = 1 << 53  # 104 days: up to here a float holds every nanosecond
RANKS_MAX = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of some members at one time, or from one time to another."""

    members: tuple[int, ...]
    at_ns: int
    until_ns: int = NEVER

    def __post_init__(self) -> None:
        if not self.members or min(self.members) < 0:
            raise LocalProtocolError(f"a fault of the members {self.members}: name at least one rank, from 0")
        if not 0 <= self.at_ns <= TIME_NS_MAX or self.until_ns > TIME_NS_MAX:
            raise LocalProtocolError(f"fault {self}: give a time from 0 to {TIME_NS_MAX} ns")
        if self.until_ns != NEVER and self.until_ns <= self.at_ns:
            raise LocalProtocolError(f"fault {self}: it ends before it begins")

    def __str__(self) -> str:
        span = f"{self.at_ns}ns" if self.until_ns == NEVER else f"{self.at_ns}ns-{self.until_ns}ns"
        return "+".join(map(str, self.members)) + "@" + span


class Faults(NamedTuple):
    """The faults of a run as the kernel reads them."""

    recover_ns: np.ndarray
    sides: np.ndarray
    detect_ns: int
    spread_ns: int
    random: np.ndarray


def time_ns(text: str) -> int:
    """`2ms`, `1.5s`, `200us` or `7ns` as nanoseconds; a bare number is milliseconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-?\d+)?)(ns|us|ms|s)?", text.strip())
    if match is None:
        raise LocalProtocolError(f"{text!r} is not a time: write 2ms, 1.5s, 200us or 7ns")
    found = float(match[1]) * NS_PER[match[2] or "ms"]
    if found > TIME_NS_MAX:
        raise LocalProtocolError(f"{text!r}: give a time of at most {TIME_NS_MAX // NS_PER['s']} s")
    return round(found)


def parse_fault(text: str, *, what: str, needs_end: bool = False) -> Fault:
    """Parse a fault; the module documents the syntax."""
    who, separator, when = text.partition("@")
    begin, dash, end = when.partition("-")
    if not separator or not who or (needs_end and not dash):
        form = "MEMBERS@BEGIN-END" if needs_end else "MEMBERS@TIME or MEMBERS@BEGIN-END"
        raise LocalProtocolError(f"{what} {text!r}: write it as {form}, for example 3@2ms-50ms")
    at_ns, until_ns = time_ns(begin), time_ns(end) if dash else NEVER
    if dash and until_ns <= at_ns:
        raise LocalProtocolError(f"{what} {text!r}: it ends before it begins")
    return Fault(members=_ranks(who, what), at_ns=at_ns, until_ns=until_ns)


def _ranks(text: str, what: str) -> tuple[int, ...]:
    ranks: list[int] = []
    for part in text.split("+"):
        low, dash, high = part.partition("-")
        first, last = _rank(low), _rank(high if dash else low)
        if not 0 <= first <= last < RANKS_MAX:
            raise LocalProtocolError(f"{what}: {part!r} is not a rank; write 3, 1+2+4 or 0-15")
        ranks.extend(range(first, last + 1))
    return tuple(ranks)


def _rank(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def check_members(faults: Sequence[Fault], members: int, what: str) -> None:
    """Every named rank must exist."""
    for fault in faults:
        for rank in fault.members:
            if rank >= members:
                raise LocalProtocolError(f"{what} of member {rank}: ranks go from 0 to {members - 1}")


def new_faults(
    *,
    members: int,
    crashes: Sequence[Fault],
    partitions: Sequence[Fault],
    detect_ns: int,
    spread_ns: int,
    seed: int,
) -> Faults:
    """Arrays for the kernel; side 0 of `sides` is the whole group."""
    sides = np.zeros((len(partitions) + 1, members), np.int32)
    for place, partition in enumerate(partitions, start=1):
        sides[place, list(partition.members)] = 1
    return Faults(
        recover_ns=np.array([fault.until_ns for fault in crashes] or [NEVER], np.int64),
        sides=sides,
        detect_ns=detect_ns,
        spread_ns=spread_ns,
        random=new_stream(seed, "faults"),
    )

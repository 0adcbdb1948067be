"""The trace of a live member: rows of the one trace schema, appended to a file as they happen.

Rows are written before the messages they tell of leave the process, so that a member that is killed leaves a trace in
which nothing it sent is missing. Times are of the system's monotonic clock, the same for all processes of a machine.
`merge` makes one trace of the files of all members.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.trace import (
    CRASH,
    DELIVER,
    DONE,
    EVENT_DTYPE,
    EXCLUDE,
    NOBODY,
    ROUND,
    STABLE,
    TraceWriter,
    blank_events,
)


class Recorder:
    """Writes what one member does; every method is a row (or several)."""

    def __init__(self, path: str | Path, rank: int) -> None:
        """Open the file; an older one of that name is replaced."""
        self.path = Path(path)
        self.rank = rank
        self._rows: list[tuple[int, ...]] = []
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        except OSError as error:
            raise LocalProtocolError(f"cannot write the trace {self.path}: {error.strerror}") from error

    def deliveries(self, keys: Sequence[int]) -> None:
        """Messages, sender << 32 | sequence, were handed to the application."""
        now = time.monotonic_ns()
        for key in keys:
            self._row(now, DELIVER, NOBODY, key >> 32, key & 0xFFFFFFFF, NOBODY)

    def stable(self, sender: int, sequence: int, number: int) -> None:
        """Everything of a sender up to here is stable."""
        self._row(time.monotonic_ns(), STABLE, NOBODY, sender, sequence, number)

    def round(self, number: int, *, done: bool) -> None:
        """A stability round began or ended."""
        self._row(time.monotonic_ns(), DONE if done else ROUND, NOBODY, NOBODY, 0, number)

    def exclude(self, rank: int) -> None:
        """A member was taken out of the group."""
        self._row(time.monotonic_ns(), EXCLUDE, rank, NOBODY, 0, NOBODY)

    def leave(self) -> None:
        """This member stops."""
        self._row(time.monotonic_ns(), CRASH, NOBODY, NOBODY, 0, NOBODY)

    def _row(self, now: int, event: int, peer: int, sender: int, sequence: int, number: int) -> None:
        # time, event, member, peer, message, sender, sequence, round, link, entered, size, layer
        self._rows.append((now, event, self.rank, peer, NOBODY, sender, sequence, number, NOBODY, now, 0, 0))

    def flush(self) -> None:
        """Write the rows; called before anything they tell of is sent."""
        if self._rows:
            os.write(self._file, np.array(self._rows, EVENT_DTYPE).tobytes())
            self._rows.clear()

    def close(self) -> None:
        """Write what is left and close the file."""
        self.flush()
        os.close(self._file)


def merge(
    paths: Sequence[str | Path],
    trace: str | Path,
    *,
    members: int,
    crashes: Mapping[int, int] | None = None,
    leaves: bool = True,
    scenario: Mapping[str, Any] | None = None,
) -> int:
    """Write one trace from the files of the members; gives its rows.

    `crashes` says which ranks were killed or stopped, and when on the monotonic clock; what a stopped process did once
    it went on is left out, for it was no member any more. `leaves=False` leaves out the rows of members that left:
    right when all left together after all was delivered.
    """
    parts = [_read(Path(path)) for path in paths]
    if not leaves:
        parts = [part[part["event"] != CRASH] for part in parts]
    for rank, time_ns in (crashes or {}).items():
        parts = [part[(part["member"] != rank) | (part["time_ns"] <= time_ns)] for part in parts]
        stopped = blank_events(1)
        stopped["time_ns"], stopped["event"], stopped["member"] = time_ns, CRASH, rank
        parts.append(stopped)
    events = np.concatenate(parts)
    events = events[np.argsort(events["time_ns"], kind="stable")]
    if len(events):
        events["time_ns"] -= int(events["time_ns"][0]) - 1
        events["entered_ns"] = events["time_ns"]
    described = {"members": members, "family": "causal", "live": True, "unfinished_allowed": True, **(scenario or {})}
    with TraceWriter(trace, described) as writer:
        writer.append(events)
        writer.finish({})
    return len(events)


def _read(path: Path) -> np.ndarray:
    """The rows of one file; a row that a kill cut short is left out."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LocalProtocolError(f"cannot read the member's trace {path}: {error.strerror}") from error
    whole = len(data) // EVENT_DTYPE.itemsize * EVENT_DTYPE.itemsize
    return np.frombuffer(data[:whole], EVENT_DTYPE).copy()

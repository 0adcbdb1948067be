"""The trace of a live process: rows of the one trace schema, appended to a file that survives kills and restarts.

One process writes one file, for all its incarnations and restarts: a sequence of blocks (`cubecast.trace.blocks`).
A member id of the file is given by `member_id`; the block that names an id comes before the rows that use it.
`merge_traces` makes one trace of the files of all processes.

Duties of the caller: pass `now_ns` of the system's monotonic clock, read after the input that caused the event, because
events of different processes are ordered by it; call `flush` when the journal has the events of the rows up to a
`position`, and before any effect of them leaves the process. Rows lost by a kill between the two are written again
after the restart: so the replay repeats installs as well as deliveries.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.errors import LocalProtocolError
from cubecast.trace.blocks import (
    ID_COLUMNS,
    MAGIC,
    NAMES,
    ROWS,
    MemberName,
    Names,
    begins_with_block,
    blocks,
    is_member_trace,
    make_block,
    rows_of,
)
from cubecast.trace.files import Trace, TraceWriter
from cubecast.trace.schema import (
    CRASH,
    DATA,
    DELIVER,
    EVENT_DTYPE,
    HOLD,
    INSTALL,
    NOBODY,
    RESTORE,
    STABLE,
    VIEW,
    Events,
    blank_events,
)

__all__ = [
    "MAGIC",
    "MemberTraceFile",
    "MemberTraceWriter",
    "is_member_trace",
    "merge_traces",
    "merged_trace",
    "read_member_trace",
]
BUFFERED_BYTES_MAX = 1 << 20  # written even without a call of flush
_ROW = struct.Struct("<qb3xii4xqiiiiqib3x")
_SMALL = 48  # for fewer rows packing them one by one is faster than building an array
Integers = Sequence[int] | npt.NDArray[Any]
Crashes = Mapping[Any, int] | Iterable[tuple[Any, int]]
"""Which processes were killed, by name, and when; pairs where one is killed several times."""
assert _ROW.size == EVENT_DTYPE.itemsize


class MemberTraceWriter:
    """Appends the events of one process, in all its incarnations; every method adds one or more rows."""

    def __init__(self, path: str | Path, *, writes_early: bool = True) -> None:
        """Open the file; what earlier sessions wrote stays. `writes_early`: many rows do not wait for `flush`."""
        self.path = Path(path)
        self._buffered_bytes_max = BUFFERED_BYTES_MAX if writes_early else sys.maxsize
        self._session = int.from_bytes(os.urandom(8), "little")
        self._ids: dict[MemberName, int] = {}
        self._new_names: list[tuple[int, Any, int]] = []
        self._rows = bytearray()
        self._written = 0
        """Bytes of rows that were written."""
        self._blank = blank_events(1)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise LocalProtocolError(f"cannot write the trace {self.path}: {error.strerror}") from error

    def member_id(self, name: Any, incarnation: int) -> int:
        """The id of a member in this session; its name is written before the next rows."""
        known = self._ids.get((name, incarnation))
        if known is None:
            known = self._ids[name, incarnation] = len(self._ids)
            self._new_names.append((known, name, incarnation))
        return known

    def row(
        self,
        now_ns: int,
        event: int,
        member: int,
        *,
        peer: int = NOBODY,
        message: int = NOBODY,
        sender: int = NOBODY,
        sequence: int = 0,
        round: int = NOBODY,  # noqa: A002 (the name of the column)
        size: int = 0,
        layer: int = DATA,
    ) -> None:
        """Add one row; columns that are not given do not apply."""
        self._rows += _ROW.pack(
            now_ns, event, member, peer, message, sender, sequence, round, NOBODY, now_ns, size, layer
        )
        if len(self._rows) >= self._buffered_bytes_max:
            self.flush()

    def deliveries(self, now_ns: int, member: int, senders: Integers, sequences: Integers) -> None:
        """Record messages that were handed to the application, in this order."""
        self._messages(now_ns, DELIVER, member, senders, sequences)

    def holds(self, now_ns: int, member: int, senders: Integers, sequences: Integers) -> None:
        """Record that the member received these messages, and all before them; they are not deliverable yet."""
        self._messages(now_ns, HOLD, member, senders, sequences)

    def stable(self, now_ns: int, member: int, senders: Integers, sequences: Integers, number: int = NOBODY) -> None:
        """Record what is stable, by sender; `number` is the round of the stability protocol."""
        self._messages(now_ns, STABLE, member, senders, sequences, number)

    def restore(
        self, now_ns: int, member: int, view_number: int, tag: int, senders: Integers, sequences: Integers
    ) -> None:
        """Record a state that the application restored: what it holds of each sender, as of the view's beginning.

        An empty state is one row, different from no state. Between restart and restarted rows it is the member's own
        checkpoint: give `NOBODY` for view and tag.
        """
        if len(senders) == 0:
            senders, sequences = [member], [0]
        self._messages(now_ns, RESTORE, member, senders, sequences, view_number, tag)

    def install(self, now_ns: int, member: int, view_number: int, tag: int, member_ids: Sequence[int]) -> None:
        """Record that the member installed a view with these members, by rank."""
        for rank, other in enumerate(member_ids):
            self.row(now_ns, VIEW, member, peer=other, sequence=rank, round=view_number, message=tag)
        self.row(now_ns, INSTALL, member, sequence=len(member_ids), round=view_number, message=tag)

    def _messages(
        self,
        now_ns: int,
        event: int,
        member: int,
        senders: Integers,
        sequences: Integers,
        number: int = NOBODY,
        tag: int = NOBODY,
    ) -> None:
        count = len(senders)
        if count < _SMALL:
            pack = _ROW.pack
            if isinstance(senders, np.ndarray) and isinstance(sequences, np.ndarray):
                senders, sequences = senders.tolist(), sequences.tolist()
            for sender, sequence in zip(senders, sequences, strict=True):
                self._rows += pack(
                    now_ns, event, member, NOBODY, tag, sender, sequence, number, NOBODY, now_ns, 0, DATA
                )
        else:
            rows = np.repeat(self._blank, count)
            rows["time_ns"] = rows["entered_ns"] = now_ns
            rows["event"], rows["member"], rows["layer"] = event, member, DATA
            rows["sender"], rows["sequence"] = senders, sequences
            rows["round"], rows["message"] = number, tag
            self._rows += rows.tobytes()
        if len(self._rows) >= self._buffered_bytes_max:
            self.flush()

    @property
    def position(self) -> int:
        """Bytes of rows until now, for `flush`."""
        return self._written + len(self._rows)

    def flush(self, position: int | None = None) -> None:
        """Write the rows up to a position, or all; call it before any effect of their events leaves the process."""
        count = len(self._rows) if position is None else min(max(0, position - self._written), len(self._rows))
        if not count and not self._new_names:
            return
        data = b""
        if self._new_names:
            data = make_block(NAMES, self._session, json.dumps(self._new_names).encode())
            self._new_names = []
        if count:
            data += make_block(ROWS, self._session, self._rows[:count])
            del self._rows[:count]
            self._written += count
        self._write(data)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise LocalProtocolError(f"cannot write the trace {self.path}: {error.strerror}") from error

    def close(self, position: int | None = None) -> None:
        """Write what is left, up to a position or all, and close the file."""
        self.flush(position)
        os.close(self._file)


@dataclass(frozen=True, kw_only=True, eq=False)
class MemberTraceFile:
    """The contents of one file: its rows in the order of writing, and the member of each id in them."""

    events: Events
    names: list[MemberName]


def read_member_trace(path: str | Path) -> MemberTraceFile:
    """Read the file of one process; blocks that were cut short are left out."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LocalProtocolError(f"cannot read the member's trace {path}: {error.strerror}") from error
    if not begins_with_block(data):
        raise LocalProtocolError(f"{path} is not the trace of a member: it does not start with {MAGIC.decode()}")
    names = Names()
    parts = rows_of(path, blocks(data), names)
    return MemberTraceFile(events=np.concatenate([blank_events(0), *parts]), names=list(names.members))


def merged_trace(
    paths: Iterable[str | Path],
    *,
    crashes: Crashes = (),
    scenario: Mapping[str, Any] | None = None,
) -> Trace:
    """Make one trace of the files of all processes, in memory; the arguments are those of `merge_traces`."""
    parts = [read_member_trace(path) for path in paths]
    names = _order_names(parts)
    ids = {name: place for place, name in enumerate(names)}
    rows = []
    for part in parts:
        events = part.events
        table = np.array([ids[name] for name in part.names], np.int32)
        for column in ID_COLUMNS:
            used = events[column] >= 0
            events[column][used] = table[events[column][used]]
        rows.append(events)
    events = np.concatenate([blank_events(0), *rows])
    events = np.concatenate([events, _crash_rows(events, names, crashes)])
    events = _without_repeated_views(events[np.argsort(events["time_ns"], kind="stable")])
    events = _with_departed_senders(events, len(names))
    if len(events):
        # The run begins at 1: rows at time 0 would be a state that the members began with.
        events["time_ns"] -= int(events["time_ns"][0]) - 1
        events["entered_ns"] = events["time_ns"]
    described = {"family": "causal", "live": True, "unfinished_allowed": True, "quorum": "majority", **(scenario or {})}
    described |= {"members": max(len(names), 1), "names": [list(name) for name in names]}
    return Trace(events=events, scenario=described, metrics={})


def merge_traces(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    crashes: Crashes = (),
    scenario: Mapping[str, Any] | None = None,
) -> int:
    """Write one trace file from the files of all processes; returns its number of rows.

    `crashes` says which processes were killed, by name, and when on the monotonic clock: give a time at which the
    process was gone for certain. The crash is of the newest incarnation of that name that wrote anything before.
    """
    trace = merged_trace(paths, crashes=crashes, scenario=scenario)
    with TraceWriter(out, trace.scenario) as writer:
        writer.append(trace.events)
        writer.finish(trace.metrics)
    return len(trace.events)


def _order_names(parts: Sequence[MemberTraceFile]) -> list[MemberName]:
    """Number the members: those of the first view by rank, then those of later views, then all others."""
    seen: list[tuple[tuple[int, int, int], MemberName]] = []
    for part in parts:
        rows = part.events[part.events["event"] == VIEW]
        keys = zip(rows["round"].tolist(), rows["time_ns"].tolist(), rows["sequence"].tolist(), strict=True)
        seen += [(key, part.names[peer]) for key, peer in zip(keys, rows["peer"].tolist(), strict=True)]
    ranked = [name for _, name in sorted(seen, key=lambda one: one[0])]
    return list(dict.fromkeys([*ranked, *(name for part in parts for name in part.names)]))


def _crash_rows(events: Events, names: Sequence[MemberName], crashes: Crashes) -> Events:
    rows = []
    for name, time_ns in crashes.items() if isinstance(crashes, Mapping) else crashes:
        wrote = set(events["member"][events["time_ns"] <= time_ns].tolist())
        lives = [(incarnation, place) for place, (own, incarnation) in enumerate(names) if own == name]
        lives = [(incarnation, place) for incarnation, place in lives if place in wrote]
        if lives:
            crash = blank_events(1)
            # A time behind the end of the trace means its end.
            crash["time_ns"] = min(time_ns, int(events["time_ns"].max()) + 1)
            crash["event"], crash["member"] = CRASH, max(lives)[1]
            rows.append(crash)
    return np.concatenate([blank_events(0), *rows])


def _with_departed_senders(events: Events, members: int) -> Events:
    """Complete the states that newcomers restored by the messages of senders that are not in the view any more.

    A newcomer knows how much each member of its view had sent before it, but nothing of those that are gone; their
    messages are in its state all the same. They are taken from a member that had a state when it installed the view.
    """
    restored = (events["event"] == RESTORE) & (events["round"] >= 0)
    for member in dict.fromkeys(events["member"][restored].tolist()):
        own = np.flatnonzero((events["event"] == RESTORE) & (events["round"] >= 0) & (events["member"] == member))
        last = int(own[-1])
        departed = _of_departed(events, last, members)
        departed[events["sender"][own]] = 0
        senders = np.flatnonzero(departed)
        if len(senders):
            rows = np.repeat(events[last : last + 1], len(senders))
            rows["sender"], rows["sequence"] = senders, departed[senders]
            events = np.concatenate([events[: last + 1], rows, events[last + 1 :]])
    return events


def _of_departed(events: Events, restore: int, members: int) -> npt.NDArray[np.int32]:
    """How much of each sender that is not in the view of a restore row had been delivered before that view."""
    view = (events["round"] == events["round"][restore]) & (events["message"] == events["message"][restore])
    held = np.zeros(members, np.int32)
    for install in np.flatnonzero(view & (events["event"] == INSTALL)).tolist():
        before = events[:install]
        own = before["member"] == events["member"][install]
        earlier = own & (before["event"] == INSTALL)
        if not earlier.any() or (earlier & view[:install]).any():
            continue  # a newcomer as well, or repeated after a restart
        rows = before[own & np.isin(before["event"], (DELIVER, RESTORE))]
        np.maximum.at(held, rows["sender"], rows["sequence"])
        if held.any():
            break
    held[events["peer"][view & (events["event"] == VIEW)]] = 0
    return held


def _without_repeated_views(events: Events) -> Events:
    """Drop view rows that repeat an earlier one, of any member."""
    view_rows = np.flatnonzero(events["event"] == VIEW)
    columns = [events[column][view_rows].astype(np.int64) for column in ("round", "message", "peer", "sequence")]
    _, first = np.unique(np.stack(columns, axis=1), axis=0, return_index=True)
    kept = np.ones(len(events), np.bool_)
    kept[view_rows] = False
    kept[view_rows[first]] = True
    return events[kept]

"""A folder of live traces as a streaming source of Spark: what was appended since the last batch.

Each live process appends blocks to its own file (`cubecast.trace.blocks`). The offset of the stream holds for each file
the place behind its last complete block; a half-written block is left for a later batch. A process that restarts
appends to its file, with new ids, so rows name members as `NAME (INCARNATION)`.

| column | meaning |
|---|---|
| `time_ns`, `event`, `sequence`, `round`, `message` | as in the trace (`docs/trace.md`) |
| `member`, `peer`, `sender` | names instead of ids; null where there is none |
| `view` | the highest view that the member installed in the batch up to this row, −1 before the first |

The reader runs in a process beside the driver. It scans every file once from the beginning, to find the ends of blocks
and the names; tasks get the names together with the part of the file that they read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from cubecast.errors import LocalProtocolError
from cubecast.lab.spark.failures import reported
from cubecast.trace.blocks import (
    ID_COLUMNS,
    NAMES,
    Names,
    is_member_trace,
    read_blocks,
    rows_of,
)
from cubecast.trace.schema import (
    EVENT_NAMES,
    INSTALL,
    NOBODY,
    Events,
)

_NUMBERS = {"time_ns": pa.int64(), "sequence": pa.int32(), "round": pa.int32(), "message": pa.int64()}
SCHEMA = pa.schema(
    [
        *(pa.field(name, kind) for name, kind in _NUMBERS.items()),
        *(pa.field(name, pa.string()) for name in ("event", *ID_COLUMNS)),
        pa.field("view", pa.int32()),
    ]
)
COLUMNS_DDL = (
    "time_ns bigint, sequence int, round int, message bigint, "
    "event string, member string, peer string, sender string, view int"
)
Places = dict[str, int]
"""The place behind the last block, by name of the file."""


class FilePart(InputPartition):
    """The part of a file that a task reads, and the names given before it."""

    def __init__(self, path: str, start: int, end: int, names: Names) -> None:
        self.path, self.start, self.end, self.names = path, start, end, names


class LiveTraces(DataSource):
    """`spark.readStream.format("cubecast-live").option("path", folder)`."""

    @classmethod
    def name(cls) -> str:
        return "cubecast-live"

    def schema(self) -> str:
        return COLUMNS_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        del schema
        return _Reader(Path(self.options["path"]))


class _Reader(DataSourceStreamReader):
    def __init__(self, folder: Path) -> None:
        self.files = LiveTraceFiles(folder)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 (Spark's name)
        return {"places": "{}"}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:  # noqa: N802 (Spark's name)
        del limit
        with reported():
            after = self.files.look(json.loads(start["places"]) if start else {})
        return {"places": json.dumps(after, sort_keys=True)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        return [*self.files.parts(json.loads(start["places"]), json.loads(end["places"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePart)
        with reported():
            yield from read_part(partition)


class LiveTraceFile:
    """How far the file of a process was scanned, and the names found there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self.place = 0
        self.names = Names()
        self._ends: dict[int, int] = {}
        """The place behind the last block of each session."""

    def scan(self) -> int:
        """Scan to the last complete block; return the place behind it."""
        size = self.path.stat().st_size
        if size < self.place:
            self._begin()  # it was replaced
        with self.path.open("rb") as file:
            for found in read_blocks(file, self.place, size):
                for block in found:
                    self._ends[block.session] = block.end
                    if block.kind == NAMES:
                        self.names.learn(block)
                self.place = found[-1].end
        return self.place

    def names_after(self, start: int) -> Names:
        """The names of the sessions that wrote behind a place."""
        ids = {session: ids for session, ids in self.names.sessions.items() if self._ends[session] > start}
        return Names(members=self.names.members, sessions=ids)


class LiveTraceFiles:
    """The traces of live processes in a folder; other files there are ignored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, LiveTraceFile] = {}

    def look(self, before: Places) -> Places:
        """The present end of each file; `before` is how far they were read."""
        places = {}
        for path in sorted(self.folder.iterdir()):
            try:
                if not path.name.startswith(".") and path.is_file() and is_member_trace(path):
                    places[path.name] = self._file(path.name).scan()
            except FileNotFoundError:
                continue  # removed meanwhile
            if places.get(path.name, 0) < before.get(path.name, 0):
                raise LocalProtocolError(f"{path} became shorter: follow the folder again, with a new checkpoint")
        self._files = {name: file for name, file in self._files.items() if name in places}
        return places

    def parts(self, before: Places, after: Places) -> Iterator[FilePart]:
        """What was appended between two looks; one part per file, because its rows are in order."""
        for name, end in after.items():
            start = before.get(name, 0)
            if end > start:
                file = self._file(name)
                if file.place < end:
                    file.scan()  # the first batch after a restart was planned before it
                yield FilePart(str(file.path), start, end, file.names_after(start))

    def _file(self, name: str) -> LiveTraceFile:
        return self._files.setdefault(name, LiveTraceFile(self.folder / name))


def read_part(part: FilePart) -> Iterator[pa.RecordBatch]:
    """The rows of a part, with names in place of ids."""
    views: dict[int, int] = {}
    with Path(part.path).open("rb") as file:
        for found in read_blocks(file, part.start, part.end):
            for events in rows_of(part.path, found, part.names):
                labels = pa.array([label(*member) for member in part.names.members], pa.string())
                yield _batch(events, labels, _views_of(events, views))


def label(name: Any, incarnation: int) -> str:
    """The name of a member in tables."""
    return f"{name} ({incarnation})"


def _views_of(events: Events, views: dict[int, int]) -> npt.NDArray[np.int32]:
    """The highest view that the member of each row installed so far; `views` is carried from call to call."""
    highest = np.full(len(events), NOBODY, np.int32)
    for member in np.unique(events["member"]).tolist():
        own = events["member"] == member
        installed = np.where(events["event"][own] == INSTALL, events["round"][own], views.get(member, NOBODY))
        highest[own] = np.maximum.accumulate(np.maximum(installed, views.get(member, NOBODY)))
        views[member] = int(highest[own][-1])
    return highest


def _batch(events: Events, labels: pa.Array, views: npt.NDArray[np.int32]) -> pa.RecordBatch:
    columns = [pa.array(np.ascontiguousarray(events[name])) for name in _NUMBERS]
    columns.append(pa.array(EVENT_NAMES).take(pa.array(events["event"].astype(np.int32))))
    for name in ID_COLUMNS:
        ids = np.ascontiguousarray(events[name])
        columns.append(labels.take(pa.array(ids, mask=ids < 0)))
    return pa.RecordBatch.from_arrays([*columns, pa.array(views)], schema=SCHEMA)

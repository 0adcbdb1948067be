"""Traces in memory (NumPy) and on disk (Arrow in Parquet).

A trace is its events and two dictionaries: the scenario that was run and the metrics that were measured (MODELS §9).
Checkers read nothing else.

| in memory                             | on disk                                           |
|---------------------------------------|---------------------------------------------------|
| one structured array of `EVENT_DTYPE` | Parquet row groups of `SCHEMA`                    |
| `event` and `layer` are codes         | `event` and `layer` are names, dictionary encoded |
| `scenario`, `metrics`                 | JSON under the file's metadata key `cubecast`     |

Invariants: a dictionary index equals the code; a file at its final path is complete; what `read_trace` returns has no
missing value and no unknown name. Format 2 added the events of membership; files of format 1 are still readable.

PyArrow is loaded when a file or a table is requested, so that a live member that only writes rows does not load it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from cubecast.errors import LocalProtocolError
from cubecast.extras import named
from cubecast.trace.schema import EVENT_DTYPE, NAMES, Events

if TYPE_CHECKING:
    import pyarrow as pa

    SCHEMA: pa.Schema

METADATA_KEY = b"cubecast"
FORMAT = 2
_FORMATS_READ = (1, FORMAT)
ROW_GROUP_ROWS = 1 << 19  # 32 MiB in memory, a good size for one Spark task or one DuckDB thread


def __getattr__(name: str) -> Any:
    """Return `SCHEMA`, the Arrow schema of a trace; it is built on first use."""
    if name == "SCHEMA":
        return _schema()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    names = pa.dictionary(pa.int8(), pa.string())
    types = {column: pa.from_numpy_dtype(EVENT_DTYPE[column]) for column in EVENT_DTYPE.names or ()}
    types |= dict.fromkeys(NAMES, names)
    return pa.schema([pa.field(column, types[column], nullable=False) for column in EVENT_DTYPE.names or ()])


def to_table(events: Events) -> pa.Table:
    """Turn a structured array into an Arrow table of `SCHEMA`."""
    import pyarrow as pa

    if events.dtype != EVENT_DTYPE:
        raise LocalProtocolError(f"a trace chunk has dtype {events.dtype}; use cubecast.trace.schema.EVENT_DTYPE")
    schema = _schema()
    return pa.table([_to_arrow(column, events[column]) for column in schema.names], schema=schema)


def _to_arrow(column: str, values: npt.NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    values = np.ascontiguousarray(values)
    if column not in NAMES:
        return pa.array(values)
    names = NAMES[column]
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < len(names):
        bad = int(values.min()) if values.min() < 0 else int(values.max())
        raise LocalProtocolError(f"{column} code {bad} in a trace chunk is not one of 0…{len(names) - 1}")
    return pa.DictionaryArray.from_arrays(pa.array(values), pa.array(names))


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """The events of one run in execution order, its scenario, and its metrics."""

    events: Events
    """One structured array of `EVENT_DTYPE`."""
    scenario: dict[str, Any]
    metrics: dict[str, Any]

    def has(self, kind: int) -> bool:
        """Is there an event of this kind?"""
        return bool((self.events["event"] == kind).any())

    def parts(self) -> Iterator[tuple[int, Events]]:
        """Yield the number of the first row of each part and its events: all of them are one part."""
        yield 0, self.events

    def events_at(self, rows: npt.NDArray[np.int64]) -> Events:
        """Return the events of some rows."""
        found: Events = self.events[rows]
        return found

    def whole(self) -> Self:
        """Return the trace in memory."""
        return self

    @cached_property
    def table(self) -> pa.Table:
        """Return the events as one Arrow table of `SCHEMA`."""
        return to_table(self.events)


class TraceWriter:
    """Write a trace file chunk by chunk; the file appears at `path` when `finish` succeeds, or not at all.

    The rows go to a hidden file beside `path`, so that the last step is a rename inside one file system.
    """

    def __init__(self, path: str | Path, scenario: Mapping[str, Any]) -> None:
        """Open the hidden file; `scenario` is stored with the trace and must be plain JSON data."""
        with named("a trace file"):
            import pyarrow.parquet as pq

        self.path = Path(path)
        self._scenario = json.loads(_to_json(scenario))
        self._part = self.path.with_name(f".{self.path.name}.{os.getpid()}.{id(self):x}.part")
        self._buffer = np.empty(ROW_GROUP_ROWS, EVENT_DTYPE)
        self._filled = 0
        self._finished = False
        self._sink: BinaryIO | None = None
        try:
            self._sink = self._part.open("xb")
        except OSError as error:
            raise self._cannot_write(error) from error
        self._parquet = pq.ParquetWriter(self._sink, _schema(), compression="zstd", write_page_checksum=True)

    def __enter__(self) -> Self:
        """Enter the block at whose end the trace is complete or removed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove what was written unless `finish` succeeded."""
        if self._finished:
            return
        self._discard()
        if kind is None:
            raise LocalProtocolError(f"trace {self.path} was not kept: call finish(metrics) before the block ends")

    def append(self, chunk: Events) -> None:
        """Add rows; the chunk is copied, so the caller may use its memory again."""
        if self._sink is None:
            raise LocalProtocolError(f"trace {self.path} is closed: append before finish, inside the with block")
        if chunk.dtype != EVENT_DTYPE:
            raise LocalProtocolError(f"a trace chunk has dtype {chunk.dtype}; use cubecast.trace.schema.EVENT_DTYPE")
        start = 0
        while start < len(chunk):
            taken = min(len(chunk) - start, ROW_GROUP_ROWS - self._filled)
            self._buffer[self._filled : self._filled + taken] = chunk[start : start + taken]
            self._filled += taken
            start += taken
            if self._filled == ROW_GROUP_ROWS:
                self._flush()

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Store the metrics, complete the file and move it to its path."""
        import pyarrow as pa

        if self._sink is None:
            raise LocalProtocolError(f"trace {self.path} is closed: finish it once, inside the with block")
        metadata = _to_json({"format": FORMAT, "scenario": self._scenario, "metrics": metrics})
        self._flush()
        try:
            self._parquet.add_key_value_metadata({METADATA_KEY: metadata.encode()})
            self._parquet.close()
            self._sink.flush()
            os.fsync(self._sink.fileno())  # a rename may reach the disk before the data it names
            self._sink.close()
            self._part.replace(self.path)
        except (OSError, pa.ArrowException) as error:
            self._discard()
            raise self._cannot_write(error) from error
        self._sink = None
        self._finished = True

    def _flush(self) -> None:
        import pyarrow as pa

        if self._filled == 0:
            return
        try:
            self._parquet.write_table(to_table(self._buffer[: self._filled]))
        except (OSError, pa.ArrowException) as error:
            self._discard()
            raise self._cannot_write(error) from error
        self._filled = 0

    def _discard(self) -> None:
        import pyarrow as pa

        if self._sink is None:
            return
        sink, self._sink = self._sink, None
        # Bytes that cannot be flushed belong to the file that is removed here.
        with suppress(OSError, pa.ArrowException):
            self._parquet.close()
        with suppress(OSError):
            sink.close()
        self._part.unlink(missing_ok=True)

    def _cannot_write(self, error: Exception) -> LocalProtocolError:
        return LocalProtocolError(f"cannot write trace {self.path}: {_reason(error)}; choose another path")


def read_trace(path: str | Path, file: BinaryIO | None = None) -> Trace:
    """Read a complete trace file, from an open `file` if given; the error of an unreadable file is one line."""
    with closing(StoredTrace(path, file)) as stored:
        return stored.whole()


class StoredTrace:
    """A trace file that is read row group by row group; its memory is that of one row group."""

    def __init__(self, path: str | Path, file: BinaryIO | None = None) -> None:
        """Read the head of the file; the error of a file that is not a trace is one line."""
        with named("a trace file"):
            import pyarrow.parquet as pq

        self.path = path
        with _one_line(path):
            self._parquet = pq.ParquetFile(path if file is None else file, page_checksum_verification=True)
            described = _described(path, self._parquet.metadata.metadata or {})
            _require_schema(path, self._parquet.schema_arrow)
        self.scenario: dict[str, Any] = described["scenario"]
        self.metrics: dict[str, Any] = described["metrics"]
        metadata = self._parquet.metadata
        lengths = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        """The number of the first row of each row group, followed by the number of all rows."""

    def close(self) -> None:
        """Close the file."""
        self._parquet.close()

    def parts(self) -> Iterator[tuple[int, Events]]:
        """Yield the number of the first row of each row group, and its events; the next events reuse their memory."""
        buffer = np.empty(int(np.diff(self.starts).max(initial=0)), EVENT_DTYPE)
        for group in range(len(self.starts) - 1):
            yield int(self.starts[group]), self._read(group, buffer)

    def part(self, group: int) -> Events:
        """Return the events of one row group."""
        return self._read(group, np.empty(int(self.starts[group + 1] - self.starts[group]), EVENT_DTYPE))

    def events_at(self, rows: npt.NDArray[np.int64]) -> Events:
        """Return the events of some rows; each row group that holds any is read once."""
        found = np.empty(len(rows), EVENT_DTYPE)
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        for group in np.unique(groups).tolist():
            inside = groups == group
            found[inside] = self.part(group)[rows[inside] - self.starts[group]]
        return found

    def whole(self) -> Trace:
        """Read all rows."""
        events = np.empty(int(self.starts[-1]), EVENT_DTYPE)
        for group in range(len(self.starts) - 1):
            self._read(group, events[self.starts[group] :])
        return Trace(events=events, scenario=self.scenario, metrics=self.metrics)

    def _read(self, group: int, into: Events) -> Events:
        """Fill the beginning of `into` with one row group."""
        events = into[: self.starts[group + 1] - self.starts[group]]
        with _one_line(self.path):
            _fill(self.path, events, self._parquet.read_row_group(group))
        return events


@contextmanager
def _one_line(path: str | Path) -> Iterator[None]:
    """Turn a failed read of the file into an error of one line."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        raise LocalProtocolError(f"{path} is not a whole Parquet file ({_reason(error)}); write it again") from error
    except (OSError, pa.ArrowException) as error:
        raise LocalProtocolError(f"cannot read trace {path}: {_reason(error)}") from error


def _described(path: str | Path, metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Read the scenario and the metrics out of the file's metadata."""
    if METADATA_KEY not in metadata:
        raise LocalProtocolError(f"{path} is a Parquet file but not a cubecast trace: it has no 'cubecast' metadata")
    try:
        described = json.loads(metadata[METADATA_KEY])
    except ValueError as error:
        raise LocalProtocolError(f"{path} has unreadable 'cubecast' metadata ({_reason(error)})") from error
    if not isinstance(described, dict) or described.get("format") not in _FORMATS_READ:
        known = " or ".join(map(str, _FORMATS_READ))
        raise LocalProtocolError(f"{path} is not a cubecast trace of format {known}; write it again with this version")
    for key in ("scenario", "metrics"):
        if not isinstance(described.get(key), dict):
            raise LocalProtocolError(f"{path} has no '{key}' in its 'cubecast' metadata; write it again")
    return described


def _require_schema(path: str | Path, found: pa.Schema) -> None:
    schema = _schema()
    for field in schema:
        index = found.get_field_index(field.name)
        if index < 0:
            raise LocalProtocolError(f"{path} lacks the trace column '{field.name}'")
        kind = found.field(index).type
        # Parquet keeps no index type, and engines that rewrite a trace store plain strings: only the values matter.
        same = _is_text(kind) if field.name in NAMES else kind == field.type
        if not same:
            raise LocalProtocolError(f"column '{field.name}' of {path} is {kind}, but a trace has {field.type}")
    for name in found.names:
        if name not in schema.names:
            raise LocalProtocolError(f"{path} has a column '{name}' that no trace has")


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))


def _fill(path: str | Path, events: Events, rows: pa.Table) -> None:
    """Copy one row group into the structured array."""
    for column in _schema().names:
        values = rows.column(column)
        if values.null_count:
            raise LocalProtocolError(f"column '{column}' of {path} has {values.null_count} missing values")
        start = 0
        for chunk in values.chunks:
            events[column][start : start + len(chunk)] = _to_numpy(path, column, chunk)
            start += len(chunk)


def _to_numpy(path: str | Path, column: str, chunk: pa.Array) -> npt.NDArray[Any]:
    import pyarrow as pa

    if column not in NAMES:
        return np.asarray(chunk.to_numpy())
    if not pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_encode()
    names = chunk.dictionary.to_pylist()
    known = NAMES[column]
    # A dictionary written elsewhere may hold names in another order, and names that no row uses.
    codes = np.array([known.index(name) if name in known else -1 for name in names], np.int8)
    found: npt.NDArray[np.int8] = codes[chunk.indices.to_numpy()]
    if found.size and found.min() < 0:
        unknown = names[int(chunk.indices.to_numpy()[int(np.argmin(found))])]
        raise LocalProtocolError(f"column '{column}' of {path} holds {unknown!r}, not one of {', '.join(known)}")
    return found


def _to_json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(_plain(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"the scenario or the metrics of a trace are not JSON data: {error}") from error


def _plain(value: Any) -> Any:
    """Turn NumPy values into Python's, and NaN into null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def _reason(error: Exception) -> str:
    """Return the first line of an error: some libraries write paragraphs."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(". ")

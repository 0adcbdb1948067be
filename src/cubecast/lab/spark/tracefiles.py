"""Trace files as Spark tables: one row per event, with its file and row number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from cubecast.errors import LocalProtocolError
from cubecast.lab.remote import AnyPath, path_of, source
from cubecast.trace.files import METADATA_KEY
from cubecast.trace.schema import EVENT_DTYPE, NAMES

_SPARK_TYPES = {"|i1": "tinyint", "<i2": "smallint", "<i4": "int", "<i8": "bigint"}


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """A trace on disk and its metadata."""

    path: AnyPath
    scenario: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    row_groups: int = 0
    error: str | None = None
    """Why it cannot be read; the other fields are unknown then."""

    @property
    def name(self) -> str:
        return str(self.path.resolve())


def find_traces(place: str | AnyPath) -> list[TraceFile]:
    """The trace of a file, or those of a folder, each with the scenario of its metadata; a damaged one has an error."""
    folder = path_of(place)
    paths: list[AnyPath] = sorted(folder.glob("*.parquet"), key=str) if folder.is_dir() else [folder]
    if not paths:
        raise LocalProtocolError(f"{folder}: no traces in this folder; give a folder of .parquet files")
    return [_head(path) for path in paths]


def _head(path: AnyPath) -> TraceFile:
    try:
        metadata = pq.read_metadata(source(path))
        found = json.loads((metadata.metadata or {})[METADATA_KEY])
        scenario, metrics = dict(found["scenario"]), dict(found["metrics"])
        int(scenario["members"])
    except FileNotFoundError as error:
        raise LocalProtocolError(f"{path}: no such trace") from error
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return TraceFile(path=path, error=f"it is not a trace of cubecast that can be read: {reason}")
    return TraceFile(
        path=path,
        scenario=scenario,
        metrics=metrics,
        events=metadata.num_rows,
        row_groups=metadata.num_row_groups,
    )


def read_events(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """All rows of all traces, with the name of the trace and the row in it."""
    if not all(isinstance(trace.path, Path) for trace in traces):
        return _read_by_arrow(spark, traces)
    return spark.read.parquet(*(trace.name for trace in traces)).select(
        # An address such as file:/a%20b, or file:///a%20b; a plus sign in it is a plus sign.
        expr("url_decode(replace(regexp_replace(_metadata.file_path, '^file:/+', '/'), '+', '%2B'))").alias("trace"),
        col("_metadata.row_index").alias("row"),
        "*",
    )


def _read_by_arrow(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """Read events from an object store: each row group is a task."""
    places = [(trace.name, part) for trace in traces for part in range(trace.row_groups)]
    types = {
        name: "string" if name in NAMES else _SPARK_TYPES[EVENT_DTYPE[name].str] for name in EVENT_DTYPE.names or ()
    }
    ddl = ", ".join(["trace string", "row bigint", *(f"{name} {kind}" for name, kind in types.items())])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                name, part = places[number]
                yield from _row_group(name, part, list(types)).to_batches()

    return spark.range(0, len(places), 1, max(len(places), 1)).mapInArrow(read, ddl)


def _row_group(name: str, part: int, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(source(path_of(name))) as file:
        before = sum(file.metadata.row_group(group).num_rows for group in range(part))
        table = file.read_row_group(part, columns=columns)
    texts = {one: table.column(one).cast(pa.string()) for one in NAMES}
    found = {one: texts[one] if one in texts else table.column(one) for one in columns}
    rows = pa.array(range(before, before + table.num_rows), pa.int64())
    return pa.table({"trace": pa.array([name] * table.num_rows, pa.string()), "row": rows, **found})

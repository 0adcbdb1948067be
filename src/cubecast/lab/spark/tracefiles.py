"""Trace files as Spark tables: one row an event, with the file and the row in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from cubecast.errors import LocalProtocolError
from cubecast.lab.store import require_folder
from cubecast.trace.files import METADATA_KEY


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """A trace on disk and what its head says."""

    path: Path
    scenario: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    row_groups: int = 0
    error: str | None = None
    """Why it cannot be read; nothing else is known of it then."""

    @property
    def name(self) -> str:
        return str(self.path.resolve())


def find_traces(folder: Path) -> list[TraceFile]:
    """The trace of a file, or those of a folder, by the scenario in the metadata of each; a damaged one says so."""
    require_folder(folder, "TRACES")
    paths = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
    if not paths:
        raise LocalProtocolError(f"{folder}: no traces there; name a folder of .parquet files")
    return [_head(path) for path in paths]


def _head(path: Path) -> TraceFile:
    try:
        metadata = pq.read_metadata(path)
        found = json.loads((metadata.metadata or {})[METADATA_KEY])
        scenario, metrics = dict(found["scenario"]), dict(found["metrics"])
        int(scenario["members"])
    except FileNotFoundError as error:
        raise LocalProtocolError(f"{path}: there is no such trace") from error
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
    return spark.read.parquet(*(trace.name for trace in traces)).select(
        # An address such as file:/a%20b, or file:///a%20b; a plus sign in it is a plus sign.
        expr("url_decode(replace(regexp_replace(_metadata.file_path, '^file:/+', '/'), '+', '%2B'))").alias("trace"),
        col("_metadata.row_index").alias("row"),
        "*",
    )

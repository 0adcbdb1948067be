"""A folder of live traces as a streaming source of Spark: what was appended since the last look.

Live members append rows to files of their own (`live.recorder`), so the place reached is a number of bytes for each
file. A row that is half written is left for the next look. Finished traces (Parquet) that appear in the folder are
taken too, by rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from cubecast.trace import EVENT_DTYPE, EVENT_NAMES

COLUMNS_DDL = "time_ns bigint, event string, member int, sender int, sequence int, round int"
_NUMBERS = ("member", "sender", "sequence", "round")
SCHEMA = pa.schema(
    [
        pa.field("time_ns", pa.int64()),
        pa.field("event", pa.string()),
        *(pa.field(name, pa.int32()) for name in _NUMBERS),
    ]
)


class Part(InputPartition):
    """What one task reads: a file from one place to another."""

    def __init__(self, path: str, start: int, end: int) -> None:
        self.path, self.start, self.end = path, start, end


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
        self.folder = folder

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 (Spark's name)
        return {"places": "{}"}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:  # noqa: N802 (Spark's name)
        del start, limit
        return {"places": json.dumps(places_in(self.folder), sort_keys=True)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        before, after = json.loads(start["places"]), json.loads(end["places"])
        return [
            Part(str(self.folder / name), before.get(name, 0), place)
            for name, place in after.items()
            if place > before.get(name, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        yield from read_part(Path(partition.path), partition.start, partition.end).to_batches()


def places_in(folder: Path) -> dict[str, int]:
    """How far each file reaches: whole rows of a live file, in bytes; rows of a Parquet file."""
    places = {}
    for path in sorted(folder.glob("*.rows")):
        places[path.name] = path.stat().st_size // EVENT_DTYPE.itemsize * EVENT_DTYPE.itemsize
    for path in sorted(folder.glob("*.parquet")):
        places[path.name] = pq.read_metadata(path).num_rows
    return places


def read_part(path: Path, start: int, end: int) -> pa.Table:
    """The rows of a file from one place to another."""
    if path.suffix == ".parquet":
        return pq.read_table(path, columns=SCHEMA.names).slice(start, end - start).cast(SCHEMA)
    with path.open("rb") as file:
        file.seek(start)
        events = np.frombuffer(file.read(end - start), EVENT_DTYPE)
    names = pa.array(EVENT_NAMES).take(pa.array(events["event"].astype(np.int32)))
    numbers = [pa.array(np.ascontiguousarray(events[name])) for name in _NUMBERS]
    return pa.table([pa.array(np.ascontiguousarray(events["time_ns"])), names, *numbers], schema=SCHEMA)

"""Tables of Spark in Parquet files: in a folder by Spark itself, in an object store by Arrow in the workers.

A worker names a file in a store after its partition, so a repeated task writes the same file again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from cubecast.lab.remote import AnyPath, RemotePath, path_of, source
from cubecast.lab.spark.failures import reported

Batches = Iterator[pa.RecordBatch]
WRITTEN_DDL = "rows bigint"
FILES_PER_TASK = 16


def read_parquet(spark: SparkSession, path: AnyPath, ddl: str | None = None) -> DataFrame:
    """The table of a file, or of the Parquet files of a folder; with `ddl`, these columns of it."""
    if isinstance(path, Path):
        reader = spark.read.option("pathGlobFilter", "*.parquet")
        return (reader if ddl is None else reader.schema(ddl)).parquet(str(path))
    files = [path] if path.name.endswith(".parquet") else list(path.glob("*.parquet"))
    if ddl is None:
        ddl = _ddl_of(files[0])
    names = [str(one) for one in files]
    schema = spark.createDataFrame([], ddl).schema
    arrow = to_arrow_schema(schema)

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                with reported():
                    for name in names[task * FILES_PER_TASK : (task + 1) * FILES_PER_TASK]:
                        yield from _columns(name, arrow).to_batches()

    tasks = -(-len(names) // FILES_PER_TASK)
    return spark.range(0, tasks, 1, max(tasks, 1)).mapInArrow(read, schema)


def _columns(name: str, schema: pa.Schema) -> pa.Table:
    """These columns of a file; a missing one is empty."""
    with pq.ParquetFile(source(path_of(name))) as file:
        there = [one for one in schema.names if one in file.schema_arrow.names]
        table = file.read(columns=there)
    for one in schema:
        if one.name not in there:
            table = table.append_column(one.name, pa.nulls(table.num_rows, one.type))
    return table.select(schema.names).cast(schema)


def _ddl_of(path: RemotePath) -> str:
    with pq.ParquetFile(source(path)) as file:
        schema = from_arrow_schema(file.schema_arrow)
    return ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in schema)


def write_by_study(frame: DataFrame, folder: AnyPath) -> None:
    """Append the rows to a table with a folder `study=…` for each study."""
    if isinstance(folder, Path):
        frame.write.mode("append").partitionBy("study").parquet(str(folder))
        return
    name = uuid.uuid4().hex

    def write(batches: Batches) -> Batches:
        pieces = list(batches)
        with reported():
            table = pa.Table.from_batches(pieces) if pieces else pa.table({"study": pa.array([], pa.string())})
            for study in sorted(set(table.column("study").to_pylist())):
                own = table.filter(pc.equal(table.column("study"), study)).drop_columns(["study"])
                put_table(own, folder / f"study={study}" / f"part-{_partition():05d}-{name}.parquet")
        yield _written(table.num_rows)

    frame.mapInArrow(write, WRITTEN_DDL).collect()


def write_tasks(frame: DataFrame, folder: AnyPath, schema: pa.Schema) -> None:
    """Append the rows of each partition as one file, which is complete or absent."""
    if isinstance(folder, Path):
        frame.write.mode("append").parquet(str(folder))
        return
    name = uuid.uuid4().hex

    def write(batches: Batches) -> Batches:
        pieces = list(batches)
        with reported():
            table = pa.Table.from_batches(pieces).cast(schema)
            put_table(table, folder / f"part-{_partition():05d}-{name}.parquet")
        yield _written(table.num_rows)

    frame.mapInArrow(write, WRITTEN_DDL).collect()


def put_table(table: pa.Table, path: RemotePath) -> None:
    """Write a table into a store with one request."""
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    path.write_bytes(content.getvalue())


def _written(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _partition() -> int:
    """The number of the partition that this worker works on."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()

"""The runs of studies on Spark: results in Parquet, task by task.

*Commit.* Every task writes one file, which Spark's committer (algorithm 2) renames into `runs/` when the task ends.
What was renamed is complete and stays, whatever happens to the study; a task that is tried again gives the same rows.

*Placement.* `spark.range(k)` in k partitions gives exactly one task a partition, started in order, longest first; a
shuffle would skew or merge them. The rows of the tasks are a table on disk (`lab/task_file.py`).

*Workers* import the kernel themselves; nothing compiled is shipped. The driver warms the compiler's cache beforehand.
Code of the user's own is shipped as sources (`lab/spark.own_code.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import Accumulator, Broadcast
from pyspark.sql import DataFrame, SparkSession

from cubecast.lab.batch import keep_compiled, run_rows
from cubecast.lab.packing import pack
from cubecast.lab.runs import Run
from cubecast.lab.schema import RUNS_DDL
from cubecast.lab.spark.failures import reported
from cubecast.lab.spark.own_code import ShippedFile, load_shipped, shipped_files
from cubecast.lab.store import Store
from cubecast.lab.task_file import TaskFile, read_task, task_file

POLL_SECONDS = 0.2

Progress = Callable[[int, int], None]
"""Called with the runs done and the runs in all."""


def execute(spark: SparkSession, store: Store, runs: list[Run], progress: Progress) -> None:
    """Do the runs; results appear in the store task by task. Ctrl-C cancels the rest and keeps what is done."""
    context = spark.sparkContext
    tasks = pack(runs, context.defaultParallelism)
    code = context.broadcast(shipped_files())
    done = context.accumulator(0)
    with task_file(store, tasks) as pending:
        frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_worker(pending, code, done), RUNS_DDL)
        _write(frame, store, lambda: progress(done.value, len(runs)))


def _write(frame: DataFrame, store: Store, progress: Callable[[], None]) -> None:
    """Write the results in a thread of their own, so that this one can show progress and hear Ctrl-C."""
    failures: list[Exception] = []

    def write() -> None:
        try:
            frame.write.mode("append").parquet(str(store.runs))
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=write, name="cubecast-study", daemon=True)
    writer.start()
    try:
        while writer.is_alive():
            writer.join(POLL_SECONDS)
            progress()
    except KeyboardInterrupt:
        frame.sparkSession.sparkContext.cancelAllJobs()
        writer.join(30)
        raise
    if failures:
        raise failures[0]


def _worker(
    tasks: TaskFile, code: Broadcast[list[ShippedFile]], done: Accumulator[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker does with the number of a task."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported():
            load_shipped(code.value)
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    rows = read_task(tasks, number)
                    yield run_rows(rows)
                    done.add(len(rows))
        keep_compiled()

    return work


def versions(spark: SparkSession) -> dict[str, str]:
    """Of Spark and Java, for the report."""
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
    return {"Spark": spark.version, "Java": str(java), "master": str(spark.sparkContext.master)}

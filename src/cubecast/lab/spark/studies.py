"""The runs of studies on Spark: results in Parquet, task by task.

*Commit.* Every task writes one file, which Spark's committer (algorithm 2) renames into `runs/` when the task ends.
A renamed file is complete and stays, whatever happens to the study; a repeated task gives the same rows. In an object
store the worker writes the file itself (`lab/spark/parquet.py`).

*Placement.* `spark.range(k)` in k partitions gives exactly one task per partition, started in order, longest first; a
shuffle would skew or merge them. The rows of the tasks are a table on disk (`lab/task_file.py`).

*Workers* import the kernel themselves; nothing compiled is shipped. The driver warms the compiler's cache beforehand.
Code of the user's own is shipped as sources (`lab/spark.own_code.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cubecast.jit.garbage import exempt_loaded
from cubecast.lab.batch import run_rows
from cubecast.lab.packing import pack
from cubecast.lab.runs import Run
from cubecast.lab.schema import RUNS, RUNS_DDL
from cubecast.lab.spark.cluster import cancel, parallelism
from cubecast.lab.spark.failures import reported
from cubecast.lab.spark.own_code import ShippedFile, load_shipped, shipped_files
from cubecast.lab.spark.parquet import write_tasks
from cubecast.lab.store import Store, result_files
from cubecast.lab.task_file import TaskFile, read_task, task_file

POLL_SECONDS = 0.2
COUNT_SECONDS = 0.5

Progress = Callable[[int, int], None]
"""Called with the number of finished runs and the number of all runs."""


def execute(spark: SparkSession, store: Store, runs: list[Run], progress: Progress) -> None:
    """Execute the runs; results appear in the store per task. Ctrl-C cancels the rest and keeps finished results."""
    tasks = pack(runs, parallelism(spark))
    counted = _Counted(store, [len(task) for task in tasks])
    with task_file(store, tasks) as pending:
        frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_worker(pending, shipped_files()), RUNS_DDL)
        _write(frame, store, lambda: progress(counted.done(), len(runs)))


class _Counted:
    """Counts finished runs by the files of their tasks."""

    def __init__(self, store: Store, sizes: list[int]) -> None:
        self._store, self._sizes = store, sizes
        self._before = {path.name for path in result_files(store)}
        self._next = 0.0
        self._done = 0

    def done(self) -> int:
        """The number of finished runs; the folder is read only from time to time."""
        if time.monotonic() >= self._next:
            began = time.monotonic()
            new = {path.name for path in result_files(self._store)} - self._before
            self._done = sum(self._sizes[number] for number in {int(name.split("-")[1]) for name in new})
            # Listing a folder of many files, or a distant store, takes time.
            self._next = time.monotonic() + max(COUNT_SECONDS, 20 * (time.monotonic() - began))
        return self._done


def _write(frame: DataFrame, store: Store, progress: Callable[[], None]) -> None:
    """Write the results in a separate thread, so that this one can show progress and receive Ctrl-C."""
    failures: list[Exception] = []

    def write() -> None:
        try:
            write_tasks(frame, store.runs, RUNS)
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=write, name="cubecast-study", daemon=True)
    writer.start()
    try:
        while writer.is_alive():
            writer.join(POLL_SECONDS)
            progress()
    except KeyboardInterrupt:
        cancel(frame.sparkSession)
        writer.join(30)
        raise
    if failures:
        raise failures[0]


def _worker(tasks: TaskFile, code: list[ShippedFile]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a worker, which gets the number of a task."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported():
            load_shipped(code)
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield run_rows(read_task(tasks, number))
        exempt_loaded()  # Spark's workers collect garbage after every task

    return work

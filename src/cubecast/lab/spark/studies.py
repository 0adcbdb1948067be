"""Studies on Spark: runs on a cluster, results in Parquet, statistics in SQL.

*Commit.* Every task writes one file, which Spark's committer (algorithm 2) renames into `runs/` when the task ends.
What was renamed is complete and stays, whatever happens to the study; a task that is tried again gives the same rows.

*Placement.* `spark.range(k)` in k partitions gives exactly one task a partition, started in order, longest first; a
shuffle would skew or merge them. The rows of all tasks go to every worker once, by broadcast.

*Workers* import the kernel themselves; nothing compiled is shipped. The driver warms the compiler's cache beforehand.
Protocols of the user's own are shipped as sources (`lab/spark/protocol_files.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator, Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import explode

from cubecast.errors import LocalProtocolError
from cubecast.lab.batch import Row, keep_compiled, run_rows
from cubecast.lab.packing import pack
from cubecast.lab.runs import Run, canonical
from cubecast.lab.schema import RUNS, RUNS_DDL
from cubecast.lab.spark.protocol_files import ShippedProtocol, load_shipped, shipped_protocols
from cubecast.lab.spark.session import first_line
from cubecast.lab.stats import student_table
from cubecast.lab.store import Store

POLL_SECONDS = 0.2

Progress = Callable[[int, int], None]
"""Called with the runs done and the runs in all."""


def read_runs(spark: SparkSession, store: Store) -> DataFrame:
    """All results of the store."""
    if not any(store.runs.glob("*.parquet")):
        return spark.createDataFrame(RUNS.empty_table(), RUNS_DDL)
    return spark.read.schema(RUNS_DDL).option("pathGlobFilter", "*.parquet").parquet(str(store.runs))


def runs_table(runs: list[Run]) -> pa.Table:
    """One row a run of the plans: what it is, which point of which study it belongs to, and the code it needs."""
    return pa.table(
        {
            "study": [run.study for run in runs],
            "run_id": [run.id for run in runs],
            "code": [run.code for run in runs],
            "point": [canonical(run.point) for run in runs],
            "seed": pa.array([run.seed for run in runs], pa.int64()),
        }
    )


def execute(spark: SparkSession, store: Store, runs: list[Run], progress: Progress) -> None:
    """Do the runs; results appear in the store task by task. Ctrl-C cancels the rest and keeps what is done."""
    context = spark.sparkContext
    tasks = pack(runs, context.defaultParallelism)
    content = context.broadcast([[_pending_row(run) for run in task] for task in tasks])
    protocols = context.broadcast(shipped_protocols())
    done = context.accumulator(0)
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_worker(content, protocols, done), RUNS_DDL)
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
            progress(done.value, len(runs))
    except KeyboardInterrupt:
        context.cancelAllJobs()
        writer.join(30)
        raise
    if failures:
        raise failures[0]


@contextmanager
def one_line(store: Store) -> Iterator[None]:
    """Whatever Spark has to say of a failure, at length, as one line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise LocalProtocolError(f"the study stopped: {_why(error)}; what was done is kept in {store.runs}") from error


def _pending_row(run: Run) -> Row:
    return {
        "run_id": run.id,
        "code": run.code,
        "experiment": run.experiment,
        "settings": canonical(run.settings),
    }


def _worker(
    tasks: Broadcast[list[list[Row]]], protocols: Broadcast[list[ShippedProtocol]], done: Accumulator[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker does with the number of a task."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_shipped(protocols.value)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield run_rows(tasks.value[number])
                done.add(len(tasks.value[number]))
        keep_compiled()

    return work


def measured(spark: SparkSession, store: Store, runs: list[Run]) -> DataFrame:
    """One row a measured value: study, point, seed, metric, value. Results of other code or other plans stay out."""
    wanted = spark.createDataFrame(runs_table(runs))
    results = read_runs(spark, store).where("status = 'ok'").dropDuplicates(["run_id", "code"])
    joined = wanted.join(results.select("run_id", "code", "metrics"), ["run_id", "code"])
    return joined.select("study", "point", "seed", explode("metrics").alias("metric", "value"))


def summarise(spark: SparkSession, values: DataFrame) -> DataFrame:
    """Mean, standard deviation, 95 % interval (Student), smallest, largest and n of every metric at every point."""
    values.createOrReplaceTempView("measured")
    spark.createDataFrame(student_table()).createOrReplaceTempView("student")
    return spark.sql(
        """
        SELECT study, point, metric, n, mean, sd,
               mean - t * sd / sqrt(n) AS ci_low, mean + t * sd / sqrt(n) AS ci_high, smallest, largest
        FROM (SELECT study, point, metric, count(*) AS n, avg(value) AS mean, stddev_samp(value) AS sd,
                     min(value) AS smallest, max(value) AS largest
              FROM measured GROUP BY study, point, metric)
        LEFT JOIN student USING (n)
        """
    )


def versions(spark: SparkSession) -> dict[str, str]:
    """Of Spark and Java, for the report."""
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
    return {"Spark": spark.version, "Java": str(java), "master": str(spark.sparkContext.master)}


def collect(frame: DataFrame) -> pa.Table:
    """The rows of a small table, in the driver."""
    return frame.toArrow()


def _why(error: Exception) -> str:
    text = str(error)
    for sign, told in _SIGNS.items():
        if sign in text:
            return told
    return first_line(error)


_SIGNS = {
    "No space left on device": "the disk is full; free some space and run the study again",
    "Python worker exited unexpectedly": (
        "a worker died three times, most likely for lack of memory; use fewer cores (--master local[1]) or less members"
    ),
    "pyspark.daemon": "workers do not start, most likely for lack of memory; use fewer cores (--master local[1])",
    "OutOfMemoryError": "Spark ran out of memory; set CUBECAST_SPARK_MEMORY above 2g",
    "cancelled": "it was cancelled",
}

"""From results to findings on Spark: runs → values → summary → findings, each a table on disk.

| table | one row per | columns |
|---|---|---|
| `values` | measured number | study, point, seed, metric, value |
| `summary` | metric and point | study, point, metric, n, mean, sd, ci_low, ci_high, smallest, largest |
| `findings` | test of a claim and point | `lab.questions.FINDINGS` |
| `points` | point of a study | study, point, and a column per parameter |

All are partitioned by study. Only the metrics that a plan draws or tests are read from the results. A claim is answered
in parts (`lab.questions`), so that no worker needs the values of a whole study, and the driver needs none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, explode, expr, lit

from cubecast.lab.plan import Plan
from cubecast.lab.quantities import Point
from cubecast.lab.questions import FINDINGS_DDL, PARTS, Question, answer, correct, parts_of, questions_of
from cubecast.lab.remote import AnyPath, remove_tree, sink
from cubecast.lab.runs import Run, points_of
from cubecast.lab.schema import RUNS, RUNS_DDL
from cubecast.lab.spark.failures import reported
from cubecast.lab.spark.parquet import read_parquet, write_by_study
from cubecast.lab.stats import student_table
from cubecast.lab.store import ROWS_PREFIX, Store
from cubecast.lab.tables import parameter_column

ROWS_AT_ONCE = 100_000
WANTED = pa.schema(
    [
        pa.field("study", pa.string()),
        pa.field("run_id", pa.string()),
        pa.field("code", pa.string()),
        pa.field("point", pa.int32()),
        pa.field("seed", pa.int64()),
    ]
)
"""The runs of the plans: which point of which study a result belongs to, and the code it needs."""
VALUES_DDL = "point int, seed bigint, metric string, value double, study string"


def analyse(
    spark: SparkSession, store: Store, plans: Sequence[Plan], size: str, runs: Sequence[Run]
) -> dict[str, float]:
    """Replace the tables of these studies; return the CPU time of their runs by study."""
    _write_points(store, plans, size)
    with _on_disk(store, _wanted(runs), WANTED) as path:
        wanted = read_parquet(spark, path)
        _replace(measured(spark, store, wanted, plans), store, plans, "values")
        costs = _cpu_seconds(spark, store, wanted)
    values = _read_values(spark, store, plans)
    _replace(summarise(spark, values).repartition("study"), store, plans, "summary")
    points = {plan.id: points_of(plan, size) for plan in plans}
    questions = {plan.id: questions_of(plan, points[plan.id]) for plan in plans}
    parts = (row for plan in plans for row in parts_of(questions[plan.id], points[plan.id], plan.sizes[size].repeats))
    with _on_disk(store, parts, PARTS) as path:
        found = _answers(values, read_parquet(spark, path), points, questions)
        _replace(found.repartition("study"), store, plans, "findings")
    return costs


def summary_of(spark: SparkSession, store: Store, plans: Sequence[Plan], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The summary of these runs, without a table on disk."""
    with _on_disk(store, _wanted(runs), WANTED) as path:
        values = measured(spark, store, read_parquet(spark, path), plans)
        return [row.asDict() for row in summarise(spark, values).collect()]


def _cpu_seconds(spark: SparkSession, store: Store, wanted: DataFrame) -> dict[str, float]:
    """The CPU time by study; a run of two studies counts for both."""
    results = _read_results(spark, store).select("run_id", "code", "cpu_seconds").dropDuplicates(["run_id", "code"])
    found = wanted.join(results, ["run_id", "code"]).groupBy("study").agg({"cpu_seconds": "sum"}).collect()
    return {row[0]: float(row[1] or 0.0) for row in found}


def measured(spark: SparkSession, store: Store, wanted: DataFrame, plans: Sequence[Plan]) -> DataFrame:
    """One row per measured value, without results of other code or other plans and without unused metrics."""
    names = ", ".join(sorted({repr(metric) for plan in plans for metric in plan.measured})) or "NULL"
    # Filtered before anything is sorted: a run has some 30 metrics, and a plan uses two.
    metrics = expr(f"map_filter(metrics, (name, value) -> name IN ({names}))").alias("metrics")
    results = _read_results(spark, store).where("status = 'ok'").select("run_id", "code", metrics)
    joined = wanted.join(results.dropDuplicates(["run_id", "code"]), ["run_id", "code"])
    values = joined.select("study", "point", "seed", explode("metrics").alias("metric", "value"))
    values = values.where("abs(value) < double('infinity')")  # NaN is above infinity
    asked = pa.table(
        {
            "study": [plan.id for plan in plans for _ in plan.measured],
            "metric": [metric for plan in plans for metric in plan.measured],
        },
        schema=pa.schema([("study", pa.string()), ("metric", pa.string())]),
    )
    return values.join(broadcast(spark.createDataFrame(asked)), ["study", "metric"])


def _read_results(spark: SparkSession, store: Store) -> DataFrame:
    if not any(store.runs.glob("*.parquet")):
        return spark.createDataFrame(RUNS.empty_table(), RUNS_DDL)
    return read_parquet(spark, store.runs, RUNS_DDL)


def _read_values(spark: SparkSession, store: Store, plans: Sequence[Plan]) -> DataFrame:
    """The values of these studies, with the study from the name of their folder."""
    if isinstance(folder := store.table("values"), Path):
        return spark.read.schema(VALUES_DDL).parquet(str(folder)).where(_is_one_of(plans))
    ddl = VALUES_DDL.removesuffix(", study string")
    own = [
        read_parquet(spark, store.partition("values", plan.id), ddl).withColumn("study", lit(plan.id)) for plan in plans
    ]
    return reduce(DataFrame.unionByName, own)


def summarise(spark: SparkSession, values: DataFrame) -> DataFrame:
    """Mean, standard deviation, 95 % interval (Student), smallest, largest and n of every metric at every point."""
    values.createOrReplaceTempView("measured")
    broadcast(spark.createDataFrame(student_table())).createOrReplaceTempView("student")
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


def _answers(
    values: DataFrame,
    parts: DataFrame,
    points: dict[str, list[Point]],
    questions: dict[str, list[Question]],
) -> DataFrame:
    """The findings of all questions, per part; then corrected per claim and reading."""

    def work(table: pa.Table) -> pa.Table:
        study, number = table.column("study")[0].as_py(), table.column("question")[0].as_py()
        with reported():
            return answer(questions[study][number], points[study], table)

    def judge_points(table: pa.Table) -> pa.Table:
        study, number = table.column("study")[0].as_py(), table.column("question")[0].as_py()
        with reported():
            return correct(questions[study][number].claim, table)

    needed = values.join(parts, ["study", "point", "metric"])
    found = needed.groupBy("study", "question", "part").applyInArrow(work, FINDINGS_DDL)
    return found.groupBy("study", "claim", "reading").applyInArrow(judge_points, FINDINGS_DDL)


def _replace(frame: DataFrame, store: Store, plans: Sequence[Plan], name: str) -> None:
    """Write the partitions of these studies; those of other studies do not change."""
    for plan in plans:
        remove_tree(store.partition(name, plan.id))
    store.table(name).mkdir(parents=True, exist_ok=True)
    write_by_study(frame, store.table(name))


def _is_one_of(plans: Sequence[Plan]) -> str:
    return f"study IN ({', '.join(repr(plan.id) for plan in plans)})"


def _wanted(runs: Sequence[Run]) -> Iterator[dict[str, object]]:
    for run in runs:
        yield {"study": run.study, "run_id": run.id, "code": run.code, "point": run.number, "seed": run.seed}


def _write_points(store: Store, plans: Sequence[Plan], size: str) -> None:
    for plan in plans:
        folder = store.partition("points", plan.id)
        folder.mkdir(parents=True, exist_ok=True)
        points = points_of(plan, size)
        columns = {name: parameter_column([point[name] for point in points]) for name in points[0]}
        table = pa.table({"point": pa.array(range(len(points)), pa.int32()), **columns})
        with sink(folder / "points.parquet") as file:
            pq.write_table(table, file, compression="zstd")


@contextmanager
def _on_disk(store: Store, rows: Iterator[dict[str, object]], schema: pa.Schema) -> Iterator[AnyPath]:
    """Rows as a file that workers can read during the block; only a few of them are in memory at a time."""
    folder = store.root / f"{ROWS_PREFIX}{uuid.uuid4().hex}"
    path = folder / "rows.parquet"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with sink(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            batch: list[dict[str, object]] = []
            for row in rows:
                batch.append(row)
                if len(batch) == ROWS_AT_ONCE:
                    writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                    batch.clear()
            if batch:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
        yield path
    finally:
        remove_tree(folder)

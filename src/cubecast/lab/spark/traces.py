"""Check traces on Spark: the promises of `sim.checkers`, on any number of traces of any length.

| divided by | promises |
|---|---|
| trace and sender | no premature stability, stability never decreases, in-order delivery: each sender by itself |
| trace | the others (causal order, agreement, FIFO, rounds, counts): they compare senders with each other |

Each group is judged by the very checkers that judge a trace in one process, so the two agree by construction; what
Spark adds is the division. Crashes and recoveries concern every sender, and go to every group of their trace. An
offending event is named by its trace and its row in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, explode, expr

from cubecast.lab.spark.tracefiles import TraceFile, read_events
from cubecast.sim.checkers import in_order_delivery, premature_stability, stable_never_decreases
from cubecast.sim.checkers.registry import CHECKERS
from cubecast.sim.checkers.report import Checker
from cubecast.trace import EVENT_DTYPE, EVENT_NAMES, Trace, blank_events, read_trace

BY_SENDER: tuple[Checker, ...] = (premature_stability, stable_never_decreases, in_order_delivery)
BY_TRACE: tuple[Checker, ...] = tuple(checker for checker in CHECKERS if checker not in BY_SENDER)
VIOLATIONS_DDL = "trace string, checker string, message string, rows array<bigint>, time_ns bigint"
VIOLATIONS = pa.schema(
    [
        pa.field("trace", pa.string()),
        pa.field("checker", pa.string()),
        pa.field("message", pa.string()),
        pa.field("rows", pa.list_(pa.int64())),
        pa.field("time_ns", pa.int64()),
    ]
)
_ROW = re.compile(r"\brow (\d+)")
_COLUMNS = ("time_ns", "member", "peer", "sender", "sequence", "round")


def check_traces(spark: SparkSession, traces: list[TraceFile]) -> list[dict[str, Any]]:
    """All violations in all traces, by trace and row."""
    violations = by_sender(spark, traces).unionByName(by_trace(spark, traces))
    found = violations.toArrow().to_pylist()
    return sorted(found, key=lambda one: (one["trace"], one["checker"], one["rows"], one["message"]))


def by_sender(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """Judge each sender of each trace apart."""
    heads = _heads(spark, traces)
    events = read_events(spark, traces).select("trace", "row", "event", *_COLUMNS)
    own = events.where("event IN ('deliver', 'stable')")
    shared = events.where("event IN ('crash', 'recover')").join(broadcast(heads), "trace")
    shared = shared.withColumn("sender", explode(expr("sequence(0, senders - 1)"))).select(*own.columns)
    groups = own.unionByName(shared).join(broadcast(heads.select("trace", "scenario")), "trace")
    return groups.groupBy("trace", "sender").applyInArrow(_judge_sender, VIOLATIONS_DDL)


def _heads(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    rows = [
        {"trace": one.name, "senders": int(one.scenario["senders"]), "scenario": json.dumps(one.scenario)}
        for one in traces
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows))


def _judge_sender(table: pa.Table) -> pa.Table:
    table = table.sort_by("row")
    rows = table.column("row").to_numpy()
    events = _events(table)
    trace = Trace(events=events, scenario=json.loads(table.column("scenario")[0].as_py()), metrics={})
    return _violations(trace, table.column("trace")[0].as_py(), BY_SENDER, rows)


def _events(table: pa.Table) -> np.ndarray[Any, np.dtype[np.void]]:
    """Arrow columns as the structured array that checkers read."""
    events = blank_events(table.num_rows)
    codes = {name: code for code, name in enumerate(EVENT_NAMES)}
    names = table.column("event").combine_chunks().dictionary_encode()
    translation = np.array([codes[name] for name in names.dictionary.to_pylist()], EVENT_DTYPE["event"])
    events["event"] = translation[names.indices.to_numpy()]
    for column in _COLUMNS:
        events[column] = table.column(column).to_numpy()
    return events


def _violations(trace: Trace, name: str, checkers: Iterable[Checker], rows: Any = None) -> pa.Table:
    found = []
    for checker in checkers:
        if checker.not_promised(trace) is not None:
            continue
        for one in checker.check(trace):
            named = [int(row if rows is None else rows[row]) for row in one.rows]
            message = one.message if rows is None else _ROW.sub(lambda at: f"row {rows[int(at[1])]}", one.message)
            found.append(
                {
                    "trace": name,
                    "checker": one.checker,
                    "message": message,
                    "rows": named,
                    "time_ns": one.time_ns,
                }
            )
    return pa.Table.from_pylist(found, schema=VIOLATIONS)


def by_trace(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """Judge each trace as a whole, one a task, the largest first."""
    largest = sorted(traces, key=lambda one: -one.path.stat().st_size)
    table = pa.table({"place": range(len(largest)), "trace": [one.name for one in largest]})
    places = spark.range(0, len(largest), 1, len(largest)).withColumnRenamed("id", "place")
    frame = places.join(broadcast(spark.createDataFrame(table)), "place").select("trace")
    return frame.mapInArrow(_judge_traces, VIOLATIONS_DDL)


def _judge_traces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for name in batch.column("trace").to_pylist():
            yield from _violations(read_trace(Path(name)), name, BY_TRACE).to_batches()

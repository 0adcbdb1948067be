"""Check traces on Spark: the promises of `trace.checkers`, on any number of traces of any length.

| traces | divided by | promises |
|---|---|---|
| of one row group | trace, several to a task by their size | all |
| longer ones | trace and sender | no premature stability, stability never decreases, in-order delivery |
| | trace | the others (causal order, agreement, FIFO, rounds, counts, views): they compare senders with each other |

Each group is judged by the very checkers that judge a trace in one process, so the two agree by construction; what
Spark adds is the division. Checkers of the user's own judge a trace as a whole. Crashes, recoveries, restarts and views
concern every sender, and go to every group of their trace. An offending event is named by its trace and its row in it.
A trace that cannot be read is a row of its own, and the others are judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from cubecast.errors import LocalProtocolError
from cubecast.lab.packing import split
from cubecast.lab.remote import path_of, source
from cubecast.lab.spark.cluster import parallelism
from cubecast.lab.spark.own_code import load_shipped, shipped_files
from cubecast.lab.spark.tracefiles import TraceFile
from cubecast.trace.checkers import in_order_delivery, premature_stability, stable_never_decreases
from cubecast.trace.checkers.registry import all_checkers
from cubecast.trace.checkers.report import Checker
from cubecast.trace.files import Trace, read_trace
from cubecast.trace.schema import (
    CRASH,
    DELIVER,
    EVENT_DTYPE,
    EVENT_NAMES,
    HOLD,
    INSTALL,
    RECOVER,
    RESTART,
    RESTARTED,
    RESTORE,
    STABLE,
    VIEW,
    blank_events,
)

BY_SENDER: tuple[Checker, ...] = (premature_stability, stable_never_decreases, in_order_delivery)
READABLE = "readable trace"
TRACE_SECONDS = 0.005
EVENTS_PER_SECOND = 1e6
"""About what it takes to open a trace, and to read and check it."""
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
_COLUMNS = ("time_ns", "member", "peer", "message", "sender", "sequence", "round")
_OF_A_SENDER = (DELIVER, STABLE, RESTORE, HOLD)
_OF_ALL = (CRASH, RECOVER, INSTALL, VIEW, RESTART, RESTARTED)
PACKED = np.dtype([(name, EVENT_DTYPE[name]) for name in ("event", *_COLUMNS)])
"""What these checkers look at, without the gaps that make the rows of a trace quick to walk through."""


def check_traces(spark: SparkSession, traces: list[TraceFile]) -> list[dict[str, Any]]:
    """All violations in all traces, by trace and row; a trace that cannot be read breaks the promise `READABLE`."""
    found = [_unreadable(one.name, one.error) for one in traces if one.error is not None]
    short = [one for one in traces if one.error is None and one.row_groups <= 1]
    long = [one for one in traces if one.error is None and one.row_groups > 1]
    if short:
        found += by_trace(spark, short, all_checkers()).toArrow().to_pylist()
    if long:
        others = tuple(checker for checker in all_checkers() if checker not in BY_SENDER)
        found += by_sender(spark, long).unionByName(by_trace(spark, long, others)).toArrow().to_pylist()
    return sorted(found, key=lambda one: (one["trace"], one["checker"], one["rows"], one["message"]))


def _unreadable(trace: str, why: str) -> dict[str, Any]:
    return {"trace": trace, "checker": READABLE, "message": why, "rows": [], "time_ns": 0}


def by_sender(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """Judge each sender of each trace apart."""
    places = [{"path": one.name, "part": part} for one in traces for part in range(one.row_groups)]
    # Scenarios are long texts: they go to the workers once, not with every row.
    scenarios = {one.name: one.scenario for one in traces}

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.to_pylist():
                with suppress(OSError, pa.ArrowException):  # the pass over the whole trace says that it is damaged
                    yield from sender_rows(place["path"], place["part"], scenarios[place["path"]]).to_batches()

    def judge(table: pa.Table) -> pa.Table:
        return _judge_sender(table, scenarios[table.column("trace")[0].as_py()])

    rows = _one_a_task(spark, pa.Table.from_pylist(places)).mapInArrow(read, SENDER_ROWS_DDL)
    return rows.groupBy("trace", "sender").applyInArrow(judge, VIOLATIONS_DDL)


def _one_a_task(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table, each in a task of its own, started in order."""
    numbered = table.append_column("place", pa.array(range(len(table)), pa.int64()))
    places = spark.range(0, len(table), 1, max(len(table), 1)).withColumnRenamed("id", "place")
    return places.join(broadcast(spark.createDataFrame(numbered)), "place").select(*table.column_names)


def sender_rows(path: str, part: int, scenario: dict[str, Any]) -> pa.Table:
    """What the checkers of each sender need from one row group: its deliveries and stability, every crash and view.

    Most rows of a trace are hops and copies. They are left out here, where reading costs least. What is kept travels as
    one piece of bytes a sender, which Spark moves without looking into it.
    """
    with pq.ParquetFile(source(path_of(path))) as file:
        before = sum(file.metadata.row_group(group).num_rows for group in range(part))
        events = _events(file.read_row_group(part, columns=["event", *_COLUMNS]))
    own = np.flatnonzero(np.isin(events["event"], _OF_A_SENDER))
    ups = np.flatnonzero(np.isin(events["event"], _OF_ALL))
    # In a live group every member may send, and so may every incarnation where members come and go.
    fixed = "senders" in scenario and scenario.get("churn_per_s") is None
    senders = int(scenario["senders"] if fixed else scenario["members"])
    order = own[np.argsort(events["sender"][own], kind="stable")]
    ends = np.searchsorted(events["sender"][order], np.arange(senders + 1))
    pieces = []
    for sender in range(senders):
        rows = np.sort(np.concatenate([order[ends[sender] : ends[sender + 1]], ups]))
        if len(rows):
            piece = {"trace": path, "sender": sender, "part": part}
            packed = np.empty(len(rows), PACKED)
            for name in PACKED.names or ():
                packed[name] = events[name][rows]
            pieces.append(piece | {"rows": (rows + before).tobytes(), "events": packed.tobytes()})
    return pa.Table.from_pylist(pieces, schema=SENDER_ROWS)


SENDER_ROWS_DDL = "trace string, sender int, part int, rows binary, events binary"
SENDER_ROWS = pa.schema(
    [
        pa.field("trace", pa.string()),
        pa.field("sender", pa.int32()),
        pa.field("part", pa.int32()),
        pa.field("rows", pa.binary()),
        pa.field("events", pa.binary()),
    ]
)


def _judge_sender(table: pa.Table, scenario: dict[str, Any]) -> pa.Table:
    table = table.sort_by("part")
    rows = np.frombuffer(b"".join(table.column("rows").to_pylist()), np.int64)
    packed = np.frombuffer(b"".join(table.column("events").to_pylist()), PACKED)
    events = blank_events(len(packed))
    for name in PACKED.names or ():
        events[name] = packed[name]
    trace = Trace(events=events, scenario=scenario, metrics={}, rows=rows)
    try:
        return _violations(trace, table.column("trace")[0].as_py(), BY_SENDER)
    except LocalProtocolError:
        return VIOLATIONS.empty_table()  # the pass over the whole trace says that it is damaged


def _events(table: pa.Table) -> np.ndarray[Any, np.dtype[np.void]]:
    """Arrow columns as the structured array that checkers read."""
    events = blank_events(table.num_rows)
    codes = {name: code for code, name in enumerate(EVENT_NAMES)}
    start = 0
    for chunk in table.column("event").chunks:
        names = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        translation = np.array([codes[name] for name in names.dictionary.to_pylist()], EVENT_DTYPE["event"])
        events["event"][start : start + len(chunk)] = translation[names.indices.to_numpy()]
        start += len(chunk)
    for column in _COLUMNS:
        events[column] = table.column(column).to_numpy()
    return events


def _violations(trace: Trace, name: str, checkers: Iterable[Checker]) -> pa.Table:
    found = [
        {"trace": name, **asdict(violation)}
        for checker in checkers
        if checker.not_promised(trace) is None
        for violation in checker.check(trace)
    ]
    return pa.Table.from_pylist(found, schema=VIOLATIONS)


def by_trace(spark: SparkSession, traces: list[TraceFile], checkers: tuple[Checker, ...]) -> DataFrame:
    """Judge each trace as a whole, small ones several to a task, the largest first."""
    ordered = sorted(traces, key=lambda one: -one.events)
    seconds = [TRACE_SECONDS + one.events / EVENTS_PER_SECOND for one in ordered]
    tasks = split([one.name for one in ordered], seconds, parallelism(spark))
    chosen = tuple(checker.NAME for checker in checkers)
    code = shipped_files()

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_shipped(code)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for name in tasks[number]:
                    yield from judge_file(name, chosen).to_batches()

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(judge, VIOLATIONS_DDL)


def judge_file(name: str, checkers: tuple[str, ...]) -> pa.Table:
    """The violations in one trace, by the checkers of these names."""
    try:
        path = path_of(name)
        trace = read_trace(path) if isinstance(path, Path) else read_trace(name, source(path))
        return _violations(trace, name, [one for one in all_checkers() if one.NAME in checkers])
    except LocalProtocolError as error:
        return pa.Table.from_pylist([_unreadable(name, str(error))], schema=VIOLATIONS)

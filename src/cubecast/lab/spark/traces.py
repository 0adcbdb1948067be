"""Check traces on Spark: the promises of `trace.checkers`, on any number of traces of any length.

| traces | contents of a task |
|---|---|
| that leave no core idle | several traces, by their size; each goes through its row groups in order |
| longer ones, first | the summaries of some row groups: they divide a trace by time |
| longer ones, then | one trace and a share of the promises: it goes through the row groups in order |

Every trace is judged by the same checkers as in one process (`cubecast check`), part by part in the same order, so the
two agree by construction. Spark only distributes the work. A trace that takes longer than the share of a core has two
stages. Summaries of row groups may be computed in any order (`trace.checkers.facts`), so they are tasks. The promises
do not depend on each other, so each share of them is a task, which gets the summary and reads the row groups itself. In
both cases no events are sent, and a task holds a small trace, or one row group at a time (`trace.checkers.fold` lists
what else); the driver joins the summaries, which are a few numbers per member and the rows of membership.

User checkers judge a trace as a whole. A violation names the trace and the rows in it. A trace that cannot be read is a
row of its own, and the others are judged.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from cubecast.errors import LocalProtocolError
from cubecast.jit.garbage import exempt_loaded
from cubecast.lab.packing import split
from cubecast.lab.remote import path_of, source
from cubecast.lab.spark.cluster import parallelism
from cubecast.lab.spark.own_code import load_shipped, shipped_files
from cubecast.lab.spark.tracefiles import TraceFile
from cubecast.trace.checkers.facts import Facts, PartSummary, facts_of, joined, members_of, summarise
from cubecast.trace.checkers.registry import CHECKERS, judge_parts, judge_whole, own_checkers
from cubecast.trace.checkers.report import Verdict
from cubecast.trace.files import StoredTrace

READABLE = "readable trace"
TRACE_SECONDS = 0.001
EVENTS_PER_SECOND = 4e6
"""Estimated seconds to open a trace, and to read and check it."""
WHOLE_EVENTS = 1 << 21
"""A trace of up to so many events (128 MiB) is read once, and longer ones several times, row group by row group."""
DIVIDED_SECONDS = 2.0
"""A trace that takes less time is not divided: two stages of tasks cost about a second."""
DIVIDED_SHARE = 1.2
"""A trace is divided if it takes more than this times the share of a core in the time of all traces."""
SHARES = (
    ("FIFO per link",),
    ("causal order", "causal stability", "agreement", "in-order delivery"),
    ("no premature stability", "stability never decreases", "every round ends", "counts agree with the metrics"),
)
"""The promises that are judged separately if there are more cores than long traces; the others form one share."""
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
SUMMARIES_DDL = "trace string, part int, summary binary, error string"
SUMMARIES = pa.schema(
    [
        pa.field("trace", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("summary", pa.binary()),
        pa.field("error", pa.string()),
    ]
)


def check_traces(spark: SparkSession, traces: list[TraceFile]) -> list[dict[str, Any]]:
    """All violations in all traces, by trace and row; a trace that cannot be read breaks the promise `READABLE`."""
    found = [_unreadable(one.name, one.error) for one in traces if one.error is not None]
    readable = [one for one in traces if one.error is None]
    long = long_ones(readable, parallelism(spark))
    short = [one for one in readable if one not in long]
    if short:
        found += by_trace(spark, short).toArrow().to_pylist()
    if long:
        found += by_time(spark, long)
    unreadable = {one["trace"]: one for one in found if one["checker"] == READABLE}
    found = [one for one in found if one["trace"] not in unreadable] + list(unreadable.values())
    return sorted(found, key=lambda one: (one["trace"], one["checker"], one["rows"], one["message"]))


def long_ones(traces: list[TraceFile], cores: int) -> list[TraceFile]:
    """The traces that are divided, because other cores would wait for them."""
    share = sum(map(_seconds, traces)) / max(cores, 1)
    least = max(DIVIDED_SECONDS, DIVIDED_SHARE * share)
    return [one for one in traces if one.row_groups > 1 and _seconds(one) > least]


def _seconds(trace: TraceFile) -> float:
    return TRACE_SECONDS + trace.events / EVENTS_PER_SECOND


def _unreadable(trace: str, why: str) -> dict[str, Any]:
    return {"trace": trace, "checker": READABLE, "message": why, "rows": [], "time_ns": 0}


def by_time(spark: SparkSession, traces: list[TraceFile]) -> list[dict[str, Any]]:
    """Judge long traces: first the summary of each row group, then each share of the promises."""
    places = [(one.name, part) for one in traces for part in range(one.row_groups)]
    seconds = [_seconds(one) / one.row_groups for one in traces for _ in range(one.row_groups)]
    packed = split(places, seconds, parallelism(spark))
    shares = shares_of(parallelism(spark) // len(traces))
    code = shipped_files()

    def summarise_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for path, part in packed[number]:
                    yield from summary_of(path, part).to_batches()
        exempt_loaded()  # Spark's workers collect garbage after every task

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_shipped(code)
        for batch in batches:
            for task in batch.to_pylist():
                yield from judge_share(task["trace"], task["summary"], shares[task["share"]]).to_batches()
        exempt_loaded()

    parts = spark.range(0, len(packed), 1, len(packed)).mapInArrow(summarise_parts, SUMMARIES_DDL).toArrow()
    whole, found = _joined(parts)
    tasks = [
        {"trace": name, "share": share, "summary": summary}
        for share in range(len(shares))
        for name, summary in whole.items()
    ]
    if tasks:
        found += (
            _one_per_task(spark, pa.Table.from_pylist(tasks)).mapInArrow(judge, VIOLATIONS_DDL).toArrow().to_pylist()
        )
    return found


def _joined(parts: pa.Table) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The summary of each trace, joined from its row groups; and the traces with a row group that cannot be read."""
    by_trace: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(parts.to_pylist(), key=lambda row: row["part"]):
        by_trace.setdefault(row["trace"], []).append(row)
    whole, unreadable = {}, []
    for name, rows in by_trace.items():
        errors = [row["error"] for row in rows if row["error"] is not None]
        if errors:
            unreadable.append(_unreadable(name, errors[0]))
        else:
            whole[name] = pickle.dumps(tuple(joined(PartSummary(*pickle.loads(row["summary"])) for row in rows)))
    return whole, unreadable


def all_promises() -> frozenset[str]:
    """The promises to judge; a worker may also know checkers of earlier jobs."""
    return frozenset(checker.NAME for checker in CHECKERS) | {checker.NAME for checker in own_checkers()}


def shares_of(count: int) -> list[frozenset[str]]:
    """Divide the promises into at most `count` shares, at least one."""
    rest = all_promises().difference(*SHARES)
    groups = [*SHARES, tuple(rest)]
    count = min(max(count, 1), len(groups))
    return [frozenset(groups[place]) for place in range(count - 1)] + [frozenset().union(*groups[count - 1 :])]


def _one_per_task(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table, one task each, started in order."""
    numbered = table.append_column("place", pa.array(range(len(table)), pa.int64()))
    places = spark.range(0, len(table), 1, max(len(table), 1)).withColumnRenamed("id", "place")
    return places.join(broadcast(spark.createDataFrame(numbered)), "place").select(*table.column_names)


def _open(name: str) -> StoredTrace:
    path = path_of(name)
    return StoredTrace(path) if isinstance(path, Path) else StoredTrace(name, source(path))


def summary_of(name: str, part: int) -> pa.Table:
    """The summary of one row group, or the error."""
    row: dict[str, Any] = {"trace": name, "part": part, "summary": None, "error": None}
    try:
        with closing(_open(name)) as trace:
            summary = summarise(trace.part(part), int(trace.starts[part]), members_of(trace.scenario))
        row["summary"] = pickle.dumps(tuple(summary))
    except Exception as error:  # whatever is wrong with one trace, the others are judged
        row["error"] = _why(error)
    return pa.Table.from_pylist([row], schema=SUMMARIES)


def judge_share(name: str, summary: bytes, promises: frozenset[str]) -> pa.Table:
    """Judge one trace, of which the summary is known, by some of the promises."""
    try:
        with closing(_open(name)) as trace:
            facts = Facts(source=trace, members=members_of(trace.scenario), summary=PartSummary(*pickle.loads(summary)))
            return _violations(name, facts, promises)
    except Exception as error:
        return _one_unreadable(name, error)


def _one_unreadable(name: str, error: Exception) -> pa.Table:
    return pa.Table.from_pylist([_unreadable(name, _why(error))], schema=VIOLATIONS)


def _why(error: Exception) -> str:
    """The error of a trace in one line."""
    if isinstance(error, LocalProtocolError):
        return str(error)
    return f"it cannot be judged: {type(error).__name__}: {next(iter(str(error).splitlines()), 'no reason given')}"


def _violations(name: str, facts: Facts, promises: frozenset[str]) -> pa.Table:
    verdicts: list[Verdict] = judge_parts(facts, [one for one in CHECKERS if one.NAME in promises])
    verdicts += judge_whole(facts.source, [one for one in own_checkers() if one.NAME in promises])
    found = [{"trace": name, **asdict(violation)} for verdict in verdicts for violation in verdict.violations]
    return pa.Table.from_pylist(found, schema=VIOLATIONS)


def by_trace(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """Judge each trace as a whole, small ones several to a task, the largest first."""
    ordered = sorted(traces, key=lambda one: -one.events)
    tasks = split([one.name for one in ordered], [_seconds(one) for one in ordered], parallelism(spark))
    promises, code = all_promises(), shipped_files()

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_shipped(code)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for name in tasks[number]:
                    yield from judge_file(name, promises).to_batches()
        exempt_loaded()

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(judge, VIOLATIONS_DDL)


def judge_file(name: str, promises: frozenset[str]) -> pa.Table:
    """The violations of these promises in one trace."""
    try:
        with closing(_open(name)) as stored:
            trace = stored.whole() if stored.starts[-1] <= WHOLE_EVENTS else stored
            return _violations(name, facts_of(trace), promises)
    except Exception as error:
        return _one_unreadable(name, error)

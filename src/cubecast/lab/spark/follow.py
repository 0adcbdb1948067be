"""Follow a folder of live traces with Structured Streaming: stability lag, slowest member and buffers, per window.

Spark reads what the members appended, and keeps the furthest place of each member in each window; the driver joins the
windows (`lab.windows`) whenever a batch is done, and hands the table to the caller.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from cubecast.errors import LocalProtocolError
from cubecast.lab.spark.live_source import LiveTraces
from cubecast.lab.spark.session import first_line
from cubecast.lab.windows import Row, Windows

Show = Callable[[list[Row]], None]
POLL_SECONDS = 0.2


def follow(
    spark: SparkSession,
    folder: Path,
    *,
    window_s: float,
    seconds: float | None,
    show: Show,
    checkpoint: Path,
    enough: threading.Event | None = None,
) -> list[Row]:
    """Call `show` with the table after every batch. Gives the last table.

    It ends after `seconds`, when somebody has had `enough`, or with Ctrl-C. With the `checkpoint` of an earlier time
    the stream goes on where it stopped.
    """
    if window_s <= 0:
        raise LocalProtocolError(f"window of {window_s:g} s: choose more than 0")
    if not folder.is_dir():
        raise LocalProtocolError(f"{folder} is no folder: name the one that the members' traces are written to")
    windows = Windows(window_s)

    def take(batch: DataFrame, _: int) -> None:
        windows.merge(batch.toArrow().to_pylist())
        show(windows.table())

    spark.dataSource.register(LiveTraces)
    events = spark.readStream.format("cubecast-live").option("path", str(folder)).load()
    query = (
        furthest(events, window_s)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(take)
        .start()
    )
    failure = _wait_for(query, seconds, enough or threading.Event())
    if failure is not None:
        raise LocalProtocolError(f"{folder}: {first_line(failure)}")
    return windows.table()


def _wait_for(query: StreamingQuery, seconds: float | None, enough: threading.Event) -> Exception | None:
    """Let the query run until its time is over, then end it; gives what went wrong in it."""
    until = math.inf if seconds is None else time.monotonic() + seconds
    try:
        while query.isActive and time.monotonic() < until and not enough.wait(POLL_SECONDS):
            pass
        if query.isActive:
            query.processAllAvailable()
    except KeyboardInterrupt:
        pass
    finally:
        failure = query.exception()
        query.stop()
    return failure


def furthest(events: DataFrame, window_s: float) -> DataFrame:
    """How far each member was with each sender in each window."""
    wanted = events.where("event IN ('deliver', 'stable', 'crash')")
    window = expr(f"CAST(floor(time_ns / {round(window_s * 1e9)}) AS int)").alias("window")
    return wanted.groupBy(window, "member", "sender").agg(
        expr("max(if(event = 'deliver', sequence, 0))").alias("received"),
        expr("max(if(event = 'stable', sequence, 0))").alias("stable"),
        expr("max(event = 'crash')").alias("gone"),
    )

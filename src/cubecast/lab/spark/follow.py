"""Follow a folder of live traces with Structured Streaming: stability lag, slowest member and buffers, per window.

Spark reads what the processes appended since the last batch, and reduces it to the furthest place of each member in
each window; the driver joins the windows (`lab.windows`) and passes the table to the caller. The driver has the state,
so the stream itself needs none; after every batch the complete state is written into the checkpoint, with the number of
the batch. A batch that Spark repeats after a kill is ignored: a follower that was killed and restarted shows the same
as an undisturbed one.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from cubecast.errors import LocalProtocolError
from cubecast.lab.spark.failures import first_line, reported_message
from cubecast.lab.spark.live_source import LiveTraces
from cubecast.lab.whole_file import write_whole
from cubecast.lab.windows import Row, Windows

Show = Callable[[list[Row]], None]
POLL_SECONDS = 0.2
SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 0.001, 86400.0
STATE_FILE = "windows.json"
EVENTS = (
    *("deliver", "hold", "restore", "sent", "stable"),
    *("install", "view"),
    *("crash", "leave", "excluded"),
)


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
    """Call `show` with the table after every batch; return the last table.

    It ends after `seconds`, when `enough` is set, or with Ctrl-C. With the `checkpoint` of an earlier call the stream
    continues where it stopped, with all its windows.
    """
    if not SHORTEST_WINDOW_S <= window_s <= LONGEST_WINDOW_S:
        raise LocalProtocolError(f"window of {window_s:g} s: choose from {SHORTEST_WINDOW_S:g} to {LONGEST_WINDOW_S:g}")
    if seconds is not None and not seconds >= 0:
        raise LocalProtocolError(f"seconds = {seconds:g}: choose at least 0")
    if not folder.is_dir():
        raise LocalProtocolError(f"{folder} is not a folder: give the folder to which the members write their traces")
    kept = checkpoint / STATE_FILE
    done, windows = _read_state(kept, window_s)
    batches: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        if number > done:
            windows.merge(furthest(batch, window_s).toArrow().to_pylist())
            write_whole(kept, json.dumps({"batch": number, "windows": windows.state()}))
        show(windows.table())
        batches.append(number)

    spark.dataSource.register(LiveTraces)
    events = spark.readStream.format("cubecast-live").option("path", str(folder)).load()
    query = events.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take).start()
    failure = _wait_for(query, seconds, enough or threading.Event(), batches)
    if failure is not None:
        raise LocalProtocolError(reported_message(failure) or f"{folder}: {first_line(failure)}")
    return windows.table()


def _read_state(path: Path, window_s: float) -> tuple[int, Windows]:
    """The number of the last batch in the windows of the checkpoint, and the windows."""
    try:
        found = json.loads(path.read_bytes())
        return int(found["batch"]), Windows(window_s, state=dict(found["windows"]))
    except FileNotFoundError:
        return -1, Windows(window_s)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise LocalProtocolError(f"{path} cannot be read ({error}): use a new checkpoint") from error


def _wait_for(
    query: StreamingQuery, seconds: float | None, enough: threading.Event, batches: list[int]
) -> Exception | None:
    """Let the query run until its time is over, then end it; return its error, if any."""
    until = math.inf if seconds is None else time.monotonic() + seconds
    try:
        while query.isActive and time.monotonic() < until and not enough.wait(POLL_SECONDS):
            pass
        if query.isActive:
            _take_the_rest(query, batches)
    except KeyboardInterrupt:
        pass
    finally:
        failure = query.exception()
        query.stop()
    return failure


def _take_the_rest(query: StreamingQuery, batches: list[int]) -> None:
    """Wait for what is written by now, but not for a group that continues to write.

    The running batch may have been planned earlier; the next one covers everything until now.
    """

    def process_all() -> None:
        with suppress(Exception):  # the query's own exception is looked at later
            query.processAllAvailable()

    enough = len(batches) + 2
    rest = threading.Thread(target=process_all, name="cubecast-follow", daemon=True)
    rest.start()
    while rest.is_alive() and len(batches) < enough:
        rest.join(POLL_SECONDS)


def furthest(events: DataFrame, window_s: float) -> DataFrame:
    """How far each member was with each sender in each window and view; and the members of views.

    | column | meaning |
    |---|---|
    | `window`, `member`, `view`, `sender` | `sender` is null in a row that only shows the presence of the member |
    | `received`, `stable` | highest sequence number that the member had, and that it knew to be stable |
    | `gone` | the member stopped or left |
    | `number`, `tag`, `peer` | in rows of views: the view, and one of its members; else null |
    | `time_ns` | of the first of the events |
    """
    wanted = events.where(f"event IN ({', '.join(repr(event) for event in EVENTS)})")
    is_view = "event = 'view'"
    has = "event IN ('deliver', 'hold', 'restore', 'sent')"
    # A state from another member is that of the beginning of a view, and everything before a view is stable.
    knows = "(event = 'stable' OR (event = 'restore' AND round >= 0))"
    keys = [
        expr(f"time_ns DIV {round(window_s * 1e9)}").alias("window"),
        expr(f"if({is_view}, NULL, member)").alias("member"),
        expr(f"if({is_view}, -1, view)").alias("view"),
        expr("sender"),
        expr(f"if({is_view}, round, NULL)").alias("number"),
        expr(f"if({is_view}, message, NULL)").alias("tag"),
        expr(f"if({is_view}, peer, NULL)").alias("peer"),
    ]
    return wanted.groupBy(*keys).agg(
        expr(f"max(if({has}, sequence, 0))").alias("received"),
        expr(f"max(if({knows}, sequence, 0))").alias("stable"),
        expr("max(event IN ('crash', 'leave', 'excluded'))").alias("gone"),
        expr("min(time_ns)").alias("time_ns"),
    )

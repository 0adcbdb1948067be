"""The metrics of MODELS §9 recomputed from traces, in SQL, for any number of traces.

| metric | from the rows |
|---|---|
| `messages`, `bytes`, `hops` and those of the other layers, `drops`, `data_fragments` | sends, hops and drops |
| `rtt_first_ms`, `rtt_last_ms` | the first begin of a round and the first and last member that was done with it |
| `delay_mean_ms`, `delay_max_ms` | deliveries against the multicast, or without a row of it the sender's own delivery |
| `tts_first_ms`, `tts_last_ms` | the first stable row that covers a message, member by member |
| `buffer_max`, `buffer_mean` | deliveries less what became stable, at their peak and at every millisecond |
| `load_mean` | sends less arrivals and drops, at every millisecond of a round |
| `queue_mean`, `queue_max` | when copies joined a link and when the one before had left it |

These are not in a trace, so they cannot be recomputed: the number of multicasts that were sent as copies; the queue of
a processor of the WAN tree; the messages that a member held back before delivery. Load is left out if copies multiply
on the way (tree multicast, duplication), the queue if nodes take time or a network has no links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col

from cubecast.errors import CubecastError
from cubecast.lab.spark.cluster import parallelism
from cubecast.lab.spark.tracefiles import TraceFile, read_events
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network

TOLERANCE = 1e-9
"""Relative: a mean of the same numbers in another order may be rounded differently."""


def recompute(spark: SparkSession, traces: list[TraceFile]) -> list[dict[str, Any]]:
    """One row per trace and metric: `found` in the rows, `said` by the run that wrote it, and whether they agree.

    A trace without metrics, such as one of a live group, is not read.
    """
    traces = [trace for trace in traces if trace.metrics]
    if not traces:
        return []
    broadcast(spark.createDataFrame(_heads(traces))).createOrReplaceTempView("heads")
    _links(spark, traces).createOrReplaceTempView("links")
    kept = [read_events(spark, traces).cache()]
    kept[0].createOrReplaceTempView("events")
    for name, query in _STEPS.items():
        view = spark.sql(query)
        if name in _SHARED:
            kept.append(view.cache())
        view.createOrReplaceTempView(name)
    frame = spark.sql(" UNION ALL ".join(f"({query})" for query in (*_METRICS, _QUEUES)))
    rows = frame.where(col("found").isNotNull()).toArrow().to_pylist()
    for one in kept:
        one.unpersist()
    said = {(trace.name, name): value for trace in traces for name, value in trace.metrics.items()}
    compared = [row | {"said": said.get((row["trace"], row["metric"]))} for row in rows]
    found = [row | {"agree": _agree(row["found"], row["said"])} for row in compared if row["said"] is not None]
    return sorted(found, key=lambda row: (row["trace"], row["metric"]))


def _agree(found: float, said: Any) -> bool:
    is_number = isinstance(said, int | float)
    return is_number and math.isclose(found, float(said), rel_tol=TOLERANCE, abs_tol=1e-6)


def _heads(traces: list[TraceFile]) -> pa.Table:
    rows = []
    for trace in traces:
        scenario = trace.scenario
        stability = scenario.get("family") == "stability"
        rows.append(
            {
                "trace": trace.name,
                "members": int(scenario["members"]),
                "linkless": scenario.get("links") == 0,
                "unicasts": scenario.get("multicast") == "copies" and not scenario.get("duplicate"),
                "stability": stability,
                "frees": stability and bool(scenario.get("messages")),
                "measures": bool(scenario.get("measure")),
            }
        )
    return pa.Table.from_pylist(rows)


def _links(spark: SparkSession, traces: list[TraceFile]) -> DataFrame:
    """The delay of every link, which separates the end of a copy's transmission from its arrival.

    Workers build the networks again, one scenario after another.
    """
    names = [trace.name for trace in traces]
    scenarios = [trace.scenario for trace in traces]
    tasks = min(len(traces), 4 * parallelism(spark))

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                network = _network_of(scenarios[number])
                if network is not None:
                    columns = [[names[number]] * network.links, np.arange(network.links, dtype=np.int32)]
                    yield from pa.table([*columns, network.delay_ns], schema=_LINKS).to_batches()

    return spark.range(0, len(traces), 1, tasks).mapInArrow(build, "trace string, link int, delay_ns bigint")


def _network_of(scenario: dict[str, Any]) -> Network | None:
    """The network of a simulated run, built again; None for a live run, without links, or with slow nodes.

    In a run with views the trace numbers incarnations, and the network has a place for every host.
    """
    if "network" not in scenario or str(scenario["network"]).startswith("file:"):
        return None
    try:
        hosts = int(scenario.get("hosts", scenario["members"]))
        network = build_network(str(scenario["network"]), members=hosts, seed=int(scenario["seed"]))
    except (CubecastError, KeyError, TypeError, ValueError, MemoryError):  # of another program, or another version
        return None
    is_it = network.links == scenario.get("links", network.links)
    return network if is_it and network.links > 0 and network.costs is None else None


_LINKS = pa.schema([("trace", pa.string()), ("link", pa.int32()), ("delay_ns", pa.int64())])
_SHARED = {"done", "rounds", "known", "published"}
"""Queries on which several metrics depend; each is executed once."""
_STEPS = {
    "finished": "SELECT trace, max(time_ns) AS end_ns FROM events WHERE event IN ('stable', 'done') GROUP BY trace",
    # When the application asked for each message: in a run with views it may be sent later.
    "asked": """
        SELECT trace, member AS sender, sequence, min(asked_ns) AS asked_ns FROM
            (SELECT trace, member, sequence, message FROM events WHERE event = 'sent')
        JOIN (SELECT trace, member, message, time_ns AS asked_ns FROM events WHERE event = 'multicast')
            USING (trace, member, message)
        GROUP BY trace, member, sequence""",
    # The members that are up at the end.
    "up": """
        SELECT trace, members - count(last) AS up FROM heads LEFT JOIN (
            SELECT trace, member, max_by(event, row) AS last FROM events
            WHERE event IN ('crash', 'recover') GROUP BY trace, member HAVING last = 'crash') USING (trace)
        GROUP BY trace, members""",
    # When each member was done with each round: a done row covers all rounds since its last one.
    "done": """
        SELECT trace, member, time_ns, explode(sequence(before + 1, round)) AS round FROM (
            SELECT trace, member, time_ns, row, round, coalesce(max(round) OVER (
                PARTITION BY trace, member ORDER BY row ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM events WHERE event = 'done')
        WHERE round > before""",
    "down": """
        SELECT trace, member FROM events WHERE event IN ('crash', 'recover')
        GROUP BY trace, member HAVING max_by(event, row) = 'crash'""",
    "rounds": """
        SELECT trace, round, begun_ns, first_ns, last_ns FROM
            (SELECT trace, round, min(time_ns) AS begun_ns FROM events WHERE event = 'round' GROUP BY trace, round)
        JOIN (SELECT trace, round, min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM done GROUP BY trace, round)
            USING (trace, round)
        JOIN (SELECT trace, round, count(*) AS done_up FROM done LEFT ANTI JOIN down USING (trace, member)
              GROUP BY trace, round) USING (trace, round)
        JOIN up USING (trace) WHERE done_up >= up.up""",
    # Times when at least one round is in progress; unfinished rounds last to the end of the run.
    "open_rounds": """
        SELECT trace, round, begun_ns, coalesce(last_ns, end_ns + 1) AS last_ns FROM
            (SELECT trace, round, min(time_ns) AS begun_ns FROM events WHERE event = 'round' GROUP BY trace, round)
        LEFT JOIN (SELECT trace, round, last_ns FROM rounds) USING (trace, round) JOIN finished USING (trace)""",
    "spans": """
        SELECT trace, island, min(begun_ns) AS begun_ns, max(last_ns) AS last_ns FROM (
            SELECT *, sum(apart) OVER (PARTITION BY trace ORDER BY begun_ns, round) AS island FROM (
                SELECT *, if(begun_ns <= max(last_ns) OVER (PARTITION BY trace ORDER BY begun_ns, round
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0, 1) AS apart FROM open_rounds))
        GROUP BY trace, island""",
    "published": """
        SELECT trace, sender, sequence, coalesce(asked_ns, own_ns) AS sent_ns FROM (
            SELECT trace, sender, sequence, min(time_ns) AS own_ns FROM events
            WHERE event = 'deliver' AND member = sender AND peer < 0 GROUP BY trace, sender, sequence)
        FULL JOIN asked USING (trace, sender, sequence)""",
    "known": """
        SELECT trace, member, sender, row, time_ns, sequence - before AS more,
               explode(sequence(before + 1, sequence)) AS sequence FROM (
            SELECT trace, member, sender, row, time_ns, sequence, coalesce(max(sequence) OVER (
                PARTITION BY trace, member, sender ORDER BY row
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM events WHERE event = 'stable')
        WHERE sequence > before""",
    # +1 for a message held, −1 for one that became stable.
    "held": """
        SELECT trace, member, row, time_ns, 1 AS change FROM events JOIN heads USING (trace)
            WHERE event = 'deliver' AND frees
        UNION ALL
        SELECT trace, member, row, time_ns, -1 AS change FROM known JOIN heads USING (trace) WHERE frees""",
}

_COUNTED = """
    SELECT trace, stack(10,
        'messages', sum(if(layer = 'control', copies, 0)),
        'bytes', sum(if(layer = 'control', copies * size, 0)),
        'hops', sum(if(layer = 'control', hop, 0)),
        'data_messages', sum(if(layer = 'data', copies, 0)),
        'data_bytes', sum(if(layer = 'data', copies * size, 0)),
        'data_hops', sum(if(layer = 'data', hop, 0)),
        'data_fragments', sum(if(layer = 'data', copies * ceil(size / 1500), 0)),
        'failure_messages', sum(if(layer = 'failure', copies, 0)),
        'failure_hops', sum(if(layer = 'failure', hop, 0)),
        'drops', sum(if(event = 'drop', 1, 0))) AS (metric, found)
    FROM (SELECT *, if(event = 'send', if(peer = -2, members - 1, 1), 0) AS copies,
                 if(linkless, if(event = 'send', if(peer = -2, members - 1, 1), 0), if(event = 'hop', 1, 0)) AS hop
          FROM events JOIN heads USING (trace))
    GROUP BY trace"""

_METRICS = (
    f"SELECT trace, metric, CAST(found AS double) AS found FROM ({_COUNTED})",
    """
    SELECT trace, stack(2, 'rtt_first_ms', avg(first_ns - begun_ns) / 1e6,
                           'rtt_last_ms', avg(last_ns - begun_ns) / 1e6) AS (metric, found)
    FROM rounds GROUP BY trace""",
    """
    SELECT trace, stack(2, 'delay_mean_ms', avg(time_ns - sent_ns) / 1e6,
                           'delay_max_ms', CAST(max(time_ns - sent_ns) AS double) / 1e6) AS (metric, found)
    FROM events JOIN published USING (trace, sender, sequence)
    WHERE event = 'deliver' AND member <> sender AND peer < 0 GROUP BY trace""",
    """
    SELECT trace, stack(2, 'tts_first_ms', avg(first_ns - sent_ns) / 1e6,
                           'tts_last_ms', avg(last_ns - sent_ns) / 1e6) AS (metric, found)
    FROM (SELECT trace, sender, sequence, min(time_ns) AS first_ns, max(time_ns) AS last_ns, count(*) AS members
          FROM known GROUP BY trace, sender, sequence)
    JOIN published USING (trace, sender, sequence) JOIN up USING (trace) WHERE members >= up GROUP BY trace""",
    """
    SELECT trace, 'buffer_max' AS metric, CAST(max(level) AS double) AS found FROM (
        SELECT trace, sum(change) OVER (PARTITION BY trace, member ORDER BY row, change) AS level FROM held)
    GROUP BY trace""",
    """
    SELECT trace, 'buffer_mean' AS metric,
           sum(change * (floor(end_ns / 1e6) - ceil(time_ns / 1e6) + 1))
               / (first(floor(end_ns / 1e6)) + 1) / first(members) AS found
    FROM held JOIN finished USING (trace) JOIN heads USING (trace)
    WHERE trace NOT IN (SELECT trace FROM down) GROUP BY trace""",
    """
    SELECT trace, 'load_mean' AS metric, total / samples AS found FROM (
        SELECT trace, sum(change * greatest(ceil(last_ns / 1e6) - ceil(greatest(begun_ns, time_ns) / 1e6), 0)) AS total
        FROM (SELECT trace, time_ns, if(event = 'send', 1, -1) AS change FROM events
              WHERE event IN ('send', 'receive', 'drop')) JOIN spans USING (trace) GROUP BY trace)
    JOIN (SELECT trace, sum(ceil(last_ns / 1e6) - ceil(begun_ns / 1e6)) AS samples FROM spans GROUP BY trace)
        USING (trace)
    JOIN heads USING (trace) WHERE samples > 0 AND unicasts AND stability AND measures""",
)

# A copy starts when it joins the link or when the one before has left it, whichever is later. A copy that starts at
# a time no longer waits at that time. The queue is sampled when a copy joins and when one arrives at the far end; what
# falls on the same nanosecond is in the order of the rows: a copy joins when it is sent, or at its hop before.
_QUEUES = """
    WITH places AS (
        SELECT trace, link, event, row, time_ns, entered_ns,
               lag(row) OVER (PARTITION BY trace, message ORDER BY row) AS entered_row
        FROM events WHERE event IN ('send', 'hop')),
    copies AS (
        SELECT trace, link, row, entered_row, time_ns, entered_ns,
               greatest(entered_ns, coalesce(lag(time_ns) OVER (
                   PARTITION BY trace, link ORDER BY time_ns, row) - delay_ns, entered_ns)) AS start_ns
        FROM places JOIN links USING (trace, link) JOIN heads USING (trace)
        WHERE event = 'hop' AND measures),
    changes AS (
        SELECT trace, link, start_ns AS time_ns, 0 AS place, row, -1 AS change, 0 AS looks FROM copies
            WHERE start_ns > entered_ns
        UNION ALL
        SELECT trace, link, entered_ns, 1, entered_row, if(start_ns > entered_ns, 1, 0), 1 FROM copies
        UNION ALL
        SELECT trace, link, time_ns, 1, row, 0, 1 FROM copies),
    levels AS (
        SELECT trace, looks, sum(change) OVER (
            PARTITION BY trace, link ORDER BY time_ns, place, row
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS level
        FROM changes)
    SELECT trace, stack(2, 'queue_mean', avg(level), 'queue_max', CAST(max(level) AS double)) AS (metric, found)
    FROM levels WHERE looks = 1 GROUP BY trace"""

"""The schema of the results of a study, one row per run, successful or failed, in `runs/`; and of their summary.

Metrics are a map from name to number, because experiments measure different things and a Parquet file written by an
older version must stay readable. Values that differ between machines or days (seconds, host) are not in it, so that two
runs of a study can be compared bit for bit.
"""

from __future__ import annotations

import pyarrow as pa

OK = "ok"
FAILED = "failed"

RUNS = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("experiment", pa.string(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("metrics", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("wall_seconds", pa.float64(), nullable=False),
        pa.field("cpu_seconds", pa.float64()),
        pa.field("versions", pa.map_(pa.string(), pa.string())),
        pa.field("host", pa.string(), nullable=False),
        pa.field("finished_unix_s", pa.float64(), nullable=False),
    ]
)

RUNS_DDL = (
    "run_id string, code string, experiment string, settings string, seed bigint, status string, error string, "
    "metrics map<string,double>, wall_seconds double, cpu_seconds double, versions map<string,string>, "
    "host string, finished_unix_s double"
)
"""`RUNS` as a Spark schema; a test compares the two."""

SUMMARY = pa.schema(
    [
        pa.field("study", pa.string()),
        pa.field("point", pa.int32()),
        pa.field("metric", pa.string()),
        pa.field("n", pa.int64()),
        *(pa.field(name, pa.float64()) for name in ("mean", "sd", "ci_low", "ci_high", "smallest", "largest")),
    ]
)
"""One row per metric and point; n runs have a value."""

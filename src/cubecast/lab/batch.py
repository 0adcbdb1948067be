"""Execute the runs of a batch of rows: the work of a Spark worker.

This module does not depend on Spark, so the same function serves a worker, a process pool and a test. A run that fails
becomes a row with its error; the others continue.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from cubecast.errors import CubecastError
from cubecast.lab.experiments import experiment_named
from cubecast.lab.schema import FAILED, OK, RUNS
from cubecast.lab.versions import library_versions

ERROR_CHARACTERS = 2000

Row = dict[str, Any]
"""A pending run (its name, code version, experiment and settings), or its result (`RUNS`)."""


def run_rows(rows: Iterable[Row]) -> pa.RecordBatch:
    """Execute the runs of these rows; return a batch of `RUNS` rows."""
    return pa.RecordBatch.from_pylist([run_row(row) for row in rows], schema=RUNS)


def run_row(row: Row) -> Row:
    """Execute one run; an error becomes part of its row."""
    settings = json.loads(row["settings"])
    began, cpu_began = time.perf_counter(), time.process_time()
    metrics: dict[str, float] = {}
    error = None
    try:
        metrics = experiment_named(row["experiment"]).run(settings)
    except CubecastError as caught:
        error = str(caught)
    except MemoryError:
        error = "not enough memory for this run: use fewer members, messages or packets_max, or more memory per worker"
    except Exception as caught:  # a bug in one run must not end the study
        error = f"{type(caught).__name__}: {caught}"
    return {
        "run_id": row["run_id"],
        "code": row["code"],
        "experiment": row["experiment"],
        "settings": row["settings"],
        "seed": settings.get("seed", 0),
        "status": OK if error is None else FAILED,
        "error": error[:ERROR_CHARACTERS] if error else None,
        "metrics": list(metrics.items()),
        "wall_seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
        "versions": list(library_versions().items()),
        "host": platform.node(),
        "finished_unix_s": time.time(),
    }

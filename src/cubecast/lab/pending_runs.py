"""The pending runs of a study: the runs of its plans without the results on disk (an anti-join, in both directions).

The driver has the list of runs anyway, and only the name, the code and the status of a result matter. So the pending
runs are known before Spark is up, and what they need can be prepared while Java starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.errors import LocalProtocolError
from cubecast.lab.remote import source
from cubecast.lab.runs import Run
from cubecast.lab.schema import OK
from cubecast.lab.store import Store, result_files


@dataclass(frozen=True, kw_only=True)
class PendingRuns:
    """The pending runs, the number of finished ones, and the number of results that these plans cannot use."""

    pending: list[Run]
    done: int
    other_code: int
    other_runs: int


def results_on_disk(store: Store, *more: str) -> Iterator[tuple[Any, ...]]:
    """The run, the code and the status of every result, and further columns."""
    names = ["run_id", "code", "status", *more]
    for path in result_files(store):
        try:
            columns = pq.read_table(source(path), columns=names, partitioning=None).columns
        except (OSError, pa.ArrowException) as error:
            raise LocalProtocolError(
                f"{path} is damaged: `cubecast study run` moves it away and repeats its runs"
            ) from error
        yield from zip(*(column.to_pylist() for column in columns), strict=True)


def find_pending_runs(store: Store, runs: list[Run], *, retry_failed: bool = False) -> PendingRuns:
    """Compare the runs of the plans with the results on disk."""
    done = {(run_id, code) for run_id, code, status in results_on_disk(store) if status == OK or not retry_failed}
    asked = {run.id: run for run in runs}
    unused = [run_id for run_id, code in done if run_id not in asked or asked[run_id].code != code]
    other_code = sum(run_id in asked for run_id in unused)
    pending = [run for run in asked.values() if (run.id, run.code) not in done]
    return PendingRuns(
        pending=pending,
        done=len(asked) - len(pending),
        other_code=other_code,
        other_runs=len(unused) - other_code,
    )


def failures(store: Store, runs: list[Run]) -> list[dict[str, Any]]:
    """The runs of these plans that failed and did not succeed on a retry, with their error and seed."""
    names = ("settings", "seed", "error")
    good, bad = set(), {}
    for run_id, code, status, *more in results_on_disk(store, *names):
        if status == OK:
            good.add((run_id, code))
        else:
            bad[run_id, code] = dict(zip(names, more, strict=True))
    lasting = {key: one for key, one in bad.items() if key not in good}
    asked = [(run, (run.id, run.code)) for run in runs]
    found = [{"study": run.study, "run_id": run.id, **lasting[key]} for run, key in asked if key in lasting]
    return sorted(found, key=lambda one: (one["study"], one["run_id"]))

"""The finished and the pending runs of a study, found from the files alone, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.batch import run_row
from cubecast.lab.pending_runs import failures, find_pending_runs
from cubecast.lab.runs import Run, canonical
from cubecast.lab.schema import FAILED, OK, RUNS
from cubecast.lab.store import Store

RUNS_ASKED = [
    Run(
        study="x",
        experiment="trigger",
        common={"buffer_messages": 100, "rate_per_s": 10.0, "round_s": 1.0, "stable_fraction": 0.5},
        seed=seed,
        point={},
    )
    for seed in range(4)
]


def _result(run: Run, **other: Any) -> dict[str, Any]:
    row = {"run_id": run.id, "code": run.code, "experiment": run.experiment, "settings": canonical(run.settings)}
    return run_row(row) | other


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One run finished, one finished by other code, one failed, one pending; and a result of no plan."""
    made = Store(tmp_path)
    made.make()
    done, old, broken, _ = RUNS_ASKED
    rows = [
        _result(done),
        _result(old, code="other"),
        _result(broken, status=FAILED, error="why"),
        _result(done, run_id="elsewhere"),
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=RUNS), made.runs / "a.parquet")
    return made


def test_what_is_done_by_this_code_is_not_done_again(store: Store) -> None:
    found = find_pending_runs(store, RUNS_ASKED)
    assert [run.seed for run in found.pending] == [1, 3]
    assert (found.done, found.other_code, found.other_runs) == (2, 1, 1)


def test_what_failed_is_tried_again_when_asked(store: Store) -> None:
    assert [run.seed for run in find_pending_runs(store, RUNS_ASKED, retry_failed=True).pending] == [1, 2, 3]


def test_a_failure_counts_until_the_run_succeeds(store: Store) -> None:
    [row] = failures(store, RUNS_ASKED)
    assert (row["study"], row["seed"], row["error"]) == ("x", 2, "why")
    again = pa.Table.from_pylist([_result(RUNS_ASKED[2], status=OK)], schema=RUNS)
    pq.write_table(again, store.runs / "b.parquet")
    assert failures(store, RUNS_ASKED) == []


def test_a_damaged_file_is_one_line(store: Store) -> None:
    (store.runs / "c.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(LocalProtocolError, match=r"c\.parquet is damaged: `cubecast study run` moves it away"):
        find_pending_runs(store, RUNS_ASKED)

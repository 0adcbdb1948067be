"""A study that is killed goes on where it stopped, and ends with the same tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cubecast.lab.store import Store
from tests.spark.conftest import PLAN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 120


def _start(plans: Path, out: Path) -> subprocess.Popen[bytes]:
    words = ["study", "run", "--plans", str(plans), "--out", str(out), "--master", "local[2]", "--no-report"]
    command = [sys.executable, "-c", f"from cubecast.cli import main; main({words!r})"]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kill_after_files(process: subprocess.Popen[bytes], runs: Path, files: int) -> None:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until and process.poll() is None and len(list(runs.glob("*.parquet"))) < files:
        time.sleep(0.02)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _rows(runs: Path) -> list[tuple[str, str]]:
    rows = [row for path in runs.glob("*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted({(row["run_id"], repr(sorted(row["metrics"]))) for row in rows})


@pytest.mark.timeout(600)
def test_killed_twice_and_finished_with_identical_results(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    # Long enough to be killed in the middle: rounds that follow each other at once.
    text = PLAN.format(fixed="rounds = 2500\ndelta_ms = 0.0").replace("repeats = 4", "repeats = 12")
    (plans / "small.toml").write_text(text)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    counts = []
    for files in (2, 6):
        _kill_after_files(_start(plans, killed), Store(killed).runs, files)
        counts.append(len(_rows(Store(killed).runs)))
    assert _start(plans, killed).wait(SECONDS_MAX) == 0
    assert _start(plans, whole).wait(SECONDS_MAX) == 0
    assert 0 < counts[0] <= counts[1] < 72, "it was not killed in the middle"
    assert len(_rows(Store(whole).runs)) == 72
    assert _rows(Store(killed).runs) == _rows(Store(whole).runs)
    assert not (Store(killed).runs / "_temporary").exists()

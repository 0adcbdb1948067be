"""A study that is killed goes on where it stopped, and ends with the same tables."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cubecast.lab.store import Store
from tests.spark.conftest import LONG_RUNS, committed, finish_study, long_plans, start_study

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 120


def _kill_after_files(process: subprocess.Popen[bytes], runs: Path, files: int) -> None:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until and process.poll() is None and len(list(runs.glob("*.parquet"))) < files:
        time.sleep(0.02)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@pytest.mark.timeout(600)
def test_killed_twice_and_finished_with_identical_results(tmp_path: Path, whole: list[tuple[str, str]]) -> None:
    plans, killed = long_plans(tmp_path), tmp_path / "killed"
    counts = []
    for files in (1, 3):
        _kill_after_files(start_study(plans, killed, "local[2]"), killed / "runs", files)
        counts.append(len(committed(killed)))
    assert 0 < counts[0] <= counts[1] < LONG_RUNS, "it was not killed in the middle"
    assert finish_study(plans, killed) == LONG_RUNS - counts[1]
    assert committed(killed) == whole
    assert not (Store(killed).runs / "_temporary").exists()

"""A calibration that is killed goes on where it stopped, and finds the same setting, numbers and region."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cubecast.lab.calibrate import Calibrated, calibrate, result_path
from cubecast.lab.joint_space import plans_of
from cubecast.lab.load_plan import load_plans
from cubecast.lab.store import Store
from tests.spark.conftest import PLAN, committed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 400
SPACE = """\
[calibrate]
start = 2
rounds = 1
width = 4
repeats = 4
sweep.members = [8, 16, 24]
fixed.network = "random:degree={degree}"
between.degree = [2.0, 6.0]
among.routing = ["hops", "delay"]
"""
TEXT = PLAN.format(fixed="rounds = 600\ndelta_ms = 0.0") + SPACE
"""Long enough to be killed in the middle: rounds that follow each other at once."""


def _start(plans: Path, out: Path) -> subprocess.Popen[bytes]:
    words = ["study", "calibrate", "cube", "--plans", str(plans), "--out", str(out), "--master", "local[2]"]
    return subprocess.Popen(
        [sys.executable, "-c", f"from cubecast.cli import main; main({words!r})"],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        process_group=0,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _kill_after_runs(process: subprocess.Popen[bytes], out: Path, runs: int) -> int:
    """Kill it once so many runs are stored; gives how many are."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until and process.poll() is None and _stored(out) < runs:
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    return _stored(out)


def _stored(out: Path) -> int:
    try:
        return len(committed(out))
    except OSError:  # a file that Spark moves meanwhile
        return 0


def _finish(plans: Path, out: Path) -> Calibrated:
    chosen = plans_of("cube", load_plans(plans))
    return calibrate(
        chosen,
        Store(out),
        master="local[2]",
        conf=None,
        progress=lambda _done, _total: None,
        say=lambda _line: None,
    )


@pytest.mark.timeout(1500)
def test_a_killed_calibration_ends_with_identical_tables(tmp_path: Path, spark: Any) -> None:
    assert spark is not None
    plans, whole, killed = tmp_path / "plans", tmp_path / "whole", tmp_path / "killed"
    plans.mkdir()
    (plans / "small.toml").write_text(TEXT)
    found = _finish(plans, whole)
    all_runs = len(committed(whole))
    stored = [_kill_after_runs(_start(plans, killed), killed, runs) for runs in (1, all_runs // 2)]
    assert 0 < stored[0] <= stored[1] < all_runs, "it was not killed in the middle"
    assert not result_path(Store(killed), "cube").exists()
    assert _finish(plans, killed) == found
    assert result_path(Store(killed), "cube").read_bytes() == result_path(Store(whole), "cube").read_bytes()
    assert committed(killed) == committed(whole)

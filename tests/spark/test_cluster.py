"""A real standalone cluster on loopback: a worker is killed in mid-study, which ends with the same results."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.spark.conftest import LONG_RUNS, committed, long_plans, start_study
from tests.spark.standalone import kill, standalone_master, standalone_worker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 240


@pytest.mark.timeout(600)
def test_a_study_survives_the_death_of_a_worker(tmp_path: Path, whole: list[tuple[str, str]]) -> None:
    plans, cluster = long_plans(tmp_path), tmp_path / "cluster"
    with (
        standalone_master(tmp_path / "master") as master,
        standalone_worker(tmp_path / "one", master) as victim,
        standalone_worker(tmp_path / "two", master),
    ):
        study = start_study(plans, cluster, master)
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until and study.poll() is None and len(committed(cluster)) < 3:
            time.sleep(0.1)
        done = len(committed(cluster))
        kill(victim)
        assert study.wait(SECONDS_MAX) == 0
    assert 0 < done < LONG_RUNS, "the worker was not killed in the middle"
    assert committed(cluster) == whole


@pytest.mark.timeout(600)
def test_a_worker_without_the_folder_of_results_ends_the_study_with_one_line(tmp_path: Path) -> None:
    """In the worker's place of the folder there is an empty one; before, its results were lost without a word."""
    if os.geteuid() != 0:
        pytest.skip("a worker with other folders needs the right to mount one")
    plans, out = long_plans(tmp_path), tmp_path / "out"
    out.mkdir()
    with (
        standalone_master(tmp_path / "master") as master,
        standalone_worker(tmp_path / "worker", master, hidden=out),
        (tmp_path / "said").open("wb") as said,
    ):
        assert start_study(plans, out, master, stderr=said).wait(SECONDS_MAX) == 2
    line = (tmp_path / "said").read_text().splitlines()[-1]
    assert f"does not share {out} with the driver: choose a folder (--out) that all workers see" in line
    assert committed(out) == []

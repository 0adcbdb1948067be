"""A real standalone cluster on loopback: a worker is killed in mid-study, which ends with the same results."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cubecast.lab.store import Store
from tests.spark.conftest import PLAN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 240
RUNS = 2 * 3 * 12


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _spark_class(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A master or a worker, started from the PySpark package, in a process group of its own."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [str(home / "bin" / "spark-class"), *words],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"no Spark master on port {port} after a minute")


def _study(plans: Path, out: Path, master: str) -> subprocess.Popen[bytes]:
    words = ["study", "run", "--plans", str(plans), "--out", str(out), "--master", master, "--no-report"]
    return subprocess.Popen(
        [sys.executable, "-c", f"from cubecast.cli import main; main({words!r})"],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )


def _rows(runs: Path) -> list[tuple[str, str]]:
    rows = [row for path in runs.glob("*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted({(row["run_id"], repr(sorted(row["metrics"]))) for row in rows})


@pytest.mark.timeout(900)
def test_a_study_survives_the_death_of_a_worker(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    text = PLAN.format(fixed="rounds = 2500\ndelta_ms = 0.0").replace("repeats = 4", "repeats = 12")
    (plans / "small.toml").write_text(text)
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    place = ("--host", "127.0.0.1")
    worker = (f"{deploy}.worker.Worker", *place, "--cores", "1", "--memory", "2g", "--webui-port", "0", master)
    leader = (f"{deploy}.master.Master", *place, "--port", str(port), "--webui-port", "0")
    runs = Store(tmp_path / "cluster").runs
    with _spark_class(tmp_path / "master", *leader):
        _wait_for_port(port)
        with _spark_class(tmp_path / "one", *worker) as victim, _spark_class(tmp_path / "two", *worker):
            study = _study(plans, tmp_path / "cluster", master)
            until = time.monotonic() + SECONDS_MAX
            while time.monotonic() < until and study.poll() is None and len(list(runs.glob("*.parquet"))) < 3:
                time.sleep(0.05)
            done = len(_rows(runs))
            _kill(victim)
            assert study.wait(SECONDS_MAX) == 0
    assert 0 < done < RUNS, "the worker was not killed in the middle"
    assert _study(plans, tmp_path / "local", "local[2]").wait(SECONDS_MAX) == 0
    assert len(_rows(runs)) == RUNS
    assert _rows(runs) == _rows(Store(tmp_path / "local").runs)

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

import pytest

from cubecast.lab.spark.archive import use_archive
from cubecast.lab.spark.settings import QUICK_START
from tests.spark.conftest import LONG_RUNS, committed, long_plans, start_study

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 240


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _spark_class(folder: Path, *words: str, hidden: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A master or worker of the PySpark package, in a process group of its own; it finds `hidden` empty."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    hide = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]
    process = subprocess.Popen(
        [*(hide if hidden is not None else []), str(home / "bin" / "spark-class"), *words],
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_START} {use_archive()}",
            "PYSPARK_PYTHON": sys.executable,
        },
        cwd=folder,
        process_group=0,
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
    until = time.monotonic() + 180
    while time.monotonic() < until:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"no Spark master on port {port} after three minutes")


@pytest.mark.timeout(600)
def test_a_study_survives_the_death_of_a_worker(tmp_path: Path, whole: list[tuple[str, str]]) -> None:
    plans, cluster = long_plans(tmp_path), tmp_path / "cluster"
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    place = ("--host", "127.0.0.1")
    worker = (f"{deploy}.worker.Worker", *place, "--cores", "1", "--memory", "2g", "--webui-port", "0", master)
    leader = (f"{deploy}.master.Master", *place, "--port", str(port), "--webui-port", "0")
    with _spark_class(tmp_path / "master", *leader):
        _wait_for_port(port)
        with _spark_class(tmp_path / "one", *worker) as victim, _spark_class(tmp_path / "two", *worker):
            study = start_study(plans, cluster, master)
            until = time.monotonic() + SECONDS_MAX
            while time.monotonic() < until and study.poll() is None and len(committed(cluster)) < 3:
                time.sleep(0.1)
            done = len(committed(cluster))
            _kill(victim)
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
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy, place = "org.apache.spark.deploy", ("--host", "127.0.0.1")
    worker = (f"{deploy}.worker.Worker", *place, "--cores", "1", "--memory", "2g", "--webui-port", "0", master)
    leader = (f"{deploy}.master.Master", *place, "--port", str(port), "--webui-port", "0")
    with _spark_class(tmp_path / "master", *leader):
        _wait_for_port(port)
        with _spark_class(tmp_path / "worker", *worker, hidden=out), (tmp_path / "said").open("wb") as said:
            assert start_study(plans, out, master, stderr=said).wait(SECONDS_MAX) == 2
    told = (tmp_path / "said").read_text().splitlines()[-1]
    assert f"does not share {out} with the driver: choose a folder (--out) that all workers see" in told
    assert committed(out) == []

"""A real standalone cluster on loopback: a master and workers, each in a process group of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cubecast.lab.spark.archive import use_archive
from cubecast.lab.spark.settings import QUICK_START
from tests.support.ports import wait_for_port

START_S_MAX = 180
_DEPLOY = "org.apache.spark.deploy"
_PLACE = ("--host", "127.0.0.1", "--webui-port", "0")


@contextmanager
def standalone_master(folder: Path) -> Iterator[str]:
    """A master that is up; gives its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    with _spark_class(folder, f"{_DEPLOY}.master.Master", *_PLACE, "--port", str(port)):
        wait_for_port(port, "Spark master", START_S_MAX)
        yield f"spark://127.0.0.1:{port}"


@contextmanager
def standalone_worker(folder: Path, master: str, *, hidden: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with one core, which finds the folder `hidden` empty where root can arrange that."""
    words = (f"{_DEPLOY}.worker.Worker", *_PLACE, "--cores", "1", "--memory", "2g", master)
    with _spark_class(folder, *words, hidden=hidden) as process:
        yield process


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@contextmanager
def _spark_class(folder: Path, *words: str, hidden: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    hide = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]
    process = subprocess.Popen(
        [*(hide if hidden is not None and os.geteuid() == 0 else []), str(home / "bin" / "spark-class"), *words],
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
        kill(process)

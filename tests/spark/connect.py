"""A Spark Connect server on loopback, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.standalone import kill

START_S_MAX = 180


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server with two cores that is up; gives its address."""
    pyspark = pytest.importorskip("pyspark")
    pytest.importorskip("grpc")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    home = Path(pyspark.__file__).parent
    words = [
        *(str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "2g"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(
            "--conf",
            f"spark.connect.grpc.binding.port={port}",
            "--conf",
            "spark.connect.grpc.binding.address=127.0.0.1",
        ),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=4", "--name", "connect"),
        "spark-internal",
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    log = folder / "connect.log"
    with log.open("wb") as file:
        process = subprocess.Popen(words, env=environment, cwd=folder, process_group=0, stdout=file, stderr=file)
    try:
        _wait_for(port, process, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill(process)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S_MAX
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.3)
    pytest.fail(f"no Spark Connect server on port {port}: {log.read_text()[-2000:]}")

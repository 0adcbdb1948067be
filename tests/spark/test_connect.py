"""A study and a pass over traces on a Spark Connect server: the tables are those of Spark in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import cubecast
from cubecast.errors import LocalProtocolError
from cubecast.lab.java import require_java
from tests.spark.conftest import PLAN, comparable
from tests.spark.connect import connect_server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
COMMAND = [sys.executable, "-c", "from cubecast.cli import main; main()", "study"]


def _tell(*words: str) -> str:
    """The command line in a process of its own: a process has one kind of Spark."""
    done = subprocess.run([*COMMAND, *words], env=os.environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _values(out: Path, table: str) -> list[str]:
    files = (out / "tables" / table / "study=small").glob("*.parquet")
    rows = [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]
    return comparable(rows)


def test_a_study_and_a_check_on_connect_give_what_spark_gives_here(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    try:
        require_java()
    except LocalProtocolError as error:
        pytest.skip(str(error))
    plan = tmp_path / "small.toml"
    plan.write_text(PLAN.format(fixed=""))
    traces = tmp_path / "traces"
    traces.mkdir()
    cubecast.simulate("coord", members=12, loss=0.1, trace=traces / "run.parquet")
    with connect_server(tmp_path) as address:
        _tell("run", str(plan), "--master", address, "--out", str(tmp_path / "connect"))
        found = json.loads(_tell("check", str(traces), "--master", address, "--json"))
    _tell("run", str(plan), "--master", "local[2]", "--out", str(tmp_path / "here"), "--no-report")
    for table in ("points", "values", "summary", "findings"):
        assert _values(tmp_path / "connect", table) == _values(tmp_path / "here", table), table
    assert (tmp_path / "connect" / "report" / "index.html").is_file()
    assert found["violations"] == []
    assert all(row["agree"] for row in found["metrics"])
    assert len(found["metrics"]) > 5

"""A protocol of a stranger, in one file outside of the package, swept over its own parameter on Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.java import require_java
from cubecast.lab.store import Store
from tests.spark.standalone import standalone_master, standalone_worker
from tests.support.pledge import round_messages, write_pledge

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PLAN = """\
id = "copies"
paper = "own"
title = "a protocol of my own"
protocols = ["pledge"]
[fixed]
members = 8
network = "star"
[sweep]
copies = [1, 2, 5]
[quick]
repeats = 2
[full]
repeats = 2
[[figure]]
id = "1"
title = "messages"
x = "copies"
y = "messages"
"""
RUNS = 6
COMMAND = [sys.executable, "-c", "from cubecast.cli import main; main()", "study"]


@pytest.fixture(autouse=True)
def java() -> None:
    pytest.importorskip("pyspark")
    try:
        require_java()
    except LocalProtocolError as error:
        pytest.skip(str(error))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan that sweeps the parameter of the protocol."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def _study(word: str, plan: Path, own: Path, *more: str) -> str:
    """Run the command line in a process of its own; gives its output."""
    words = [*COMMAND, word, str(plan), "--protocol-file", str(own), "--out", str(plan.parent / "out"), *more]
    done = subprocess.run(
        words, cwd=plan.parent, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _results(plan: Path) -> list[dict[str, Any]]:
    files = Store(plan.parent / "out").runs.glob("*.parquet")
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def _require_all_done(plan: Path) -> None:
    """Every run is there and cost what its parameter says."""
    results = _results(plan)
    assert [row["error"] for row in results] == [None] * RUNS
    found = sorted((json.loads(row["settings"])["copies"], dict(row["metrics"])["messages"]) for row in results)
    assert found == [(copies, round_messages(8, copies)) for copies in (1, 2, 5) for _ in range(2)]


@pytest.mark.slow
def test_its_parameter_is_swept_and_an_edit_makes_the_runs_pending_again(plan: Path, tmp_path: Path) -> None:
    own = write_pledge(tmp_path / "own")
    _study("run", plan, own, "--master", "local[2]", "--no-report")
    _require_all_done(plan)
    [row] = json.loads(_study("status", plan, own, "--json"))
    assert (row["runs"], row["done"], row["other_code"]) == (RUNS, RUNS, 0)
    write_pledge(tmp_path / "own", ("at_most=8", "at_most=9"))
    [row] = json.loads(_study("status", plan, own, "--json"))
    assert (row["done"], row["other_code"]) == (0, RUNS)


@pytest.mark.slow
def test_the_file_travels_to_a_worker_that_does_not_have_it(plan: Path, tmp_path: Path) -> None:
    """A standalone cluster: the worker has another working directory, and an empty folder in place of the file's."""
    own = write_pledge(tmp_path / "own")
    with (
        standalone_master(tmp_path / "master") as master,
        standalone_worker(tmp_path / "worker", master, hidden=own.parent),
    ):
        _study("run", plan, own, "--master", master, "--no-report")
    _require_all_done(plan)

"""One Spark for the whole test session: whatever asks for a session inside gets the running one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.java import require_java
from cubecast.lab.load_plan import load_plan
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome, run_studies
from tests.support.s3_server import CREDENTIALS

PLAN = """\
id = "small"
paper = "cube"
title = "a small study"
protocols = ["coord", "cube_full_dist"]
[fixed]
network = "random:degree=3"
{fixed}
[sweep]
members = [8, 16, 24]
[quick]
repeats = 4
[full]
repeats = 5
[[figure]]
id = "1"
title = "RTT"
x = "members"
y = "rtt_last_ms"
[[claim]]
id = "more"
text = "CubeFullDist sends more."
source = "here"
figures = ["1"]
[[claim.test]]
kind = "ratio"
metric = "messages"
top = {{ protocol = "cube_full_dist" }}
bottom = {{ protocol = "coord" }}
above = 1.0
"""

Study = Callable[..., StudyOutcome]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The Spark of the test session, if there is a Java for it; `make test` sees to that."""
    pytest.importorskip("pyspark")
    try:
        require_java()
    except LocalProtocolError as error:
        pytest.skip(str(error))
    from cubecast.lab.spark.session import session

    credentials = {f"spark.executorEnv.{name}": value for name, value in CREDENTIALS.items()}
    with session("local[2]", conf=credentials) as running:
        yield running


def run_small(
    folder: Path, out: Path, *, fixed: str = "", said: list[str] | None = None, **how: object
) -> StudyOutcome:
    """Run the small study, its plan in one folder, its results in another."""
    path = folder / "small.toml"
    path.write_text(PLAN.format(fixed=fixed))
    return run_studies(
        [load_plan(path)],
        "quick",
        Store(out),
        master="local[2]",
        progress=lambda _done, _total: None,
        say=(said if said is not None else []).append,
        **how,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> tuple[StudyOutcome, Path]:
    """The small study, run once for all tests that only look at what it gave, and where its results are."""
    assert spark is not None
    folder = tmp_path_factory.mktemp("first")
    return run_small(folder, folder / "out"), folder / "out"


@pytest.fixture
def study(tmp_path: Path, spark: Any) -> Study:
    """Run the small study into a folder; says what it was told through `said`."""
    assert spark is not None

    def run(out: Path | str = "out", **how: Any) -> StudyOutcome:
        return run_small(tmp_path, tmp_path / out, **how)

    return run


@pytest.fixture
def again(tmp_path: Path, first: tuple[StudyOutcome, Path]) -> Study:
    """The same, in a folder that has the results of the first time."""
    shutil.copytree(first[1], tmp_path / "out")

    def run(**how: Any) -> StudyOutcome:
        return run_small(tmp_path, tmp_path / "out", **how)

    return run


LONG = PLAN.format(fixed="rounds = 1000\ndelta_ms = 0.0").replace("repeats = 4", "repeats = 12")
"""Long enough to be killed in the middle: rounds that follow each other at once."""
LONG_RUNS = 2 * 3 * 12


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> list[tuple[str, str]]:
    """What the long study gives when nothing happens to it."""
    assert spark is not None
    folder = tmp_path_factory.mktemp("whole")
    plans = long_plans(folder)
    assert finish_study(plans, folder / "out") == LONG_RUNS
    return committed(folder / "out")


def long_plans(folder: Path) -> Path:
    """A folder with the long study in it."""
    plans = folder / "plans"
    plans.mkdir()
    (plans / "small.toml").write_text(LONG)
    return plans


def start_study(plans: Path, out: Path, master: str, stderr: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A study in a process group of its own."""
    words = ["study", "run", "--plans", str(plans), "--out", str(out), "--master", master, "--no-report"]
    return subprocess.Popen(
        [sys.executable, "-c", f"from cubecast.cli import main; main({words!r})"],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        process_group=0,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def finish_study(plans: Path, out: Path) -> int:
    """Do what is left of a study in this process; gives how many runs that was."""
    return run_studies(
        [load_plan(path) for path in plans.glob("*.toml")],
        "quick",
        Store(out),
        master="local[2]",
        progress=lambda _done, _total: None,
        say=lambda _line: None,
    ).done_now


def committed(out: Path) -> list[tuple[str, str]]:
    """The results in a folder: the name of each run and all its metrics."""
    files = Store(out).runs.glob("*.parquet")
    rows = [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted({(row["run_id"], repr(sorted(row["metrics"]))) for row in rows})


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own, with numbers as far as the order of a sum does not change them."""
    short = [
        {name: f"{value:.9g}" if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    return sorted(repr(sorted(row.items())) for row in short)

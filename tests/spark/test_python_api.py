"""`cubecast.study`: the tables of a study as data frames, and the notebook that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cubecast
from cubecast.errors import LocalProtocolError
from cubecast.lab.own_code import load_code_file
from cubecast.lab.report import write_report
from cubecast.lab.spark.tracefiles import find_traces
from cubecast.lab.spark.traces import check_traces
from cubecast.lab.store import Store
from tests.support.notebooks import code_cells, execute, texts
from tests.support.own_protocols import restored_catalogue

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples"
TABLE = {
    "id": "frames",
    "protocols": ["coord", "cube_full_dist"],
    "fixed": {"network": "random:degree=3"},
    "sweep": {"members": [8, 16]},
    "metrics": ["messages"],
    "repeats": 3,
}


@pytest.fixture(autouse=True)
def _forget(spark: Any) -> Iterator[None]:
    assert spark is not None
    with restored_catalogue():
        yield


def test_the_frames_agree_with_each_other_and_with_single_runs(tmp_path: Path, spark: Any) -> None:
    result = cubecast.study(TABLE, out=tmp_path)
    assert result.failures == []
    assert result.findings.empty
    assert result.verdicts.empty
    assert len(result.points) == 4
    assert len(result.values) == len(result.runs) == 12
    by_hand = result.values.groupby(["protocol", "members"]).value.mean()
    summary = result.summary.set_index(["protocol", "members"])["mean"]
    assert summary.sort_index().to_dict() == pytest.approx(by_hand.sort_index().to_dict())
    one = result.values.query("protocol == 'coord' and members == 16 and seed == 2").value.item()
    assert one == cubecast.simulate("coord", members=16, network="random:degree=3", seed=2).messages
    assert result.to_spark(spark, "values").count() == 12
    assert dict(result.runs.versions[0])["cubecast"] == cubecast.__version__
    with pytest.raises(LocalProtocolError, match="table 'nothing': choose one of points, values"):
        result.to_spark(spark, "nothing")


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    assert cubecast.study(TABLE, out=tmp_path).outcome.done_now == 12
    assert cubecast.study(TABLE, out=tmp_path).outcome.done_now == 0
    assert cubecast.study({**TABLE, "repeats": 4}, out=tmp_path).outcome.done_now == 4


def test_a_size_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(LocalProtocolError, match="size = 'large': choose one of quick, full"):
        cubecast.study(TABLE, size="large")


def test_a_plan_file_with_code_of_ones_own_runs_on_spark(tmp_path: Path) -> None:
    result = cubecast.study(EXAMPLES / "ladder.toml", out=tmp_path)
    assert result.failures == []
    assert set(result.summary.metric) == {"gap_ms", "busiest_share", "violations_no_burst"}
    assert result.verdicts.verdict.tolist() == ["holds everywhere"]


ODD_METRIC = """\
import math
from cubecast.lab.own_metrics import OwnMetric
METRIC = OwnMetric(name="odd", measure=lambda result: {0: math.nan, 1: math.inf}.get(result.seed, 3.0), title="odd")
"""
ODD_PLAN = """\
id = "odd"
paper = "own"
title = "odd"
protocols = ["coord"]
code.files = ["odd_metric.py"]
[fixed]
network = "random:degree=3,bandwidth={bandwidth}"
[sweep]
members = [8, 16]
bandwidth = ["2e6", 1000000]
[quick]
repeats = 4
[full]
repeats = 4
[[figure]]
id = "1"
title = "odd"
x = "members"
y = "odd"
panel = "bandwidth"
[[claim]]
id = "three"
text = "It is three."
source = "here"
readings = ["bandwidth"]
figures = ["1"]
[[claim.test]]
kind = "value"
metric = "odd"
between = [2, 4]
"""


def test_a_value_that_is_no_number_is_no_value_and_parameters_may_be_of_several_types(tmp_path: Path) -> None:
    (tmp_path / "odd_metric.py").write_text(ODD_METRIC)
    path = tmp_path / "odd.toml"
    path.write_text(ODD_PLAN)
    result = cubecast.study(path, out=tmp_path / "out")
    assert result.summary.query("metric == 'odd'").n.tolist() == [2] * 4
    assert result.verdicts.verdict.tolist() == ["holds everywhere"]
    page = Path(str(write_report(result.outcome, Store(tmp_path / "out"))))
    assert "It is three." in page.read_text()
    assert (tmp_path / "out/tables/odd-fig-1.csv").read_text().count('"1000000"') == 2


def test_workers_judge_traces_by_a_checker_of_ones_own(tmp_path: Path, spark: Any) -> None:
    file = tmp_path / "strict_ladder.py"
    file.write_text((EXAMPLES / "ladder.py").read_text().replace("COPIES_MAX = 256", "COPIES_MAX = 2"))
    load_code_file(file)
    cubecast.simulate("coord", members=8, network="star", trace=tmp_path / "run.parquet")
    found = check_traces(spark, find_traces(tmp_path))
    assert {one["checker"] for one in found} == {"no burst"}


def test_the_notebook_gives_the_outputs_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tests.support.notebooks study.ipynb` in examples/ writes them again."""
    monkeypatch.chdir(EXAMPLES)
    notebook = json.loads((EXAMPLES / "study.ipynb").read_text("utf-8"))
    shown = [cell["outputs"] for cell in code_cells(notebook)]
    assert texts(execute(notebook)) == texts(shown)
    assert sum(bool(one) for cell in texts(shown) for one in cell) >= 5

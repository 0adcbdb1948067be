"""Studies on Spark: the same results as without it, resumed where they stopped, whatever happened to the files."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from cubecast.cli.app import run as run_command
from cubecast.lab.batch import run_row
from cubecast.lab.claims import EVERYWHERE, Answers, judge
from cubecast.lab.load_plan import load_plan
from cubecast.lab.questions import FINDINGS, FINDINGS_DDL
from cubecast.lab.runs import canonical, points_of
from cubecast.lab.schema import RUNS, RUNS_DDL
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome, run_studies
from cubecast.lab.tables import parameter_column, write_tables
from cubecast.lab.task_file import pending_row
from cubecast.lab.toml_lines import key_lines, line_of
from tests.spark.conftest import PLAN, Study

pytestmark = [pytest.mark.spark]

RUNS_IN_ALL = 2 * 3 * 4


Rows = list[dict[str, Any]]


def _table(out: Path, name: str) -> Rows:
    """The rows of a table on disk, as anybody would read them."""
    rows = pd.read_parquet(out / "tables" / name).astype({"study": str}).to_dict("records")
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


First = tuple[StudyOutcome, Path]


def test_spark_gives_what_one_process_gives_bit_for_bit(first: First) -> None:
    outcome, out = first
    points = points_of(outcome.plans[0], "quick")
    found = {(row["point"], row["seed"], row["metric"]): row["value"] for row in _table(out, "values")}
    expected: dict[tuple[int, int, str], float] = {}
    for run in outcome.runs:
        metrics = dict(run_row(pending_row(run))["metrics"])
        # Only what the plan draws or tests, and the lower bounds of what it draws.
        names = [name for name in outcome.plans[0].measured if name in metrics]
        assert {"rtt_last_ms", "messages"} < set(names) < set(metrics)
        expected |= {(points.index(run.point), run.seed, name): metrics[name] for name in names}
    assert found == expected


def test_statistics_are_those_of_scipy(first: First) -> None:
    outcome, out = first
    assert outcome.summary is not None
    assert outcome.summary.num_rows == 2 * 3 * 3, "two metrics, and a lower bound"
    for row in outcome.summary.to_pylist():
        own = [
            one["value"]
            for one in _table(out, "values")
            if one["point"] == row["point"] and one["metric"] == row["metric"]
        ]
        values = np.array(own, float)
        assert row["n"] == 4
        assert row["mean"] == pytest.approx(values.mean())
        assert row["sd"] == pytest.approx(values.std(ddof=1), abs=1e-9)
        assert (row["smallest"], row["largest"]) == (values.min(), values.max())
        reach = stats.t.ppf(0.975, 3) * values.std(ddof=1) / math.sqrt(4)
        assert row["ci_high"] - row["mean"] == pytest.approx(reach, abs=1e-9)


def test_the_same_plan_twice_runs_nothing(first: First, again: Study, tmp_path: Path) -> None:
    second = again()
    assert (first[0].done_now, second.done_now) == (RUNS_IN_ALL, 0)
    for name in ("values", "summary", "findings", "points"):
        assert _table(first[1], name) == _table(tmp_path / "out", name) != []
    assert first[0].summary == second.summary


def test_lost_and_damaged_files_are_made_up_for(first: First, again: Study, tmp_path: Path) -> None:
    files = sorted((tmp_path / "out" / "runs").glob("*.parquet"))
    assert files
    lost = pq.read_metadata(files[0]).num_rows
    files[0].write_bytes(files[0].read_bytes()[:100])
    said: list[str] = []
    second = again(said=said)
    assert second.done_now == lost
    assert any("damaged, moved away" in line for line in said)
    assert _table(first[1], "values") == _table(tmp_path / "out", "values")


def test_a_changed_plan_does_not_show_old_results(again: Study) -> None:
    said: list[str] = []
    changed = again(fixed="rounds = 2", said=said)
    assert changed.done_now == RUNS_IN_ALL
    assert any(line.startswith(f"{RUNS_IN_ALL} results on disk belong to runs") for line in said)
    assert {json.loads(row["settings"])["rounds"] for row in _settings(changed)} == {2}


def _settings(outcome: object) -> list[dict[str, str]]:
    return [{"settings": canonical(run.settings)} for run in outcome.runs]  # type: ignore[attr-defined]


def test_results_of_other_code_are_not_used(again: Study, tmp_path: Path) -> None:
    for path in list((tmp_path / "out" / "runs").glob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        path.unlink()
        other = table.set_column(
            table.column_names.index("code"), RUNS.field("code"), pa.array(["0123456789abcdef"] * len(table))
        )
        pq.write_table(other, path.with_name(f"other-{path.name}"))  # Hadoop has a checksum of the old name
    said: list[str] = []
    assert again(said=said).done_now == RUNS_IN_ALL
    assert any("different code version" in line for line in said)


def test_failed_runs_are_rows_and_are_reported(study: Study, tmp_path: Path) -> None:
    outcome = study(fixed="packets_max = 60")
    assert 0 < len(outcome.failures) < RUNS_IN_ALL
    assert all("packets_max = 60" in one["error"] for one in outcome.failures)
    assert all(json.loads(one["settings"])["seed"] == one["seed"] for one in outcome.failures)
    measured = {(row["point"], row["seed"]) for row in _table(tmp_path / "out", "values")}
    assert len(measured) == RUNS_IN_ALL - len(outcome.failures)
    assert study(fixed="packets_max = 60").done_now == 0
    assert study(fixed="packets_max = 60", retry_failed=True).done_now == len(outcome.failures)


def test_a_study_whose_runs_all_fail_says_so(tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    path = tmp_path / "small.toml"
    path.write_text(PLAN.format(fixed="packets_max = 1"))
    assert run_command(["study", "run", str(path), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert f"no report, all {RUNS_IN_ALL} runs failed" in told
    assert "Traceback" not in told
    assert "packets_max = 1" in told


def test_tables_and_verdicts_come_out(first: First, tmp_path: Path) -> None:
    outcome = first[0]
    Store(tmp_path / "out").make()
    rows = write_tables(Store(tmp_path / "out"), outcome.plans[0], "quick", outcome.summary)["1"]
    assert [row["members"] for row in rows if row["protocol"] == "coord"] == [8, 16, 24]
    text = (tmp_path / "out" / "tables" / "small-fig-1.csv").read_text()
    assert len(text.splitlines()) == 1 + 9, "the lower bound too"
    assert outcome.findings is not None
    findings = outcome.findings.to_pylist()
    [plan] = outcome.plans
    answers = Answers(plan=plan, points=points_of(plan, "quick"), with_data=set(range(6)), findings=findings)
    [judgement] = judge([answers])["small"]
    assert judgement.verdict == EVERYWHERE
    assert {(row["study"], row["claim"], row["test"], row["reading"], row["n"]) for row in findings} == {
        ("small", "more", 0, 0, 4)
    }
    assert {row["outcome"] for row in findings} == {"holds"}, "judged on Spark"
    assert {dict(row["point"])["members"] for row in findings} == {"8", "16", "24"}


def test_tables_of_other_studies_stay(again: Study, tmp_path: Path) -> None:
    for name in ("values", "summary", "findings"):
        shutil.copytree(tmp_path / "out/tables" / name / "study=small", tmp_path / "out/tables" / name / "study=other")
    outcome = again()
    assert {row["study"] for row in _table(tmp_path / "out", "values")} == {"small", "other"}
    assert outcome.summary is not None
    assert set(outcome.summary.column("study").to_pylist()) == {"small"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 2.5], [1.0, 2.5]), ([True, False], [True, False]), (["all", 3], ["all", "3"]), ([True, 2], ["True", "2"])],
)
def test_a_parameter_has_one_type(values: list[Any], expected: list[Any]) -> None:
    assert parameter_column(values).to_pylist() == expected


def test_points_have_a_column_per_parameter(first: First) -> None:
    found = [(row["point"], row["protocol"], row["members"]) for row in _table(first[1], "points")]
    assert sorted(found)[:2] == [(0, "coord", 8), (1, "coord", 16)]


@pytest.mark.parametrize(("schema", "ddl"), [(RUNS, RUNS_DDL), (FINDINGS, FINDINGS_DDL)])
def test_the_two_spellings_of_a_schema_agree(schema: pa.Schema, ddl: str) -> None:
    spark = pytest.importorskip("pyspark.sql.types")
    spelled = {field.name: field.dataType.simpleString() for field in spark._parse_datatype_string(ddl).fields}
    kinds = {"string": "string", "int64": "bigint", "int32": "int", "double": "double"}
    kinds |= {"map<string, double>": "map<string,double>", "map<string, string>": "map<string,string>"}
    assert spelled == {field.name: kinds[str(field.type)] for field in schema}


PRECISE = """\
id = "precise"
paper = "own"
title = "a study with a precision"
protocols = ["coord"]
[fixed]
network = "random:degree=3"
[sweep]
members = [8, 24]
[quick]
repeats = 3
precision = 0.05
repeats_max = 12
[full]
repeats = 3
[[figure]]
id = "1"
title = "RTT"
x = "members"
y = "rtt_last_ms"
"""


def test_a_precision_adds_seeds_up_to_its_cap_and_a_repeated_study_the_same(tmp_path: Path, spark: Any) -> None:
    assert spark is not None
    path = tmp_path / "precise.toml"
    path.write_text(PRECISE)
    plan = load_plan(path)

    def run(out: str, *, only_read: bool = False) -> tuple[StudyOutcome, list[str]]:
        said: list[str] = []
        how: dict[str, Any] = {"master": "local[2]", "progress": lambda _done, _total: None, "say": said.append}
        return run_studies([plan], "quick", Store(tmp_path / out), only_read=only_read, **how), said

    first, said = run("out")
    assert first.summary is not None
    counts = {row["point"]: row["n"] for row in first.summary.to_pylist() if row["metric"] == "rtt_last_ms"}
    assert set(counts.values()) <= {5, 8, 12}, "the looks"
    assert first.done_now == sum(counts.values()) > 2 * 3
    open_at_cap = [line for line in said if "not within precision = 0.05 after 12 seeds; results kept" in line]
    assert bool(open_at_cap) == (12 in counts.values())
    assert all(line.startswith(f"{path}:{line_of(key_lines(PRECISE), 'quick', 'precision')}: ") for line in open_at_cap)
    again, _ = run("out")
    assert again.done_now == 0
    assert again.summary == first.summary
    read, _ = run("out", only_read=True)
    assert read.summary == first.summary
    # Of what an interrupted study left, any part is enough to go on to the same end.
    files = sorted((tmp_path / "out" / "runs").glob("*.parquet"))
    (tmp_path / "half" / "runs").mkdir(parents=True)
    for one in files[: len(files) // 2]:
        shutil.copy(one, tmp_path / "half" / "runs")
    resumed, _ = run("half")
    assert 0 < resumed.done_now < first.done_now
    assert resumed.summary == first.summary

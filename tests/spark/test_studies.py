"""Studies on Spark: the same results as without it, resumed where they stopped, whatever happened to the files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from cubecast.lab.batch import run_row
from cubecast.lab.claims import CONFIRMED, judge
from cubecast.lab.runs import canonical
from cubecast.lab.schema import RUNS, RUNS_DDL
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome
from cubecast.lab.tables import write_tables
from tests.spark.conftest import Study

pytestmark = [pytest.mark.spark]

RUNS_IN_ALL = 2 * 3 * 4


def _sorted(table: pa.Table | None) -> list[dict[str, object]]:
    assert table is not None
    return sorted(table.to_pylist(), key=lambda row: json.dumps(row, sort_keys=True))


First = tuple[StudyOutcome, Path]


def test_spark_gives_what_one_process_gives_bit_for_bit(first: First) -> None:
    outcome = first[0]
    expected = []
    for run in outcome.runs:
        row = {"run_id": run.id, "code": "", "experiment": run.experiment, "settings": canonical(run.settings)}
        for metric, value in run_row(row)["metrics"]:
            point = canonical(run.point)
            expected.append({"study": "small", "point": point, "seed": run.seed, "metric": metric, "value": value})
    assert _sorted(outcome.values) == _sorted(pa.Table.from_pylist(expected))


def test_statistics_are_those_of_scipy(first: First) -> None:
    outcome = first[0]
    assert outcome.summary is not None
    for row in outcome.summary.to_pylist():
        own = [
            one["value"]
            for one in _sorted(outcome.values)
            if one["point"] == row["point"] and one["metric"] == row["metric"]
        ]
        values = np.array(own, float)
        assert row["n"] == 4
        assert row["mean"] == pytest.approx(values.mean())
        assert row["sd"] == pytest.approx(values.std(ddof=1), abs=1e-9)
        assert (row["smallest"], row["largest"]) == (values.min(), values.max())
        reach = stats.t.ppf(0.975, 3) * values.std(ddof=1) / math.sqrt(4)
        assert row["ci_high"] - row["mean"] == pytest.approx(reach, abs=1e-9)


def test_the_same_plan_twice_runs_nothing(first: First, again: Study) -> None:
    second = again()
    assert (first[0].done_now, second.done_now) == (RUNS_IN_ALL, 0)
    assert _sorted(first[0].values) == _sorted(second.values)
    assert first[0].summary == second.summary


def test_lost_and_damaged_files_are_made_up_for(first: First, again: Study, tmp_path: Path) -> None:
    files = sorted((tmp_path / "out" / "runs").glob("*.parquet"))
    assert files
    lost = pq.read_metadata(files[0]).num_rows
    files[0].write_bytes(files[0].read_bytes()[:100])
    said: list[str] = []
    second = again(said=said)
    assert second.done_now == lost
    assert any("damaged, set aside" in line for line in said)
    assert _sorted(first[0].values) == _sorted(second.values)


def test_a_changed_plan_does_not_show_old_results(again: Study) -> None:
    said: list[str] = []
    changed = again(fixed="rounds = 2", said=said)
    assert changed.done_now == RUNS_IN_ALL
    assert any(line.startswith(f"{RUNS_IN_ALL} results on disk belong to runs") for line in said)
    assert {json.loads(row["settings"])["rounds"] for row in _settings(changed)} == {2}


def _settings(outcome: object) -> list[dict[str, str]]:
    return [{"settings": canonical(run.settings)} for run in outcome.runs]  # type: ignore[attr-defined]


def test_results_of_other_code_are_not_used(again: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubecast.lab.runs.source_hash", lambda _settings: "0123456789abcdef")
    said: list[str] = []
    assert again(said=said).done_now == RUNS_IN_ALL
    assert any("different code version" in line for line in said)


def test_failed_runs_are_rows_and_are_reported(study: Study) -> None:
    outcome = study(fixed="packets_max = 60")
    assert 0 < len(outcome.failures) < RUNS_IN_ALL
    assert all("packets_max = 60" in one["error"] for one in outcome.failures)
    assert all(json.loads(one["settings"])["seed"] == one["seed"] for one in outcome.failures)
    assert outcome.values is not None
    measured = {(row["point"], row["seed"]) for row in outcome.values.to_pylist()}
    assert len(measured) == RUNS_IN_ALL - len(outcome.failures)
    assert study(fixed="packets_max = 60").done_now == 0
    assert study(fixed="packets_max = 60", retry_failed=True).done_now == len(outcome.failures)


def test_tables_and_verdicts_come_out(first: First, tmp_path: Path) -> None:
    outcome = first[0]
    Store(tmp_path / "out").make()
    rows = write_tables(Store(tmp_path / "out"), outcome.plans[0], outcome.summary)["1"]
    assert [row["members"] for row in rows if row["protocol"] == "coord"] == [8, 16, 24]
    text = (tmp_path / "out" / "tables" / "small-fig-1.csv").read_text()
    assert len(text.splitlines()) == 1 + 6
    assert [one.verdict for one in judge(outcome.plans[0], outcome.values)] == [CONFIRMED]


def test_the_two_spellings_of_the_schema_agree() -> None:
    spark = pytest.importorskip("pyspark.sql.types")
    ddl = {field.name: field.dataType.simpleString() for field in spark._parse_datatype_string(RUNS_DDL).fields}
    kinds = {"string": "string", "int64": "bigint", "double": "double", "map<string, double>": "map<string,double>"}
    assert ddl == {field.name: kinds[str(field.type)] for field in RUNS}

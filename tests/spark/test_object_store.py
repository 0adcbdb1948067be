"""Studies and traces in an object store: runs, tables, report and traces, and a study that goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import cubecast
from cubecast.lab.remote import RemotePath, dataset_of, path_of, source
from cubecast.lab.spark.metrics import recompute
from cubecast.lab.spark.tracefiles import find_traces
from cubecast.lab.spark.traces import check_traces
from cubecast.lab.study import StudyOutcome
from tests.spark.conftest import comparable, run_small
from tests.support.own_protocols import restored_catalogue
from tests.support.s3_server import own_bucket

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The driver has the credentials in its environment, the workers in the settings of Spark (`conftest.spark`)."""
    with own_bucket(tmp_path_factory.mktemp("s3")) as address:
        yield address


def _rows(place: Any) -> list[str]:
    return comparable(dataset_of(place).to_table().to_pylist())


def test_a_study_in_a_store_gives_the_tables_of_one_in_a_folder(
    tmp_path: Path, bucket: str, spark: Any, first: tuple[StudyOutcome, Path]
) -> None:
    root = path_of(bucket.format("/results"))
    assert isinstance(root, RemotePath)
    outcome = run_small(tmp_path, root)  # type: ignore[arg-type]
    assert (outcome.done_now, outcome.failures) == (24, [])
    for table in ("points", "values", "summary", "findings"):
        study = root / "tables" / table / "study=small"
        assert _rows(study) == _rows(first[1] / "tables" / table / "study=small"), table
    assert list(root.glob(".tasks-*")) == list(root.glob(".rows-*")) == []
    some = next((root / "runs").glob("*.parquet"))
    lost = pq.read_metadata(source(some)).num_rows
    some.unlink()
    assert run_small(tmp_path, root).done_now == lost  # type: ignore[arg-type]
    assert run_small(tmp_path, root).done_now == 0  # type: ignore[arg-type]


def test_a_plan_and_its_code_in_a_store(bucket: str, spark: Any) -> None:
    for name in ("ladder.py", "ladder.toml"):
        (path_of(bucket.format("/plans")) / name).write_bytes((EXAMPLES / name).read_bytes())
    with restored_catalogue():
        result = cubecast.study(bucket.format("/plans/ladder.toml"), out=bucket.format("/ladder"))
        assert result.failures == []
        assert set(result.summary.metric) == {"gap_ms", "busiest_share", "violations_no_burst"}


def test_the_report_and_the_frames_of_a_study_in_a_store(bucket: str, spark: Any) -> None:
    table = {
        "id": "frames",
        "protocols": ["coord"],
        "sweep": {"members": [4, 8]},
        "metrics": ["messages"],
        "repeats": 2,
    }
    result = cubecast.study(table, out=bucket.format("/frames"))
    assert result.values.value.tolist() == result.to_spark(spark, "values").toPandas().value.tolist()
    assert len(result.runs) == 4
    page = result.write_report()
    assert isinstance(page, RemotePath)
    assert "coord" in page.read_text()


def test_traces_in_a_store_are_judged_like_those_of_a_folder(tmp_path: Path, bucket: str, spark: Any) -> None:
    local = tmp_path / "run.parquet"
    cubecast.simulate("coord", members=12, loss=0.1, trace=local)
    (path_of(bucket.format("/traces")) / "run.parquet").write_bytes(local.read_bytes())
    (path_of(bucket.format("/traces")) / "half.parquet").write_bytes(local.read_bytes()[:2000])
    there = find_traces(bucket.format("/traces"))
    assert [trace.events for trace in there] == [0, pq.read_metadata(local).num_rows]
    assert [row["checker"] for row in check_traces(spark, there)] == ["readable trace"]
    counted = recompute(spark, there[1:])
    assert len(counted) > 5
    assert all(row["agree"] for row in counted)

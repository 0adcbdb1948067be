"""Traces checked on Spark: the same violations, of the same rows, as in one process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubecast.cli.app import run
from cubecast.errors import LocalProtocolError
from cubecast.lab.own_code import load_code_file
from cubecast.sim.faults import parse_fault
from cubecast.sim.simulate import simulate
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace, TraceWriter, read_trace
from cubecast.trace.schema import CRASH, DELIVER, STABLE, blank_events
from tests.property.test_view_checkers import damaged, obedient

pytestmark = [pytest.mark.spark]


def _checked(spark: Any, folder: Path) -> list[dict[str, Any]]:
    from cubecast.lab.spark.tracefiles import find_traces
    from cubecast.lab.spark.traces import check_traces

    return check_traces(spark, find_traces(folder))


def _in_one_process(folder: Path) -> list[tuple[str, str, list[int]]]:
    found = []
    for path in sorted(folder.glob("*.parquet")):
        for one in check_all(read_trace(path)).violations:
            found.append((str(path.resolve()), one.message, list(one.rows)))
    return sorted(found)


def _write(path: Path, trace: Trace) -> None:
    with TraceWriter(path, trace.scenario) as writer:
        writer.append(trace.events)
        writer.finish(trace.metrics)


def _break(path: Path, kind: int, change: int) -> None:
    """Change the sequence number of a row in the middle of a good trace."""
    trace = read_trace(path)
    events = trace.events.copy()
    rows = np.flatnonzero((events["event"] == kind) & (events["time_ns"] > 0))
    events["sequence"][rows[len(rows) // 2]] += change
    _write(path.with_name(f"broken-{kind}-{change}.parquet"), Trace(events=events, scenario=trace.scenario, metrics={}))


def _write_live(path: Path, good: Path) -> None:
    """A trace as a live group leaves it: no senders in its head, and a member that crashed before it got everything."""
    trace = read_trace(good)
    crash = blank_events(1)
    crash["event"], crash["member"], crash["time_ns"] = CRASH, 8, 1
    events = trace.events[(trace.events["member"] != 8) & np.isin(trace.events["event"], (DELIVER, STABLE))]
    scenario = {"members": 9, "live": True, "unfinished_allowed": True}
    _write(path, Trace(events=np.concatenate([crash, events]), scenario=scenario, metrics={}))


def test_spark_finds_what_one_process_finds(tmp_path: Path, spark: Any) -> None:
    good = tmp_path / "good.parquet"
    simulate("coord", members=9, network="random:degree=3", messages=6, rounds=3, crashes=(), trace=good)
    simulate("cube_full_dist", members=8, network="random:degree=3", rounds=2, trace=tmp_path / "cube.parquet")
    _break(good, DELIVER, 1)
    _break(good, STABLE, 3)
    _break(good, STABLE, -2)
    _write_live(tmp_path / "live.parquet", good)
    found = _checked(spark, tmp_path)
    assert [(one["trace"], one["message"], one["rows"]) for one in found] != []
    assert sorted((one["trace"], one["message"], one["rows"]) for one in found) == _in_one_process(tmp_path)
    guilty = {Path(one["trace"]).name for one in found}
    assert guilty >= {f"broken-{DELIVER}-1.parquet", f"broken-{STABLE}-3.parquet"}
    assert not guilty & {"good.parquet", "live.parquet"}


def test_traces_with_views_are_judged_alike(tmp_path: Path, spark: Any) -> None:
    good = [obedient(seed, 60) for seed in range(4)]
    for seed, trace in enumerate(good):
        _write(tmp_path / f"good-{seed}.parquet", trace)
        damage = Trace(events=damaged(trace.events, seed), scenario=trace.scenario, metrics={})
        _write(tmp_path / f"broken-{seed}.parquet", damage)
    found = _checked(spark, tmp_path)
    assert sorted((one["trace"], one["message"], one["rows"]) for one in found) == _in_one_process(tmp_path)
    guilty = {Path(one["trace"]).name for one in found}
    assert guilty
    assert not guilty & {f"good-{seed}.parquet" for seed in range(4)}


def test_metrics_counted_again_agree_with_the_simulator(tmp_path: Path, spark: Any) -> None:
    from cubecast.lab.spark.metrics import recompute
    from cubecast.lab.spark.tracefiles import find_traces

    slow = "random:degree=3,bandwidth=1e5"
    crash = (parse_fault("5@3ms", what="crash"),)
    simulate("coord", members=9, network="random:degree=3", messages=6, rounds=3, trace=tmp_path / "a b.parquet")
    simulate("cube_full_dist", members=16, network=slow, rounds=3, trace=tmp_path / "slow.parquet")
    simulate("full_dist", members=12, network=slow, rounds=2, loss=0.05, trace=tmp_path / "lossy.parquet")
    simulate("coord", members=12, network="wan-tree", messages=5, senders=3, trace=tmp_path / "wan.parquet")
    simulate(
        "overlay", members=16, network="random:degree=3", messages=5, senders=4, trace=tmp_path / "overlay.parquet"
    )
    simulate("coord", members=9, network="random:degree=3", rounds=2, crashes=crash, trace=tmp_path / "crash.parquet")
    path = tmp_path / "slow.parquet"
    trace = read_trace(path)
    _write(path.with_name("wrong.parquet"), replace(trace, metrics=trace.metrics | {"hops": trace.metrics["hops"] + 1}))
    found = recompute(spark, find_traces(tmp_path))
    differ = [(Path(row["trace"]).name, row["metric"]) for row in found if not row["agree"]]
    assert differ == [("wrong.parquet", "hops")]
    counted = {
        Path(row["trace"]).stem: {one["metric"] for one in found if one["trace"] == row["trace"]} for row in found
    }
    assert counted["a b"] >= {"messages", "rtt_last_ms", "delay_mean_ms", "tts_last_ms", "buffer_mean", "buffer_max"}
    assert counted["slow"] >= {"load_mean", "queue_mean", "queue_max", "hops", "bytes"}
    assert "load_mean" not in counted["wan"]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    from cubecast.lab.spark.tracefiles import find_traces

    with pytest.raises(LocalProtocolError, match="no such trace"):
        find_traces(tmp_path / "x.parquet")
    with pytest.raises(LocalProtocolError, match="no traces in this folder"):
        find_traces(tmp_path)


def test_damaged_traces_are_rows_and_the_others_are_judged(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that are no traces, cut or flipped ones, and traces whose scenario cannot be."""
    assert spark is not None
    good = tmp_path / "good.parquet"
    simulate("coord", members=9, network="random:degree=3", messages=6, rounds=3, trace=good)
    content = good.read_bytes()
    (tmp_path / "noise.parquet").write_bytes(b"PAR1 no trace at all PAR1")
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "flipped.parquet").write_bytes(content[:600] + bytes([content[600] ^ 0xFF]) + content[601:])
    _write(tmp_path / "nobody.parquet", Trace(events=blank_events(1), scenario={"members": None}, metrics={}))
    _break(good, STABLE, 3)
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "empty.parquet").touch()
    events = read_trace(good).events
    for name, scenario in (
        ("huge", {"members": 10**13}),
        ("odd", {"members": 9, "rounds": "many"}),
        ("seedless", {"members": 9, "network": "star", "family": "stability"}),
    ):
        _write(tmp_path / f"{name}.parquet", Trace(events=events, scenario=scenario, metrics={"messages": "many"}))
    assert run(["study", "check", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    found = {(Path(one["trace"]).name, one["checker"]) for one in told["violations"]}
    unreadable = {name for name, checker in found if checker == "readable trace"}
    names = ("noise", "cut", "flipped", "nobody", "folder", "empty", "huge", "odd")
    assert unreadable == {f"{name}.parquet" for name in names}
    assert all("\n" not in one["message"] for one in told["violations"])
    assert (f"broken-{STABLE}-3.parquet", "no premature stability") in found
    assert {Path(one["trace"]).name for one in told["metrics"]} == {"good.parquet", "seedless.parquet"}
    assert not any(one["agree"] for one in told["metrics"] if Path(one["trace"]).name == "seedless.parquet")


def _divide(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Write row groups of so many rows, and divide every trace that has several."""
    monkeypatch.setattr("cubecast.trace.files.ROW_GROUP_ROWS", rows)
    monkeypatch.setattr("cubecast.lab.spark.traces.DIVIDED_SECONDS", 0.0)
    monkeypatch.setattr("cubecast.lab.spark.traces.DIVIDED_SHARE", 0.0)


def test_long_traces_are_divided_by_time(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _divide(monkeypatch, rows=500)
    good = tmp_path / "good.parquet"
    simulate("coord", members=9, network="random:degree=3", messages=6, rounds=3, trace=good)
    _break(good, STABLE, 3)
    _break(good, DELIVER, 1)
    found = _checked(spark, tmp_path)
    assert found
    assert sorted((one["trace"], one["message"], one["rows"]) for one in found) == _in_one_process(tmp_path)


@pytest.mark.parametrize(
    ("millions", "cores", "expected"),
    [
        ([100], 2, [0]),
        ([100], 1, []),
        ([100, 10, 10], 2, [0]),
        ([50, 50], 2, []),
        ([50, 50], 4, [0, 1]),
        ([40] * 8, 2, []),
        ([1], 2, []),
    ],
)
def test_a_trace_is_divided_if_other_cores_would_wait_for_it(
    millions: list[int], cores: int, expected: list[int]
) -> None:
    from cubecast.lab.spark.tracefiles import TraceFile
    from cubecast.lab.spark.traces import long_ones

    traces = [
        TraceFile(path=Path(str(place)), events=own * 10**6, row_groups=2 * own) for place, own in enumerate(millions)
    ]
    assert [int(one.path.name) for one in long_ones(traces, cores)] == expected


def test_row_groups_of_traces_that_are_not_divided_are_judged_together(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubecast.trace.files.ROW_GROUP_ROWS", 500)
    good = tmp_path / "good.parquet"
    simulate("coord", members=9, network="random:degree=3", messages=6, rounds=3, trace=good)
    _break(good, STABLE, 3)
    found = _checked(spark, tmp_path)
    assert found
    assert sorted((one["trace"], one["message"], one["rows"]) for one in found) == _in_one_process(tmp_path)


def test_a_trace_in_memory_is_judged_like_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubecast.lab.spark.traces import all_promises, judge_file

    monkeypatch.setattr("cubecast.trace.files.ROW_GROUP_ROWS", 500)
    good = tmp_path / "good.parquet"
    simulate("coord", members=9, network="random:degree=3", messages=6, rounds=3, trace=good)
    _break(good, STABLE, 3)
    for path, is_good in ((good, True), (tmp_path / f"broken-{STABLE}-3.parquet", False)):
        found = judge_file(str(path), all_promises()).to_pylist()
        with monkeypatch.context() as patch:
            patch.setattr("cubecast.lab.spark.traces.WHOLE_EVENTS", 0)
            assert judge_file(str(path), all_promises()).to_pylist() == found
        assert (found == []) is is_good


def test_a_checker_that_a_worker_knows_from_an_earlier_job_judges_nothing(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "displeased.py"
    file.write_text(
        "from cubecast.trace.checkers import Violation\n"
        "class Displeased:\n"
        "    NAME, PROMISE = 'displeased', 'nothing pleases it'\n"
        "    def not_promised(self, trace): return None\n"
        "    def check(self, trace): return [Violation(checker=self.NAME, message='no', rows=(0,), time_ns=0)]\n"
        "CHECKER = Displeased()\n"
    )
    for name in ("cubecast.trace.checkers.registry._OWN", "cubecast.lab.own_code._FILES"):
        monkeypatch.setattr(name, {})
    simulate("coord", members=5, trace=tmp_path / "good.parquet")
    load_code_file(file)
    assert [one["checker"] for one in _checked(spark, tmp_path)] == ["displeased"]
    for name in ("cubecast.trace.checkers.registry._OWN", "cubecast.lab.own_code._FILES"):
        monkeypatch.setattr(name, {})
    assert [_checked(spark, tmp_path) for _ in range(4)] == [[]] * 4


def test_later_incarnations_are_judged_too(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run with views there are more senders than hosts."""
    _divide(monkeypatch, rows=1000)
    good = _churn(tmp_path)
    trace = read_trace(good)
    events = trace.events.copy()
    newcomers = np.flatnonzero((events["event"] == DELIVER) & (events["sender"] >= 8))
    events["sequence"][newcomers[len(newcomers) // 2]] += 1
    _write(tmp_path / "broken.parquet", replace(trace, events=events, metrics={}))
    found = _checked(spark, tmp_path)
    assert "in-order delivery" in {one["checker"] for one in found}
    assert sorted((one["trace"], one["message"], one["rows"]) for one in found) == _in_one_process(tmp_path)


def test_metrics_of_a_run_with_views_agree(tmp_path: Path, spark: Any) -> None:
    from cubecast.lab.spark.metrics import recompute
    from cubecast.lab.spark.tracefiles import find_traces

    _churn(tmp_path)
    found = recompute(spark, find_traces(tmp_path))
    assert [(row["metric"], row["said"], row["found"]) for row in found if not row["agree"]] == []
    assert {row["metric"] for row in found} >= {"queue_mean", "queue_max", "delay_mean_ms", "delay_max_ms"}


def test_a_trace_without_metrics_is_not_read_for_them(tmp_path: Path) -> None:
    from cubecast.lab.spark.metrics import recompute
    from cubecast.lab.spark.tracefiles import find_traces

    path = _churn(tmp_path)
    _write(path, replace(read_trace(path), metrics={}))
    no_spark: Any = None
    assert recompute(no_spark, find_traces(tmp_path)) == []


def _churn(folder: Path) -> Path:
    path = folder / "churn.parquet"
    simulate(
        "tree", members=8, network="random:degree=3", churn_per_s=4.0, churn_ms=1500.0, rate=20, seed=1, trace=path
    )
    return path

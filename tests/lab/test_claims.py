"""Verdicts come from the data by the stated rule, and change when the data does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from cubecast.lab.claims import NOT_COMPARABLE, Judgement
from cubecast.lab.claims import judge as judge_findings
from cubecast.lab.plan import Claim, Plan, PlanSize, Test
from cubecast.lab.quantities import describe_test
from cubecast.lab.questions import CONFIRMED, REFUTED, answer, parts_of, questions_of
from cubecast.lab.stats import mean_estimate, spread_ratio, student_table, variation

Model = Callable[[str, int, int], float]
SIZE = PlanSize(repeats=8, fixed={}, sweep={"members": [64, 128, 256]}, zips=())


def _plan(*tests: Test, each: str | None = None) -> Plan:
    claim = Claim(id="c", text="t", source="s", figures=(), tests=tests, each=each)
    return Plan(
        id="x",
        paper="own",
        title="",
        about="",
        experiment="simulate",
        protocols=("a", "b"),
        skip=(),
        sizes={"quick": SIZE, "full": SIZE},
        figures=(),
        claims=(claim,),
        path=Path("x.toml"),
    )


POINTS = [{"protocol": protocol, "members": members} for protocol in ("a", "b") for members in (64, 128, 256)]


def _values(model: Model) -> pa.Table:
    rows = [
        {"point": number, "seed": seed, "metric": "rtt", "value": model(point["protocol"], point["members"], seed)}  # type: ignore[arg-type]
        for number, point in enumerate(POINTS)
        for seed in range(8)
    ]
    return pa.Table.from_pylist(rows)


def judge(plan: Plan, values: pa.Table, points: list[dict[str, Any]] = POINTS) -> list[Judgement]:
    """Judge the claims of a plan in one process, each question as a whole."""
    findings = [row for one in questions_of(plan, points) for row in answer(one, points, values).to_pylist()]
    return judge_findings(plan, points, set(values.column("point").to_pylist()), findings)


def _verdict(test: Test, model: Model) -> str:
    return judge(_plan(test), _values(model))[0].verdict


RATIO = Test(kind="ratio", metric="rtt", top={"protocol": "a"}, bottom={"protocol": "b"}, low=1.0)


def _noise(seed: int) -> float:
    return 1.0 + 0.3 * math.sin(seed * 2.4)


def test_a_ratio_is_paired_seed_by_seed() -> None:
    # The noise that both share is larger than the difference: only pairs can tell.
    assert _verdict(RATIO, lambda p, n, s: (1.05 + 0.001 * s if p == "a" else 1.0) * _noise(s)) == CONFIRMED
    assert _verdict(RATIO, lambda p, n, s: (0.95 + 0.001 * s if p == "a" else 1.0) * _noise(s)) == REFUTED
    assert _verdict(RATIO, lambda p, n, s: _noise(s if p == "a" else s + 3)) == NOT_COMPARABLE


def test_one_refuted_point_refutes_the_claim() -> None:
    assert _verdict(RATIO, lambda p, n, s: 0.5 if p == "a" and n == 256 else 2.0 if p == "a" else 1.0) == REFUTED


@pytest.mark.parametrize(("exponent", "expected"), [(1.0, CONFIRMED), (2.0, REFUTED), (0.0, REFUTED)])
def test_growth_is_the_exponent(exponent: float, expected: str) -> None:
    test = Test(kind="growth", metric="rtt", where={"protocol": "a"}, low=0.9, high=1.1)
    assert _verdict(test, lambda p, n, s: 3 * n**exponent * (1 + 0.001 * s)) == expected


def test_growth_over_another_shape() -> None:
    test = Test(kind="growth", metric="rtt", where={"protocol": "a"}, shape="n log^2 n", low=0.99, high=1.01)
    assert _verdict(test, lambda p, n, s: 5 * n * math.log2(n) ** 2) == CONFIRMED
    assert _verdict(test, lambda p, n, s: 5 * n) == REFUTED


def test_spread_compares_standard_deviations() -> None:
    test = Test(kind="spread", metric="rtt", top={"protocol": "a"}, bottom={"protocol": "b"}, low=1.0)
    assert _verdict(test, lambda p, n, s: 100 + (10 if p == "a" else 1) * _noise(s + n)) == CONFIRMED
    assert _verdict(test, lambda p, n, s: 100 + (1 if p == "a" else 10) * _noise(s + n)) == REFUTED


def test_value_and_difference() -> None:
    assert _verdict(Test(kind="value", metric="rtt", low=0.0, high=0.0), lambda p, n, s: 0.0) == CONFIRMED
    assert _verdict(Test(kind="value", metric="rtt", low=0.0, high=0.0), lambda p, n, s: 1.0 + s) == REFUTED
    gap = Test(kind="difference", metric="rtt", top={"members": 256}, bottom={"members": 64}, low=0.0)
    assert _verdict(gap, lambda p, n, s: n + _noise(s)) == CONFIRMED


def test_a_change_of_a_gap_is_paired_too() -> None:
    change = Test(
        kind="ratio",
        metric="rtt",
        top={"protocol": "a"},
        bottom={"protocol": "b"},
        versus={"members": 64},
        at={"members": 256},
        low=1.9,
        high=2.1,
    )
    assert _verdict(change, lambda p, n, s: _noise(s) * (2.0 if p == "a" and n == 256 else 1.0)) == CONFIRMED
    assert _verdict(change, lambda p, n, s: _noise(s) * (2.0 if p == "a" else 1.0)) == REFUTED


def test_variation_is_the_deviation_over_the_mean() -> None:
    test = Test(kind="variation", metric="rtt", high=0.1)
    assert _verdict(test, lambda p, n, s: 100 + 0.5 * _noise(s)) == CONFIRMED
    assert _verdict(test, lambda p, n, s: 300.0 if s % 2 else 100.0) == REFUTED


def test_parameters_along_x_do_not_split_a_curve() -> None:
    points: list[dict[str, Any]] = [{"members": n, "step": n / 10} for n in (64, 128, 256)]
    rows = [
        {"point": number, "seed": seed, "metric": "rtt", "value": 2.0 * point["members"]}
        for number, point in enumerate(points)
        for seed in range(3)
    ]
    values = pa.Table.from_pylist(rows)
    test = Test(kind="growth", metric="rtt", low=0.9, high=1.1)
    assert judge(_plan(test), values, points)[0].ours == "no data"
    assert judge(_plan(replace(test, along=("step",))), values, points)[0].verdict == CONFIRMED


KINDS = (
    RATIO,
    replace(RATIO, kind="difference", where={"degree": [3, 5]}),
    replace(RATIO, kind="spread"),
    replace(RATIO, at={"degree": 5}, versus={"degree": 3}),
    replace(RATIO, bottom={}, metric_bottom="hops"),
    Test(kind="value", metric="rtt", where={"members": ">64"}, low=1.0),
    Test(kind="variation", metric="hops", top={"protocol": "a"}, high=0.5),
    Test(kind="growth", metric="rtt", low=0.5, high=2.0),
    Test(kind="growth", metric="rtt", x="degree", along=("members",), low=0.5),
)


@pytest.mark.parametrize("each", [None, "degree"])
@pytest.mark.parametrize("test", KINDS, ids=lambda test: test.kind)
def test_the_parts_of_a_question_give_what_the_whole_gives(
    test: Test, each: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubecast.lab.questions.VALUES_PER_PART", 5)
    points = [{**point, "degree": degree} for degree in (3, 5, 7) for point in POINTS]
    random = np.random.default_rng(3)
    values = pa.Table.from_pylist(
        [
            {"point": number, "seed": seed, "metric": metric, "value": float(random.uniform(1, 9))}
            for number in range(len(points))
            for seed in range(5)
            for metric in ("rtt", "hops")
        ]
    )
    plan = _plan(test, each=None if test.at or test.x == "degree" else each)
    questions = questions_of(plan, points)
    parts = pa.Table.from_pylist(list(parts_of(questions, points, seeds=5)))
    whole, pieces = [], []
    for question in questions:
        whole += answer(question, points, values).to_pylist()
        own = parts.filter(pc.equal(parts.column("question"), question.number))
        numbers = pc.unique(own.column("part")).to_pylist()
        for number in numbers:
            piece = own.filter(pc.equal(own.column("part"), number)).select(["point", "metric"])
            pieces += answer(question, points, values.join(piece, ["point", "metric"], join_type="inner")).to_pylist()
    assert whole
    assert len(set(parts.column("part").to_pylist())) > 1
    assert sorted(map(repr, pieces)) == sorted(map(repr, whole))


def test_the_rule_that_is_read_is_the_rule_that_is_applied() -> None:
    assert describe_test(RATIO) == "ratio of rtt, of protocol a, to protocol b: at least 1"
    growth = Test(kind="growth", metric="hops", shape="log n", where={"members": ">=100"}, low=0.0, high=1.0)
    assert describe_test(growth) == "exponent of hops over log n, where members >=100: from 0 to 1"


def test_without_data_nothing_is_said() -> None:
    found = judge(_plan(Test(kind="value", metric="absent", low=0.0)), _values(lambda p, n, s: 1.0))
    assert [(one.verdict, one.ours) for one in found] == [(NOT_COMPARABLE, "no data")]


def test_each_value_is_judged_apart() -> None:
    plan = _plan(Test(kind="value", metric="rtt", high=100.0), each="members")
    found = judge(plan, _values(lambda p, n, s: n + 0.001 * s))
    assert [(one.at, one.verdict) for one in found] == [
        ("members = 64", CONFIRMED),
        ("members = 128", REFUTED),
        ("members = 256", REFUTED),
    ]


def test_each_does_not_override_where() -> None:
    large = Test(kind="value", metric="rtt", where={"members": ">64"}, high=100.0)
    found = judge(_plan(large, each="members"), _values(lambda p, n, s: n + 0.001 * s))
    assert [one.at for one in found] == ["members = 128", "members = 256"]
    one_side = replace(RATIO, where={"protocol": "a"})
    assert judge(_plan(one_side), _values(lambda p, n, s: 1.0))[0].ours == "no data", "bottom overrode where"


def test_a_test_that_leaves_a_value_of_each_out_does_not_count_there() -> None:
    tests = (Test(kind="value", metric="rtt", where={"members": 256}, high=1.0), replace(RATIO, where={"members": 64}))
    found = judge(_plan(*tests, each="members"), _values(lambda p, n, s: 2.0 if p == "a" else 1.0 + 0.001 * s))
    assert [(one.at, one.verdict) for one in found] == [("members = 64", CONFIRMED), ("members = 256", REFUTED)]


def test_the_evidence_shown_is_the_point_that_decides() -> None:
    """At 256 the ratio is furthest below the bound but open; at 128 it is closer and refuted."""

    def model(protocol: str, members: int, seed: int) -> float:
        if protocol == "b":
            return 1.0
        return {64: 2.0, 128: 0.9, 256: 5.0 if seed % 2 else 0.02}[members] * (1 + 1e-4 * seed)

    [found] = judge(_plan(RATIO), _values(model))
    assert found.verdict == REFUTED
    assert "refuted by 0.9" in found.ours
    assert "members 128 (kept at 1 of 3 points)" in found.ours
    [kept] = judge(_plan(RATIO), _values(lambda p, n, s: 1.0 if p == "b" else n / 10 + 1e-3 * s))
    assert "closest to the bound 6.4" in kept.ours


def test_intervals_agree_with_scipy() -> None:
    values = np.random.default_rng(1).normal(5, 2, 12)
    ours = mean_estimate(values)
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (ours.low, ours.high) == pytest.approx((low, high))
    table = student_table()
    assert table["t"][10].as_py() == pytest.approx(stats.t.ppf(0.975, 11))
    assert table["n"][10].as_py() == 12


def test_one_observation_has_no_interval() -> None:
    estimate = mean_estimate(np.array([3.0]))
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)


def test_the_interval_of_a_spread_ratio_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        estimate = spread_ratio([random.normal(0, 3, 10)], [random.normal(0, 1, 10)])
        hits += estimate.low <= 3 <= estimate.high
    assert 0.91 <= hits / 400 <= 0.99


def test_the_interval_of_a_variation_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(8)
    estimates = [variation(random.normal(100, 5, 20)) for _ in range(400)]
    assert 0.91 <= sum(one.low <= 0.05 <= one.high for one in estimates) / 400 <= 0.99

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

from cubecast.lab.claims import EVERYWHERE, NOT_TESTED, REGION, UNDECIDED, Answers, Judgement, nearest, ours
from cubecast.lab.claims import judge as judge_report
from cubecast.lab.outcomes import CLOSE, CONTRADICTED, HOLDS, OPEN
from cubecast.lab.plan import Claim, Plan, PlanSize, Test
from cubecast.lab.quantities import describe_test
from cubecast.lab.questions import FINDINGS, answer, correct, parts_of, questions_of

Model = Callable[[str, int, int], float]
SIZE = PlanSize(repeats=8, fixed={}, sweep={"members": [64, 128, 256]}, zips=())


def _plan(*tests: Test, readings: tuple[str, ...] = (), study: str = "x") -> Plan:
    claim = Claim(id="c", text="t", source="s", figures=(), tests=tests, readings=readings)
    return Plan(
        id=study,
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
    return judge_report([_answers(plan, values, points)])[plan.id]


def _answers(plan: Plan, values: pa.Table, points: list[dict[str, Any]] = POINTS) -> Answers:
    by_reading: dict[int, list[pa.Table]] = {}
    for one in questions_of(plan, points):
        by_reading.setdefault(one.reading, []).append(answer(one, points, values))
    corrected = [correct(plan.claims[0], pa.concat_tables(tables)) for tables in by_reading.values()]
    findings = [row for table in corrected for row in table.to_pylist()]
    return Answers(plan=plan, points=points, with_data=set(values.column("point").to_pylist()), findings=findings)


def _verdict(test: Test, model: Model) -> str:
    return judge(_plan(test), _values(model))[0].verdict


RATIO = Test(kind="ratio", metric="rtt", top={"protocol": "a"}, bottom={"protocol": "b"}, low=1.0)


def _noise(seed: int) -> float:
    return 1.0 + 0.3 * math.sin(seed * 2.4)


def test_a_ratio_is_paired_seed_by_seed() -> None:
    # The noise that both share is larger than the difference: only pairs can tell.
    assert _verdict(RATIO, lambda p, n, s: (1.05 + 0.001 * s if p == "a" else 1.0) * _noise(s)) == EVERYWHERE
    assert _verdict(RATIO, lambda p, n, s: (0.95 + 0.001 * s if p == "a" else 1.0) * _noise(s)) == CONTRADICTED
    assert _verdict(RATIO, lambda p, n, s: _noise(s if p == "a" else s + 3)) == UNDECIDED


def test_one_contradicted_point_contradicts_the_claim() -> None:
    assert _verdict(RATIO, lambda p, n, s: 0.5 if p == "a" and n == 256 else 2.0 if p == "a" else 1.0) == CONTRADICTED


@pytest.mark.parametrize(("exponent", "expected"), [(1.0, EVERYWHERE), (2.0, CONTRADICTED), (0.0, CONTRADICTED)])
def test_growth_is_the_exponent(exponent: float, expected: str) -> None:
    test = Test(kind="growth", metric="rtt", where={"protocol": "a"}, low=0.9, high=1.1)
    assert _verdict(test, lambda p, n, s: 3 * n**exponent * (1 + 0.001 * s)) == expected


def test_growth_over_another_shape() -> None:
    test = Test(kind="growth", metric="rtt", where={"protocol": "a"}, shape="n log^2 n", low=0.99, high=1.01)
    assert _verdict(test, lambda p, n, s: 5 * n * math.log2(n) ** 2) == EVERYWHERE
    assert _verdict(test, lambda p, n, s: 5 * n) == CONTRADICTED


def test_spread_compares_standard_deviations() -> None:
    test = Test(kind="spread", metric="rtt", top={"protocol": "a"}, bottom={"protocol": "b"}, low=1.0)
    assert _verdict(test, lambda p, n, s: 100 + (10 if p == "a" else 1) * _noise(s + n)) == EVERYWHERE
    assert _verdict(test, lambda p, n, s: 100 + (1 if p == "a" else 10) * _noise(s + n)) == CONTRADICTED


def test_value_and_difference() -> None:
    assert _verdict(Test(kind="value", metric="rtt", low=0.0, high=0.0), lambda p, n, s: 0.0) == EVERYWHERE
    assert _verdict(Test(kind="value", metric="rtt", low=0.0, high=0.0), lambda p, n, s: 1.0 + s) == CONTRADICTED
    gap = Test(kind="difference", metric="rtt", top={"members": 256}, bottom={"members": 64}, low=0.0)
    assert _verdict(gap, lambda p, n, s: n + _noise(s)) == EVERYWHERE


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
    assert _verdict(change, lambda p, n, s: _noise(s) * (2.0 if p == "a" and n == 256 else 1.0)) == EVERYWHERE
    assert _verdict(change, lambda p, n, s: _noise(s) * (2.0 if p == "a" else 1.0)) == CONTRADICTED


def test_variation_is_the_deviation_over_the_mean() -> None:
    test = Test(kind="variation", metric="rtt", high=0.1)
    assert _verdict(test, lambda p, n, s: 100 + 0.5 * _noise(s)) == EVERYWHERE
    assert _verdict(test, lambda p, n, s: 300.0 if s % 2 else 100.0) == CONTRADICTED


def test_parameters_along_x_do_not_split_a_curve() -> None:
    points: list[dict[str, Any]] = [{"members": n, "step": n / 10} for n in (64, 128, 256)]
    rows = [
        {"point": number, "seed": seed, "metric": "rtt", "value": 2.0 * point["members"]}
        for number, point in enumerate(points)
        for seed in range(3)
    ]
    values = pa.Table.from_pylist(rows)
    test = Test(kind="growth", metric="rtt", low=0.9, high=1.1)
    assert judge(_plan(test), values, points)[0].verdict == NOT_TESTED
    assert judge(_plan(replace(test, along=("step",))), values, points)[0].verdict == EVERYWHERE


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


@pytest.mark.parametrize("readings", [(), ("degree",)])
@pytest.mark.parametrize("test", KINDS, ids=lambda test: test.kind)
def test_the_parts_of_a_question_give_what_the_whole_gives(
    test: Test, readings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
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
    plan = _plan(test, readings=() if test.at or test.x == "degree" else readings)
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
    assert describe_test(RATIO) == "ratio of rtt, of protocol a, to protocol b: at least 1; contradicted below 0.98"
    growth = Test(kind="growth", metric="hops", shape="log n", where={"members": ">=100"}, low=0.0, high=1.0)
    bound = "from 0 to 1; contradicted below -0.02 or above 1.02"
    assert describe_test(growth) == f"exponent of hops over log n, where members >=100: {bound}"


def test_without_data_nothing_is_said() -> None:
    found = judge(_plan(Test(kind="value", metric="absent", low=0.0)), _values(lambda p, n, s: 1.0))
    assert [(one.verdict, one.findings) for one in found] == [(NOT_TESTED, [])]


def test_a_test_without_data_leaves_the_claim_not_tested() -> None:
    tests = (RATIO, Test(kind="value", metric="absent", low=0.0))
    [found] = judge(_plan(*tests), _values(lambda p, n, s: (2.0 if p == "a" else 1.0) + 0.001 * s))
    assert found.verdict == NOT_TESTED


def test_what_this_size_does_not_have_is_not_asked() -> None:
    larger = replace(RATIO, top={"protocol": "a", "members": 512}, bottom={"protocol": "a", "members": 64})
    values = _values(lambda p, n, s: (2.0 if p == "a" else 1.0) + 0.001 * s)
    assert judge(_plan(RATIO, larger), values)[0].verdict == EVERYWHERE
    assert judge(_plan(larger), values)[0].verdict == NOT_TESTED


def test_each_reading_is_judged_apart() -> None:
    plan = _plan(Test(kind="value", metric="rtt", high=100.0), readings=("members",))
    [found] = judge(plan, _values(lambda p, n, s: n + 0.001 * s))
    assert found.verdict == REGION
    assert [(one.reading, one.verdict) for one in found.readings] == [
        ({"members": 64}, HOLDS),
        ({"members": 128}, CONTRADICTED),
        ({"members": 256}, CONTRADICTED),
    ]


def test_several_parameters_make_a_space_of_readings() -> None:
    plan = _plan(Test(kind="value", metric="rtt", high=100.0), readings=("members", "protocol"))
    [found] = judge(plan, _values(lambda p, n, s: (n if p == "a" else 1.0) + 0.001 * s))
    verdicts = {(one.reading["members"], one.reading["protocol"]): one.verdict for one in found.readings}
    assert len(verdicts) == 6
    assert [key for key, verdict in verdicts.items() if verdict == CONTRADICTED] == [(128, "a"), (256, "a")]


def test_readings_do_not_override_where() -> None:
    large = Test(kind="value", metric="rtt", where={"members": ">64"}, high=100.0)
    [found] = judge(_plan(large, readings=("members",)), _values(lambda p, n, s: n + 0.001 * s))
    assert [one.reading["members"] for one in found.readings] == [128, 256]
    one_side = replace(RATIO, where={"protocol": "a"})
    [found] = judge(_plan(one_side), _values(lambda p, n, s: 1.0))
    assert found.verdict == NOT_TESTED, "bottom overrode where"


def test_a_test_that_leaves_a_reading_out_does_not_count_there() -> None:
    tests = (Test(kind="value", metric="rtt", where={"members": 256}, high=1.0), replace(RATIO, where={"members": 64}))
    values = _values(lambda p, n, s: 2.0 if p == "a" else 1.0 + 0.001 * s)
    [found] = judge(_plan(*tests, readings=("members",)), values)
    assert [(one.reading["members"], one.verdict) for one in found.readings] == [(64, HOLDS), (256, CONTRADICTED)]


def _outcomes(test: Test, model: Model) -> list[str]:
    return [finding.outcome for finding in judge(_plan(test), _values(model))[0].findings]


def test_a_bound_broken_by_less_than_the_margin_contradicts_nothing() -> None:
    def model(protocol: str, _members: int, seed: int) -> float:
        return 0.99 + 1e-5 * seed if protocol == "a" else 1.0

    assert set(_outcomes(RATIO, model)) == {CLOSE}
    assert _verdict(RATIO, model) == UNDECIDED
    assert _verdict(replace(RATIO, margin=0.001), model) == CONTRADICTED


def test_alike_must_be_shown_not_merely_not_refuted() -> None:
    """Two one-sided tests: a wide interval around 1 is no evidence of equality."""
    alike = replace(RATIO, low=0.8, high=1.25)
    assert set(_outcomes(alike, lambda p, n, s: 3.0 ** (s % 2) if p == "a" else 3.0 ** ((s + 1) % 2))) == {OPEN}
    assert set(_outcomes(alike, lambda p, n, s: 1.0 + 0.01 * (s % 2) if p == "a" else 1.0)) == {HOLDS}


def test_a_proportion_is_tested_exactly() -> None:
    test = Test(kind="proportion", metric="rtt", along=("members", "protocol"), low=0.9)
    assert _verdict(test, lambda p, n, s: 1.0) == EVERYWHERE, "48 of 48: at least 0.926"
    assert _verdict(replace(test, along=("protocol",)), lambda p, n, s: 1.0) == UNDECIDED, "16 of 16: at least 0.79"
    assert _verdict(test, lambda p, n, s: float(s % 2)) == CONTRADICTED


def test_true_claims_are_contradicted_no_more_often_than_stated() -> None:
    """The bound is the truth at each of 20 points; without Holm's correction one would be off in 64 % of cases."""
    random = np.random.default_rng(11)
    points = [{"members": number} for number in range(20)]
    test = Test(kind="value", metric="rtt", low=0.0)
    cases, wrong = 300, 0
    for _ in range(cases):
        drawn = random.standard_normal((20, 5))
        rows = [
            {"point": point, "seed": seed, "metric": "rtt", "value": float(drawn[point, seed])}
            for point in range(20)
            for seed in range(5)
        ]
        wrong += judge(_plan(test), pa.Table.from_pylist(rows), points)[0].verdict == CONTRADICTED
    assert wrong / cases <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / cases)


def test_a_contradiction_must_stand_beside_all_tests_of_the_report() -> None:
    """One p-value of 0.03 alone is below the level; among forty claims it is what chance brings."""
    random = np.random.default_rng(5)

    def study(number: int, shift: float) -> Answers:
        drawn = random.standard_normal(8)
        drawn += shift - drawn.mean()
        rows = [{"point": 0, "seed": seed, "metric": "rtt", "value": float(drawn[seed])} for seed in range(8)]
        plan = _plan(Test(kind="value", metric="rtt", low=0.0), study=f"s{number}")
        return _answers(plan, pa.Table.from_pylist(rows), [{"protocol": "a"}])

    suspect = study(0, -0.75)
    [row] = list(suspect.findings)
    assert 0.01 < row["p_breaks_holm"] < 0.05
    assert judge_report([suspect])["s0"][0].verdict == CONTRADICTED
    others = [study(number, 1.0) for number in range(1, 41)]
    assert judge_report([suspect, *others])["s0"][0].verdict == UNDECIDED


def test_the_evidence_shown_is_the_point_that_decides() -> None:
    """At 256 the ratio is furthest below the bound but open; at 128 it is closer and contradicts."""

    def model(protocol: str, members: int, seed: int) -> float:
        if protocol == "b":
            return 1.0
        return {64: 2.0, 128: 0.9, 256: 5.0 if seed % 2 else 0.02}[members] * (1 + 1e-4 * seed)

    [found] = judge(_plan(RATIO), _values(model))
    assert found.verdict == CONTRADICTED
    [sentence] = ours(found.findings, ("members",))
    assert "against it: 0.9" in sentence
    assert "members 128; holds at 1 of 3 points" in sentence
    [kept] = judge(_plan(RATIO), _values(lambda p, n, s: 1.0 if p == "b" else n / 10 + 1e-3 * s))
    assert "closest to the bound: 6.4" in ours(kept.findings, ())[0]


def test_the_point_nearest_to_the_value_of_the_paper_is_found() -> None:
    test = Test(kind="value", metric="rtt", where={"protocol": "a"}, low=0.0, paper=120.0)
    [found] = judge(_plan(test), _values(lambda p, n, s: n + 0.1 * s))
    one = nearest(found.findings)
    assert one is not None
    assert one.point["members"] == "128"
    [none] = judge(_plan(replace(test, paper=None)), _values(lambda p, n, s: 1.0))
    assert nearest(none.findings) is None


def test_findings_have_the_documented_schema() -> None:
    [question] = questions_of(_plan(RATIO), POINTS)
    found = correct(question.claim, answer(question, POINTS, _values(lambda p, n, s: 1.0 + 0.1 * s)))
    assert found.schema == FINDINGS

"""Under which conditions a claim holds: words and phase diagrams that agree with the verdicts, reading by reading."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.lab.claims import EVERYWHERE, NOT_TESTED, REGION, UNDECIDED, JudgedReading, Judgement, verdict_of
from cubecast.lab.conditions import REGIONS_MAX, Region, influences, phase_diagram, regions, where_holds, where_or_count
from cubecast.lab.joint_readings import best_joint_reading
from cubecast.lab.outcomes import CONTRADICTED, HOLDS
from cubecast.lab.plan import Claim, Plan

SPACE: dict[str, list[Any]] = {"degree": [2.5, 5.0, 10.0], "routing": ["hops", "delay"], "relayed": [False, True]}
READINGS = [dict(zip(SPACE, values, strict=True)) for values in itertools.product(*SPACE.values())]
VERDICTS = st.sampled_from([HOLDS, CONTRADICTED, UNDECIDED])


def _judged(verdicts: list[str], readings: list[dict[str, Any]] = READINGS) -> list[JudgedReading]:
    return [
        JudgedReading(reading=reading, verdict=verdict, findings=())
        for reading, verdict in zip(readings, verdicts, strict=True)
    ]


def _contains(region: Region, reading: dict[str, Any]) -> bool:
    return all(reading[name] in values for name, values in region.items())


@given(st.lists(VERDICTS, min_size=len(READINGS), max_size=len(READINGS)), VERDICTS)
def test_the_regions_are_exactly_the_readings_with_the_verdict(verdicts: list[str], wanted: str) -> None:
    found = regions(list(zip(READINGS, verdicts, strict=True)), wanted)
    for reading, verdict in zip(READINGS, verdicts, strict=True):
        assert any(_contains(region, reading) for region in found) == (verdict == wanted)


def _where(holds: Any) -> list[JudgedReading]:
    return _judged([HOLDS if holds(reading) else CONTRADICTED for reading in READINGS])


@pytest.mark.parametrize(
    ("holds", "sentence"),
    [
        (lambda one: True, "everywhere"),
        (lambda one: False, ""),
        (lambda one: one["routing"] == "delay", "routing is delay"),
        (lambda one: one["degree"] >= 5, "degree is at least 5"),
        (lambda one: one["degree"] < 10, "degree is at most 5"),
        (lambda one: one["degree"] == 5, "degree is 5"),
        (lambda one: one["relayed"], "S_Coord's START is relayed"),
        (lambda one: one["degree"] == 5 and one["routing"] == "delay", "degree is 5 and routing is delay"),
    ],
)
def test_one_sentence_says_where(holds: Any, sentence: str) -> None:
    assert where_holds(_where(holds)) == sentence


def test_a_reading_without_data_is_not_spoken_of() -> None:
    judged = _judged([NOT_TESTED if one["degree"] == 10 else HOLDS for one in READINGS])
    assert where_holds(judged) == "everywhere"


def test_the_parameter_that_decides_has_all_the_influence() -> None:
    found = influences(_where(lambda one: one["routing"] == "delay"))
    assert next(iter(found)) == "routing"
    assert found["routing"] == pytest.approx(1.0)
    assert found["degree"] == pytest.approx(0.0)


def test_a_phase_diagram_is_over_the_two_most_influential() -> None:
    diagram = phase_diagram(_where(lambda one: one["degree"] == 5 and one["routing"] == "delay"))
    assert diagram is not None
    assert {diagram.x, diagram.y} == {"degree", "routing"}
    cells = {key: own for key, own in diagram.cells.items() if HOLDS in own}
    assert cells == {(5.0, "delay") if diagram.x == "degree" else ("delay", 5.0): {HOLDS: 2}}


def test_nothing_open_needs_no_diagram() -> None:
    assert phase_diagram(_judged([HOLDS], [{}])) is None
    assert phase_diagram([]) is None
    one = phase_diagram(_judged([HOLDS, CONTRADICTED], [{"p": 0.01}, {"p": 0.02}]))
    assert one is not None
    assert (one.x, one.y, one.columns) == ("p", None, [0.01, 0.02])


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ([HOLDS, HOLDS], EVERYWHERE),
        ([HOLDS, CONTRADICTED], REGION),
        ([HOLDS, UNDECIDED], REGION),
        ([CONTRADICTED, CONTRADICTED], CONTRADICTED),
        ([CONTRADICTED, UNDECIDED], UNDECIDED),
        ([NOT_TESTED, HOLDS], EVERYWHERE),
        ([NOT_TESTED], NOT_TESTED),
        ([], NOT_TESTED),
    ],
)
def test_the_verdict_on_a_claim_follows_from_its_readings(readings: list[str], verdict: str) -> None:
    assert verdict_of(readings) == verdict


def _judgement(names: tuple[str, ...], judged: list[JudgedReading]) -> Judgement:
    claim = Claim(id="c", text="t", source="s", figures=(), tests=(), readings=names)
    plan = Plan(
        id="x",
        paper="cube",
        title="",
        about="",
        experiment="simulate",
        protocols=(),
        skip=(),
        sizes={},
        figures=(),
        claims=(claim,),
        path=Path("x.toml"),
    )
    return Judgement(claim=claim, plan=plan, readings=tuple(judged))


@given(st.lists(VERDICTS, min_size=len(READINGS), max_size=len(READINGS)))
def test_of_many_regions_the_largest_are_named_and_the_others_counted(verdicts: list[str]) -> None:
    found = regions(list(zip(READINGS, verdicts, strict=True)), HOLDS)
    sentence = where_holds(_judged(verdicts))
    assert max(1, min(len(found), REGIONS_MAX)) == sentence.count("or where") + 1
    sizes = sorted(sum(_contains(region, reading) for reading in READINGS) for region in found)
    others = sum(sizes[: max(0, len(found) - REGIONS_MAX)])
    assert (f"and at {others} more of 12 readings" in sentence) == (others > 0)


@given(st.lists(VERDICTS, min_size=len(READINGS), max_size=len(READINGS)))
def test_what_speaks_against_a_claim_is_a_sentence_or_a_count(verdicts: list[str]) -> None:
    against, judged = verdicts.count(CONTRADICTED), _judged(verdicts)
    sentence = where_or_count(judged, CONTRADICTED)
    if len(regions(list(zip(READINGS, verdicts, strict=True)), CONTRADICTED)) > REGIONS_MAX:
        assert sentence == f"at {against} of 12 readings"
    else:
        assert sentence == (f"where {where_holds(judged, CONTRADICTED)}" if against else "")


def test_the_best_joint_reading_is_where_most_claims_hold_at_once() -> None:
    by_degree = _judged([CONTRADICTED, HOLDS], [{"degree": 2.5}, {"degree": 5.0}])
    by_routing = _where(lambda one: one["routing"] == "delay")
    by_size = _judged([HOLDS, UNDECIDED], [{"members": 100}, {"members": 700}])
    judgements = [
        _judgement(("degree",), by_degree),
        _judgement(tuple(SPACE), by_routing),
        _judgement(tuple(SPACE), by_routing),
        _judgement(("members",), by_size),
    ]
    best = best_joint_reading(judgements)
    assert best is not None
    assert (best.reading["degree"], best.reading["routing"]) == (5.0, "delay")
    assert (best.held, best.tested, best.contradicted) == (3, 4, 0), "a claim counts once, by its gravest verdict"


def test_readings_of_a_few_claims_are_not_those_of_a_study() -> None:
    anywhere = _judgement((), _judged([HOLDS], [{}]))
    by_variant = _judgement(("variant",), _judged([HOLDS, CONTRADICTED], [{"variant": "a"}, {"variant": "b"}]))
    assert best_joint_reading([anywhere]) is None
    assert best_joint_reading([anywhere, anywhere, by_variant]) is None


def test_a_claim_that_depends_on_one_more_parameter_does_not_hide_the_best_joint_reading() -> None:
    degrees = [{"degree": 2.5}, {"degree": 5.0}]
    by_degree = _judged([HOLDS, CONTRADICTED], degrees)
    by_size_too = _judged(
        [HOLDS, HOLDS, HOLDS, CONTRADICTED], [{**degree, "members": size} for degree in degrees for size in (100, 700)]
    )
    judgements = [
        _judgement(("degree",), by_degree),
        _judgement(("degree",), by_degree),
        _judgement(("degree", "members"), by_size_too),
    ]
    best = best_joint_reading(judgements)
    assert best is not None
    assert best.reading == {"degree": 2.5}
    assert (best.held, best.contradicted, best.tested) == (3, 0, 3)

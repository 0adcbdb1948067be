"""Calibration: the space, the design, the score, and what it says of parameters and claims."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import qmc, sobol_indices, uniform

from cubecast.errors import PlanError
from cubecast.lab.calibrate import SIZE, calibrated_plan, check_settings, fingerprint, result_path
from cubecast.lab.calibration import (
    Scored,
    acceptable,
    around,
    claims_with,
    exclusions,
    nowhere,
    score_settings,
    sensitivities,
    settings_at,
    start,
)
from cubecast.lab.calibration_file import read_calibration
from cubecast.lab.claims import REGION, UNDECIDED, Finding, JudgedReading, Judgement
from cubecast.lab.joint_space import joint_space, plans_of, resized, space_of
from cubecast.lab.load_plan import load_plan, load_plans
from cubecast.lab.outcomes import CONTRADICTED, HOLDS
from cubecast.lab.plan import Calibration, Claim, Plan, Test
from cubecast.lab.questions import questions_of
from cubecast.lab.runs import points_of, runs_of
from cubecast.lab.stats import Estimate
from cubecast.lab.store import Store
from cubecast.lab.study import project_plans
from cubecast.lab.whole_file import write_whole

SPACE = Calibration(
    start=8,
    rounds=1,
    width=4,
    repeats=2,
    sweep={"members": [8, 16]},
    fixed={},
    between={"degree": (2.0, 32.0)},
    among={"routing": ["hops", "delay"], "relayed": [True, False, True]},
)
PLAN = """\
id = "x"
paper = "cube"
title = "a study"
protocols = ["coord", "s_coord"]
[fixed]
network = "random:degree={degree}"
[sweep]
degree = [3]
members = [8, 16]
[quick]
repeats = 2
[full]
repeats = 3
[calibrate]
start = 2
repeats = 2
sweep.members = [8, 16]
between.degree = [2.0, 6.0]
among.routing = ["hops", "delay"]
[[claim]]
id = "c"
text = "A sentence."
source = "§1"
[[claim.test]]
kind = "value"
metric = "messages"
where = { protocol = "coord" }
above = 1.0
"""


def test_a_setting_is_a_point_of_the_unit_cube() -> None:
    corners = np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [np.nextafter(1, 0)] * 3])
    assert settings_at(SPACE, corners) == [
        {"degree": 2.0, "routing": "hops", "relayed": True},
        {"degree": 8.0, "routing": "delay", "relayed": False},
        {"degree": 32.0, "routing": "delay", "relayed": True},
    ]


def test_the_start_is_the_same_every_time_and_covers_the_space() -> None:
    points = start(SPACE)
    assert points.shape == (8 * (3 + 2), 3)
    assert np.array_equal(points, start(SPACE))
    assert qmc.discrepancy(points[:8]) < 0.1
    for column in range(3):
        mixed = points[8 * (2 + column) : 8 * (3 + column)]
        assert np.array_equal(mixed[:, column], points[8:16, column]), "this column is of B"
        others = [other for other in range(3) if other != column]
        assert np.array_equal(mixed[:, others], points[:8, others]), "all others are of A"


def test_a_refinement_stays_near_the_best_and_in_the_space() -> None:
    best = np.array([[0.0, 0.5, 0.9]])
    for number in (1, 2, 3):
        near = around(best, number=number, width=8)
        assert (np.abs(near - best) <= 0.5**number / 2 + 1e-12).all()
        assert (near >= 0).all()
        assert (near < 1).all()


def _linear(points: Any) -> list[float]:
    """A score of which the first parameter explains 0.8, the second 0.2, the third nothing."""
    return [float(2 * row[0] + row[1]) for row in points]


def test_sensitivities_are_those_of_scipy() -> None:
    space = Calibration(**{**vars(SPACE), "start": 1024})
    found = sensitivities(space, _linear(start(space)))
    dists: Any = [uniform()] * 3
    oracle = sobol_indices(func=lambda x: 2 * x[0] + x[1], n=1024, dists=dists, rng=np.random.default_rng(1))
    for place, name in enumerate(space.names):
        assert found[name].first_order == pytest.approx([0.8, 0.2, 0.0][place], abs=0.05)
        assert found[name].first_order == pytest.approx(float(np.ravel(oracle.first_order)[place]), abs=0.05)
        assert found[name].total == pytest.approx(found[name].first_order, abs=0.05)


def test_a_score_that_never_varies_is_explained_by_nothing() -> None:
    assert {one.total for one in sensitivities(SPACE, [3.0] * 40).values()} == {0.0}


def _plan_named(name: str) -> Plan:
    return Plan(
        id=name,
        paper="cube",
        title="t",
        about="",
        experiment="simulate",
        protocols=(),
        variants=(),
        sizes={},
        skip=(),
        figures=(),
        claims=(),
        path=Path("x.toml"),
    )


def _judged(claim_id: str, verdicts: dict[int, str], paper: float | None = None, *, name: str = "degree") -> Judgement:
    test = Test(kind="value", metric="rtt", low=0.0, paper=paper)
    claim = Claim(id=claim_id, text="t", source="s", figures=(), tests=(test,), readings=(name,))
    readings = [
        JudgedReading(
            reading={name: degree},
            verdict=verdict,
            findings=(
                Finding(test=test, point={}, estimate=Estimate(float(degree), 0, 9, 3), outcome=verdict, p_breaks=1.0),
            ),
        )
        for degree, verdict in verdicts.items()
    ]
    return Judgement(claim=claim, plan=_plan_named("calibrate-x"), readings=tuple(readings))


def test_the_best_setting_has_the_most_claims_and_then_the_nearest_numbers() -> None:
    judgements = [
        _judged("a", {3: HOLDS, 5: HOLDS, 7: CONTRADICTED}, paper=5.0),
        _judged("b", {3: UNDECIDED, 5: UNDECIDED, 7: HOLDS}),
    ]
    scored = score_settings(judgements, [{"degree": 3}, {"degree": 5}, {"degree": 7}])
    assert [(one.held, one.undecided, one.tested) for one in scored] == [(1, 1, 2), (1, 1, 2), (1, 0, 2)]
    assert max(scored, key=lambda one: one.rank).setting == {"degree": 5}, "5 is the number of the paper"
    assert acceptable(scored, within=0.0) == {"degree": [3, 5]}
    assert acceptable(scored, within=0.5) == {"degree": [3, 5, 7]}


def test_claims_that_never_hold_together_exclude_each_other() -> None:
    judgements = [
        _judged("a", {3: HOLDS, 5: CONTRADICTED}),
        _judged("b", {3: CONTRADICTED, 5: HOLDS}),
        _judged("c", {3: HOLDS, 5: HOLDS}),
        _judged("never", {3: CONTRADICTED, 5: CONTRADICTED}),
    ]
    judgements.append(_judged("maybe", {3: UNDECIDED, 5: CONTRADICTED}))
    judgements.append(_judged("with both", {3: HOLDS, 5: UNDECIDED}))
    settings: list[Any] = [{"degree": 3, "rate": 1}, {"degree": 5, "rate": 2}]
    assert exclusions(judgements, settings) == [("x/a", "x/b")]
    assert nowhere(judgements) == ["x/never"]
    assert claims_with(CONTRADICTED, judgements, settings[1]) == ["x/a", "x/never", "x/maybe"]


def test_a_claim_counts_at_its_part_of_a_setting() -> None:
    judgements = [_judged("a", {3: HOLDS, 5: CONTRADICTED}), _judged("b", {3: HOLDS, 5: HOLDS}, name="rate")]
    settings: list[Any] = [{"degree": 3, "rate": 5}, {"degree": 5, "rate": 3}]
    assert [(one.held, one.tested) for one in score_settings(judgements, settings)] == [(2, 2), (1, 2)]


def test_a_claim_that_holds_at_some_of_its_own_readings_holds_in_part() -> None:
    whole = _judged("a", {3: HOLDS})
    judged = {
        "part": {8: HOLDS, 16: CONTRADICTED},
        "whole": {8: HOLDS, 16: HOLDS},
        "none": {8: CONTRADICTED, 16: CONTRADICTED},
        "open": {8: UNDECIDED, 16: CONTRADICTED},
    }
    judgements = [
        replace(
            whole,
            claim=replace(whole.claim, id=name),
            readings=tuple(
                replace(whole.readings[0], reading={"degree": 3, "members": members}, verdict=verdict)
                for members, verdict in verdicts.items()
            ),
        )
        for name, verdicts in judged.items()
    ]
    (scored,) = score_settings(judgements, [{"degree": 3}])
    assert (scored.held, scored.in_part, scored.undecided, scored.tested) == (1, 1, 1, 4)
    assert scored.score == 2.0
    assert claims_with(REGION, judgements, {"degree": 3}) == ["x/part"]
    assert claims_with(CONTRADICTED, judgements, {"degree": 3}) == ["x/none"]
    assert claims_with(CONTRADICTED, judgements, {"degree": 5}) == [], "not tested there"


def test_a_claim_keeps_those_of_its_readings_that_vary_at_a_setting(plan_path: Path) -> None:
    text = PLAN.replace('source = "§1"', 'source = "§1"\nreadings = ["members", "degree"]')
    plan_path.write_text(text.replace("degree = [3]", "degree = [3, 4]"))
    settings = [{"degree": 2.5, "routing": "hops"}]
    assert calibrated_plan(load_plan(plan_path), settings).claims[0].readings == ("degree", "routing", "members")


def test_nothing_scored_accepts_nothing() -> None:
    assert acceptable(list[Scored]()) == {}


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(PLAN)
    return path


def test_the_settings_are_the_readings_of_a_plan_of_their_own(plan_path: Path) -> None:
    plan = load_plan(plan_path)
    settings = [{"degree": 2.5, "routing": "hops"}, {"degree": 4.0, "routing": "delay"}]
    derived = calibrated_plan(plan, settings)
    assert derived.id == "calibrate-x"
    assert derived.claims[0].readings == ("degree", "routing")
    points = points_of(derived, SIZE)
    assert len(points) == 2 * 2
    assert {(point["degree"], point["routing"]) for point in points} == {(2.5, "hops"), (4.0, "delay")}
    assert len(runs_of(derived, SIZE)) == 4 * 2


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("between.degree = [2.0, 6.0]", "between.degree = [6.0, 2.0]", 18, "write [low, high]"),
        ("between.degree = [2.0, 6.0]", "between.degree = [0.0, 6.0]", 18, "write [low, high]"),
        ("between.degree = [2.0, 6.0]", "between.degree = [2.0, inf]", 18, "write [low, high]"),
        ('among.routing = ["hops", "delay"]', "among.routing = []", 19, "a list of at least one value"),
        ("start = 2", "start = 3", 15, "a power of two"),
        ("start = 2", "start = 1", 15, "choose at least 2"),
        ("repeats = 2\nsweep", "repeats = 1\nsweep", 16, "choose at least 2"),
        ("between.degree = [2.0, 6.0]", "between.members = [2.0, 6.0]", 14, "members is given twice"),
        ("start = 2\n", "", 14, "lacks 'start'"),
        ("start = 2\n", 'start = 2\nfixed.routing = "hops"\n', 14, "routing is given twice"),
    ],
)
def test_a_space_that_cannot_be_is_refused_with_its_line(
    plan_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in PLAN
    plan_path.write_text(PLAN.replace(old, new, 1))
    with pytest.raises(PlanError) as caught:
        load_plan(plan_path)
    assert str(caught.value).startswith(f"{plan_path}:{line}: ")
    assert message in str(caught.value)


def test_a_space_with_nothing_open_is_refused(plan_path: Path) -> None:
    lines = [line for line in PLAN.splitlines(keepends=True) if not line.startswith(("between.", "among."))]
    plan_path.write_text("".join(lines))
    with pytest.raises(PlanError, match="no open parameters"):
        load_plan(plan_path)


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ('among.routing = ["hops", "delay"]', 'among.routing = ["hops", "luck"]', 19, "routing = 'luck': choose"),
        ('among.routing = ["hops", "delay"]', 'among.colour = ["red", "blue"]', 19, "unknown setting 'colour'"),
        ("between.degree = [2.0, 6.0]", "between.degree = [2.0, 6.0]\nbetween.loss = [0.5, 2.0]", 19, "loss = "),
    ],
)
def test_an_impossible_setting_is_refused_with_its_line_before_anything_runs(
    plan_path: Path, old: str, new: str, line: int, told: str
) -> None:
    assert old in PLAN
    plan_path.write_text(PLAN.replace(old, new, 1))
    plan = load_plan(plan_path)
    with pytest.raises(PlanError, match=rf"x\.toml:{line}: .*{told}"):
        check_settings(plan, settings_at(joint_space([plan]), start(joint_space([plan]))))


def test_values_at_which_no_claim_can_be_judged_are_refused(plan_path: Path) -> None:
    text = PLAN.replace("sweep.members = [8, 16]", "sweep.members = [32]")
    plan_path.write_text(text.replace('where = { protocol = "coord" }', 'where = { protocol = "coord", members = 8 }'))
    plan = load_plan(plan_path)
    with pytest.raises(PlanError, match=r"x\.toml:14: calibrate: no claim can be judged at the values of sweep"):
        check_settings(plan, settings_at(joint_space([plan]), start(joint_space([plan]))))


def test_a_paper_without_a_space_is_refused(plan_path: Path) -> None:
    plans = load_plans(plan_path.parent)
    assert [plan.id for plan in plans_of("cube", plans)] == ["x"]
    with pytest.raises(PlanError, match=r"no plan of 'guo' has a table \[calibrate\]: choose from cube"):
        plans_of("guo", plans)


def _second(plan_path: Path, *changes: tuple[str, str]) -> Path:
    text = PLAN.replace('id = "x"', 'id = "y"')
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = plan_path.with_name("y.toml")
    path.write_text(text)
    return path


def test_plans_of_a_paper_are_calibrated_together(plan_path: Path) -> None:
    other = _second(plan_path, ('among.routing = ["hops", "delay"]', 'among.multicast = ["tree", "copies"]'))
    plans = plans_of("cube", load_plans(plan_path.parent))
    space = joint_space(plans)
    assert space.names == ("degree", "routing", "multicast")
    settings = settings_at(space, start(space))
    assert len(settings) == 2 * (3 + 2)
    derived = calibrated_plan(load_plan(other), settings)
    assert derived.claims[0].readings == ("degree", "multicast")
    assert "routing" not in points_of(derived, SIZE)[0], "a plan is run at its own part of a setting"
    assert len(points_of(derived, SIZE)) == 2 * len({(one["degree"], one["multicast"]) for one in settings})


def test_a_variant_that_no_claim_looks_at_is_not_run(plan_path: Path) -> None:
    plan = load_plan(plan_path)
    derived = calibrated_plan(plan, [{"degree": 2.5, "routing": "hops"}])
    assert derived.protocols == ("coord",), "the claim is about Coord alone"
    assert {point["protocol"] for point in points_of(derived, SIZE)} == {"coord"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("between.degree = [2.0, 6.0]", "between.degree = [2.0, 8.0]", r"degree = \(2.0, 8.0\), but \(2.0, 6.0\)"),
        ("between.degree = [2.0, 6.0]", "among.degree = [2.0, 6.0]", r"degree = \[2.0, 6.0\], but \(2.0, 6.0\)"),
        ("start = 2", "start = 4", r"start = 4, but 2 in x\.toml"),
    ],
)
def test_plans_of_a_paper_that_disagree_are_refused(plan_path: Path, old: str, new: str, message: str) -> None:
    _second(plan_path, (old, new))
    with pytest.raises(PlanError, match=r"y\.toml:14: calibrate: " + message):
        joint_space(plans_of("cube", load_plans(plan_path.parent)))


def test_every_paper_can_be_calibrated() -> None:
    plans = load_plans(project_plans())
    for paper in ("cube", "guo", "causal", "rasm"):
        chosen = plans_of(paper, plans)
        space = joint_space(chosen)
        corners = settings_at(space, np.array([[0.0] * len(space.names), [np.nextafter(1, 0)] * len(space.names)]))
        for plan in chosen:
            check_settings(plan, corners)
            derived = calibrated_plan(plan, corners)
            points = points_of(derived, SIZE)
            tested = {question.claim.id for question in questions_of(derived, points) if question.is_asked(points)}
            assert len(tested) >= 0.8 * len(derived.claims), f"{plan.id}: {space_of(plan).sweep}"


def test_a_result_of_other_plans_or_code_is_not_shown(plan_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store = load_plan(plan_path), Store(plan_path.parent / "results")
    assert read_calibration(store, "cube", [plan]) is None
    setting: dict[str, Any] = {"degree": 2.5, "routing": "hops"}
    result: dict[str, Any] = {"studies": {"x": fingerprint(plan, setting)}, "best": {"setting": setting}}
    path = result_path(store, "cube")
    write_whole(path, json.dumps(result))
    assert read_calibration(store, "cube", [plan]) == result
    assert read_calibration(store, "cube", []) == result, "a report of other studies of the paper"
    again = "and is ignored: run cubecast study calibrate cube again."
    plan_path.write_text(PLAN.replace("above = 1.0", "above = 2.0"))
    assert str(read_calibration(store, "cube", [load_plan(plan_path)])).endswith(again)
    plan_path.write_text(PLAN.replace("among.routing", "among.multicast").replace('"delay"]', '"tree"]'))
    assert str(read_calibration(store, "cube", [load_plan(plan_path)])).endswith(again), "another space"
    plan_path.write_text(PLAN)
    with monkeypatch.context() as patch:
        patch.setattr("cubecast.lab.runs.source_hash", lambda _settings: "other code")
        assert str(read_calibration(store, "cube", [plan])).endswith(again)
    assert read_calibration(store, "cube", [plan]) == result
    for damaged in ("{", "[]", '{"studies": ["x"], "best": {"setting": {}}}'):
        write_whole(path, damaged)
        assert "calibration-cube.json is damaged" in str(read_calibration(store, "cube", [plan]))


def test_sizes_of_the_command_line_take_the_place_of_planned_ones(plan_path: Path) -> None:
    (plan,) = resized(plans_of("cube", load_plans(plan_path.parent)), {"start": 4, "rounds": None, "repeats": 3})
    space = space_of(plan)
    assert (space.start, space.rounds, space.repeats) == (4, 2, 3)
    for wrong, message in (
        ({"start": 3}, "a power of two"),
        ({"repeats": 1}, "choose at least 2"),
        ({"repeats": 10**9}, "x: 128000000000 runs: a calibration has at most 2000000"),
    ):
        with pytest.raises(PlanError, match=message):
            resized([plan], wrong)

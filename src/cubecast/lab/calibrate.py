"""Calibrate a paper: run the settings of a calibration on Spark, round by round, and write what was found.

Every round is a study of its own plan, with the settings as readings, so that its runs are cached, resumed and shared
like all others. The result is `tables/calibration-PAPER.json`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cubecast.errors import CubecastError, PlanError
from cubecast.lab.calibration import (
    PARENTS,
    Scored,
    Sensitivity,
    Unit,
    acceptable,
    around,
    exclusions,
    score_settings,
    sensitivities,
    settings_at,
    start,
)
from cubecast.lab.claims import Answers, Judgement, judge
from cubecast.lab.experiments import check_run
from cubecast.lab.plan import Calibration, Plan, PlanSize
from cubecast.lab.quantities import name_of
from cubecast.lab.questions import Reading
from cubecast.lab.remote import AnyPath
from cubecast.lab.runs import points_of, runs_of
from cubecast.lab.store import Store
from cubecast.lab.study import Progress, Say, run_studies
from cubecast.lab.tables import rows_of
from cubecast.lab.toml_lines import key_lines, line_of
from cubecast.lab.whole_file import write_whole

SIZE = "full"


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What a calibration found."""

    paper: str
    study: str
    best: Scored
    settings_tried: int
    numbers: list[dict[str, Any]]
    """The paper's numbers beside ours at the best setting."""
    acceptable: dict[str, list[Any]]
    exclusions: list[tuple[str, str]]
    sensitivities: dict[str, Sensitivity]


def plan_of(paper: str, plans: list[Plan]) -> Plan:
    """The plan of a paper that can be calibrated."""
    found = [plan for plan in plans if plan.paper == paper and plan.calibration is not None]
    if len(found) != 1:
        known = sorted({plan.paper for plan in plans if plan.calibration is not None})
        raise PlanError(f"{len(found)} plans of {paper!r} have a table [calibrate]: choose from {', '.join(known)}")
    return found[0]


def calibrate(
    plan: Plan, store: Store, *, master: str | None, conf: dict[str, str] | None, progress: Progress, say: Say
) -> Calibrated:
    """Search for the setting under which most claims of the plan hold at once."""
    from cubecast.lab.spark.session import session

    space = plan.calibration
    assert space is not None
    points = start(space)
    how: dict[str, Any] = {"master": master, "conf": conf, "progress": progress, "say": say}
    check_settings(plan, settings_at(space, points))
    with session(master, conf=conf):  # one for all rounds
        judgements = _run(plan, _unique(settings_at(space, points)), store, **how)
        for number in range(1, space.rounds + 1):
            scored = score_settings(judgements, settings_at(space, points))
            say(f"round {number} of {space.rounds}: best so far {_best(scored).held} of {_best(scored).tested}")
            order = sorted(range(len(scored)), key=lambda place: scored[place].rank, reverse=True)
            points = np.concatenate([points, around(points[order[:PARENTS]], number=number, width=space.width)])
            judgements = _run(plan, _unique(settings_at(space, points)), store, **how)
    found = _found(plan, space, points, judgements)
    write_whole(result_path(store, plan.paper), json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n")
    return found


def result_path(store: Store, paper: str) -> AnyPath:
    return store.tables / f"calibration-{paper}.json"


def calibrated_plan(plan: Plan, settings: list[Reading]) -> Plan:
    """The plan with these settings as its readings."""
    space = plan.calibration
    assert space is not None
    size = PlanSize(
        repeats=space.repeats,
        fixed=plan.sizes[SIZE].fixed | space.fixed,
        sweep=space.sweep,
        zips=({name: [setting[name] for setting in settings] for name in space.names},),
    )
    claims = tuple(replace(claim, readings=space.names, figures=()) for claim in plan.claims)
    sizes = dict.fromkeys(plan.sizes, size)
    return replace(plan, id=f"calibrate-{plan.paper}", sizes=sizes, figures=(), claims=claims)


def check_settings(plan: Plan, settings: list[Reading]) -> None:
    """Construct a run of every point, so that an impossible setting is found before anything runs."""
    derived = calibrated_plan(plan, _unique(settings))
    seen: set[str] = set()
    for run in (run for run in runs_of(derived, SIZE) if run.seed == 0):
        try:
            check_run(plan.experiment, run.settings, seen)
        except CubecastError as error:
            line = line_of(key_lines(plan.path.read_text("utf-8")), "calibrate")
            raise PlanError(f"{plan.path}:{line}: {error}") from None


def _unique(settings: list[Reading]) -> list[Reading]:
    return list({repr(setting): setting for setting in settings}.values())


def _run(plan: Plan, settings: list[Reading], store: Store, **how: Any) -> list[Judgement]:
    derived = calibrated_plan(plan, settings)
    outcome = run_studies([derived], SIZE, store, **how)
    assert outcome.summary is not None
    assert outcome.findings is not None
    with_data = {row["point"] for row in rows_of(outcome.summary, derived.id)}
    answers = Answers(
        plan=derived,
        points=points_of(derived, SIZE),
        with_data=with_data,
        findings=rows_of(outcome.findings, derived.id),
    )
    return judge([answers])[derived.id]


def _best(scored: list[Scored]) -> Scored:
    return max(scored, key=lambda one: one.rank)


def _found(plan: Plan, space: Calibration, points: Unit, judgements: list[Judgement]) -> Calibrated:
    scored = score_settings(judgements, settings_at(space, points))
    best = _best(scored)
    count = space.start * (len(space.names) + 2)
    numbers = [
        {
            "claim": one.claim.id,
            "quantity": name_of(finding.test),
            "paper": finding.test.paper,
            "ours": finding.estimate.value,
            "low": finding.estimate.low,
            "high": finding.estimate.high,
        }
        for one in judgements
        for own in one.readings
        if own.reading == best.setting
        for finding in own.findings
        if finding.test.paper is not None
    ]
    return Calibrated(
        paper=plan.paper,
        study=plan.id,
        best=best,
        settings_tried=len(_unique(settings_at(space, points))),
        numbers=numbers,
        acceptable=acceptable(scored),
        exclusions=exclusions(judgements),
        sensitivities=sensitivities(space, [one.score for one in scored[:count]]),
    )

"""Calibrate a paper: run the settings of a calibration on Spark, round by round, and write the result.

Every round is a study of the paper's plans, with the settings as readings, so that its runs are cached, resumed and
shared like all others. The result is `tables/calibration-PAPER.json`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cubecast.errors import CubecastError, LocalProtocolError, PlanError
from cubecast.lab.calibration import (
    CALIBRATED,
    PARENTS,
    Scored,
    Sensitivity,
    Unit,
    acceptable,
    around,
    claim_name,
    claims_with,
    exclusions,
    nowhere,
    readings_at,
    score_settings,
    sensitivities,
    settings_at,
    start,
)
from cubecast.lab.claims import REGION, Answers, Judgement, judge
from cubecast.lab.experiments import check_run
from cubecast.lab.joint_space import joint_space, space_of
from cubecast.lab.outcomes import CONTRADICTED
from cubecast.lab.plan import Calibration, Claim, Plan, PlanSize
from cubecast.lab.provenance import plan_hash
from cubecast.lab.quantities import name_of
from cubecast.lab.questions import Reading, questions_of
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
    """The result of a calibration."""

    paper: str
    studies: dict[str, str]
    """The studies, each with the `fingerprint` of its plan and code."""
    best: Scored
    contradicted: list[str]
    """The claims that are contradicted at the best setting."""
    in_part: list[str]
    """The claims that hold there at some of their own readings, such as group sizes."""
    settings_tried: int
    numbers: list[dict[str, Any]]
    """The paper's numbers and ours at the best setting."""
    acceptable: dict[str, list[Any]]
    """The values of each parameter in the settings within one claim of the best."""
    exclusions: list[tuple[str, str]]
    nowhere: list[str]
    """The claims that are contradicted at all settings."""
    sensitivities: dict[str, Sensitivity]


def calibrate(
    plans: list[Plan], store: Store, *, master: str | None, conf: dict[str, str] | None, progress: Progress, say: Say
) -> Calibrated:
    """Search for the setting under which most claims of the plans of a paper hold at once."""
    from cubecast.lab.spark.session import session

    space = joint_space(plans)
    points = start(space)
    how: dict[str, Any] = {"master": master, "conf": conf, "progress": progress, "say": say}
    for plan in plans:
        check_settings(plan, settings_at(space, points))
    with session(master, conf=conf):  # one for all rounds
        judgements = _run(plans, settings_at(space, points), store, **how)
        for number in range(1, space.rounds + 1):
            scored = score_settings(judgements, settings_at(space, points))
            say(f"round {number} of {space.rounds}: best so far {_best(scored).held} of {_best(scored).tested}")
            order = sorted(range(len(scored)), key=lambda place: scored[place].rank, reverse=True)
            points = np.concatenate([points, around(points[order[:PARENTS]], number=number, width=space.width)])
            judgements = _run(plans, settings_at(space, points), store, **how)
    found = _found(plans, space, points, judgements)
    write_whole(result_path(store, found.paper), json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n")
    return found


def result_path(store: Store, paper: str) -> AnyPath:
    return store.tables / f"calibration-{paper}.json"


def calibrated_plan(plan: Plan, settings: list[Reading]) -> Plan:
    """The plan with its part of these settings as its readings."""
    space = space_of(plan)
    own = _unique([{name: setting[name] for name in space.names} for setting in settings])
    size = PlanSize(
        repeats=space.repeats,
        fixed=plan.sizes[SIZE].fixed | space.fixed,
        sweep=space.sweep,
        zips=({name: [setting[name] for setting in own] for name in space.names},),
    )
    derived = replace(plan, id=CALIBRATED + plan.id, sizes=dict.fromkeys(plan.sizes, size), figures=())
    claims = tuple(
        replace(claim, readings=_readings(claim, space.names, derived.parameters), figures=()) for claim in plan.claims
    )
    return _only_needed(replace(derived, claims=claims))


def _readings(claim: Claim, opened: Sequence[str], varying: Sequence[str]) -> tuple[str, ...]:
    """The open parameters, and those of the claim's own readings that vary at a setting, as group sizes do."""
    return (*opened, *(name for name in claim.readings if name in varying and name not in opened))


def fingerprint(plan: Plan, setting: Reading) -> str:
    """A hash of a plan and of the code that runs it at a setting: a result with another one is out of date."""
    codes = {run.code for run in runs_of(calibrated_plan(plan, [setting]), SIZE)}
    return hashlib.sha256(" ".join([plan_hash(plan), *sorted(codes)]).encode()).hexdigest()[:16]


def _only_needed(plan: Plan) -> Plan:
    """The plan without the protocols and variants that no claim uses; one setting is enough to find them."""
    chosen = plan.sizes[SIZE]
    one = replace(chosen, zips=({name: values[:1] for name, values in chosen.zips[0].items()},))
    points = points_of(replace(plan, sizes=dict.fromkeys(plan.sizes, one)), SIZE)
    questions = questions_of(plan, points)
    needed = [point for point in points if any(question.needs(point) for question in questions)]
    names, labels = ({point.get(key) for point in needed} for key in ("protocol", "variant"))
    return replace(
        plan,
        protocols=tuple(name for name in plan.protocols if name in names),
        variants=tuple(variant for variant in plan.variants if variant["label"] in labels),
    )


def check_settings(plan: Plan, settings: list[Reading]) -> None:
    """Construct a run of every point, so that an invalid setting is found before anything runs."""
    derived = calibrated_plan(plan, settings)
    points = points_of(derived, SIZE)
    if not any(question.is_asked(points) for question in questions_of(derived, points)):
        raise PlanError(
            f"{plan.path}:{_line_of(plan, None)}: calibrate: no claim can be judged at the values of sweep and fixed: "
            "add those that a test selects"
        )
    seen: set[str] = set()
    for run in (run for run in runs_of(derived, SIZE) if run.seed == 0):
        try:
            check_run(plan.experiment, run.settings, seen)
        except CubecastError as error:
            name = error.setting if isinstance(error, LocalProtocolError) else None
            raise PlanError(f"{plan.path}:{_line_of(plan, name)}: {error}") from None


def _line_of(plan: Plan, name: str | None) -> int:
    """The line of a setting in the table `calibrate`; the line of the table if it does not name the setting."""
    lines = key_lines(plan.path.read_text("utf-8"))
    paths = [("calibrate", part, name) for part in ("between", "among", "sweep", "fixed") if name is not None]
    return line_of(lines, *next((path for path in paths if path in lines), ("calibrate",)))


def _unique(settings: list[Reading]) -> list[Reading]:
    return list({repr(setting): setting for setting in settings}.values())


def _run(plans: list[Plan], settings: list[Reading], store: Store, **how: Any) -> list[Judgement]:
    derived = [calibrated_plan(plan, settings) for plan in plans]
    outcome = run_studies(derived, SIZE, store, **how)
    assert outcome.summary is not None
    assert outcome.findings is not None
    answers = [
        Answers(
            plan=plan,
            points=points_of(plan, SIZE),
            with_data={row["point"] for row in rows_of(outcome.summary, plan.id)},
            findings=rows_of(outcome.findings, plan.id),
        )
        for plan in derived
    ]
    return [one for own in judge(answers).values() for one in own]


def _best(scored: list[Scored]) -> Scored:
    return max(scored, key=lambda one: one.rank)


def _found(plans: list[Plan], space: Calibration, points: Unit, judgements: list[Judgement]) -> Calibrated:
    settings = settings_at(space, points)
    scored = score_settings(judgements, settings)
    best = _best(scored)
    count = space.start * (len(space.names) + 2)
    numbers = [
        {
            "claim": claim_name(one),
            "quantity": name_of(finding.test),
            "paper": finding.test.paper,
            "ours": finding.estimate.value,
            "low": finding.estimate.low,
            "high": finding.estimate.high,
        }
        for one in judgements
        for own in readings_at(one, best.setting)
        for finding in own.findings
        if finding.test.paper is not None
    ]
    return Calibrated(
        paper=plans[0].paper,
        studies={plan.id: fingerprint(plan, best.setting) for plan in plans},
        best=best,
        contradicted=claims_with(CONTRADICTED, judgements, best.setting),
        in_part=claims_with(REGION, judgements, best.setting),
        settings_tried=len(_unique(settings)),
        numbers=numbers,
        acceptable=acceptable(scored),
        exclusions=exclusions(judgements, settings),
        nowhere=nowhere(judgements),
        sensitivities=sensitivities(space, [one.score for one in scored[:count]]),
    )

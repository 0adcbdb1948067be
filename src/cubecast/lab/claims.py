"""Judge the claims of a paper by the rule of docs/plans.md.

A test measures one quantity (`lab.quantities`) at every point that its selections leave, with a 95 % interval, and
holds it to a bound:

- *confirmed* at a point: the whole interval keeps the bound;
- *refuted* at a point: the whole interval breaks it;
- *open*: the interval straddles it.

A claim is refuted when a test is refuted at any point, confirmed when every test is confirmed at every point, and
otherwise not comparable.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cubecast.lab.metric_titles import title_of
from cubecast.lab.plan import Claim, Plan, Test
from cubecast.lab.quantities import Point, name_of
from cubecast.lab.questions import CONFIRMED, OPEN, REFUTED, Question, each_of, questions_of
from cubecast.lab.stats import Estimate
from cubecast.lab.tables import sortable

NOT_COMPARABLE = "not comparable"
RULE = (
    "A claim is split into tests; each measures a quantity at every point of the study with its 95 % interval "
    "(Student's, over the seeds; protocols meet the same networks). A point is confirmed when the whole interval keeps "
    "the bound, refuted when the whole interval breaks it, and open otherwise. A claim is confirmed when every point "
    "of every test is, refuted when any point is, and not comparable otherwise (no data, or intervals that straddle a "
    "bound)."
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One test at one point."""

    test: Test
    point: Point
    estimate: Estimate
    outcome: str


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a claim, for one value of `each` where the claim asks for it."""

    claim: Claim
    study: str
    at: str
    verdict: str
    findings: tuple[Finding, ...]
    ours: str
    """Our figure, in words."""


def judge(
    plan: Plan, points: Sequence[Point], with_data: set[int], findings: Iterable[dict[str, Any]]
) -> list[Judgement]:
    """The verdicts on all claims of a plan, from rows of `FINDINGS`; `with_data` are the points that have values."""
    by_question: dict[int, list[Finding]] = defaultdict(list)
    questions = questions_of(plan, points)
    for row in sorted(findings, key=lambda row: [row["question"], *(sortable(value) for _, value in row["point"])]):
        estimate = Estimate(row["value"], row["low"], row["high"], row["n"])
        test = questions[row["question"]].test
        finding = Finding(test=test, point=dict(row["point"]), estimate=estimate, outcome=row["outcome"])
        by_question[row["question"]].append(finding)
    return [
        _judge(plan, claim, where, [one for one in questions if one.claim is claim and one.where == where], by_question)
        for claim in plan.claims
        for where in each_of(claim, [points[number] for number in sorted(with_data)]) or [{}]
    ]


def _judge(
    plan: Plan, claim: Claim, where: dict[str, Any], asked: list[Question], answers: dict[int, list[Finding]]
) -> Judgement:
    findings = [finding for question in asked for finding in answers[question.number]]
    complete = all(answers[question.number] for question in asked)
    outcomes = {finding.outcome for finding in findings}
    verdict = NOT_COMPARABLE
    if REFUTED in outcomes:
        verdict = REFUTED
    elif outcomes == {CONFIRMED} and complete:
        verdict = CONFIRMED
    at = ", ".join(
        f"{title_of(name)} = {value:g}" if isinstance(value, float) else f"{title_of(name)} = {value}"
        for name, value in where.items()
    )
    return Judgement(claim=claim, study=plan.id, at=at, verdict=verdict, findings=tuple(findings), ours=_ours(findings))


def _ours(findings: list[Finding]) -> str:
    """Our figure: the range of each quantity, and the point that decides the outcome of its test."""
    if not findings:
        return "no data"
    parts = []
    for test in dict.fromkeys(id(finding.test) for finding in findings):
        own = [finding for finding in findings if id(finding.test) == test]
        kept = sum(finding.outcome == CONFIRMED for finding in own)
        worst = max(own, key=_against)
        point = ", ".join(f"{name} {value}" for name, value in worst.point.items())
        shown = _shown(worst.estimate) + (f" at {point}" if point else "")
        if len(own) > 1:
            values = [finding.estimate.value for finding in own]
            shown = f"{min(values):.3g} … {max(values):.3g}; {_DECIDING[worst.outcome]} {shown}"
        parts.append(f"{name_of(worst.test)}: {shown} (kept at {kept} of {len(own)} points)")
    return "; ".join(parts)


_DECIDING = {CONFIRMED: "closest to the bound", OPEN: "open with", REFUTED: "refuted by"}
"""How the point that decides a test is introduced, from the mildest outcome to the gravest."""


def _against(finding: Finding) -> tuple[int, float]:
    """How much a finding speaks against its claim: by its outcome, then by the distance beyond the bound."""
    test, estimate = finding.test, finding.estimate
    below = -math.inf if test.low is None else test.low - estimate.value
    above = -math.inf if test.high is None else estimate.value - test.high
    return list(_DECIDING).index(finding.outcome), max(below, above)


def _shown(estimate: Estimate) -> str:
    if estimate.low == estimate.high:
        return f"{estimate.value:.3g}"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"

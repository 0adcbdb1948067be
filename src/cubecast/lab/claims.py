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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cubecast.lab.metric_titles import title_of
from cubecast.lab.plan import FORMULAS, Claim, Plan, Test
from cubecast.lab.quantities import Measured, Point, measure, name_of
from cubecast.lab.select import matches
from cubecast.lab.stats import Estimate
from cubecast.lab.tables import sortable

CONFIRMED, REFUTED, OPEN, NOT_COMPARABLE = "confirmed", "refuted", "open", "not comparable"
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


def judge(plan: Plan, values: pa.Table) -> list[Judgement]:
    """The verdicts on all claims of a plan."""
    measured = Measured(values, plan.id)
    exact = plan.experiment in FORMULAS
    return [_judge(plan, claim, measured, where, exact) for claim in plan.claims for where in _each(claim, measured)]


def _each(claim: Claim, measured: Measured) -> Iterable[dict[str, Any]]:
    """The values of `each` that a test of the claim asks about."""
    if claim.each is None:
        return [{}]
    values = {point[claim.each] for point in measured.points.values() if claim.each in point}
    ordered = [{claim.each: value} for value in sorted(values, key=sortable)]
    return [where for where in ordered if any(_applies(test, where) for test in claim.tests)] or [{}]


def _applies(test: Test, where: dict[str, Any]) -> bool:
    """Does the test ask about this value of `each`, or does its `where` leave it out?"""
    return matches({name: wanted for name, wanted in test.where.items() if name in where}, where)


def _judge(plan: Plan, claim: Claim, measured: Measured, where: dict[str, Any], exact: bool) -> Judgement:
    findings: list[Finding] = []
    complete = True
    for test in (one for one in claim.tests if _applies(one, where)):
        found = [
            Finding(test=test, point=point, estimate=estimate, outcome=outcome_of(estimate, test))
            for point, estimate in measure(test, measured, where, exact=exact)
        ]
        complete = complete and bool(found)
        findings += found
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
    return Judgement(
        claim=claim, study=plan.id, at=at, verdict=verdict, findings=tuple(findings), ours=_ours(findings, where)
    )


def outcome_of(estimate: Estimate, test: Test) -> str:
    """How an interval stands to the bounds of a test."""
    low = -math.inf if test.low is None else test.low
    high = math.inf if test.high is None else test.high
    if math.isnan(estimate.value):
        return OPEN
    if low <= estimate.low and estimate.high <= high:
        return CONFIRMED
    return REFUTED if estimate.high < low or estimate.low > high else OPEN


def _ours(findings: list[Finding], where: dict[str, Any]) -> str:
    """Our figure: the range of each quantity, and the point that decides the outcome of its test."""
    if not findings:
        return "no data"
    parts = []
    for test in dict.fromkeys(id(finding.test) for finding in findings):
        own = [finding for finding in findings if id(finding.test) == test]
        kept = sum(finding.outcome == CONFIRMED for finding in own)
        worst = max(own, key=_against)
        point = ", ".join(f"{name} {value}" for name, value in worst.point.items() if name not in where)
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

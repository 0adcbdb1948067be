"""Judge the claims of the papers by the rule of docs/plans.md.

A claim is judged at each *reading*: one choice of the values that its paper leaves open. At a reading it

- *holds* if every point of every test holds,
- is *contradicted* if a point is (`lab.outcomes`: beyond the margin, after Holm's correction) and the contradiction
  remains after Benjamini and Hochberg's correction over all claims and readings of the report,
- is *undecided* otherwise, and *not tested* if a test has no data. Tests of points that this size of the study does not
  have are skipped.

The verdict on the claim follows from its readings; see `verdict_of`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cubecast.lab.corrections import benjamini_hochberg
from cubecast.lab.outcomes import CONTRADICTED, CONTRADICTION_LEVEL, HOLDS, OPEN, OUTCOMES
from cubecast.lab.plan import Claim, Plan, Test
from cubecast.lab.quantities import Point, name_of
from cubecast.lab.questions import PointsByReading, Question, Reading, questions_of, readings_of
from cubecast.lab.stats import Estimate
from cubecast.lab.tables import sortable

EVERYWHERE, REGION, UNDECIDED, NOT_TESTED = "holds everywhere", "holds in a region", "undecided", "not tested"
VERDICTS = (EVERYWHERE, REGION, CONTRADICTED, UNDECIDED, NOT_TESTED)
RULE = (
    "A claim is split into tests; each measures a quantity at every point of the study with its 95 % interval, over "
    "paired seeds (all protocols run on the same networks). A point holds if the whole interval satisfies the bound "
    "(“alike” and “flat” have two bounds: an equivalence test), and is contradicted if the quantity is beyond the "
    "bound by more than the stated margin. Parameters that a paper does not state are varied; each combination of "
    "their values is a reading. At a reading a claim holds if all points hold, and is contradicted if one point is. "
    "Contradictions are corrected for the number of tests: the probability of contradicting a claim that is true at a "
    "reading is at most 5 % (Holm), and at most 5 % of all contradictions in this report are expected to be false "
    "(Benjamini–Hochberg). A claim holds everywhere, holds in a region of its readings, or is contradicted at all of "
    "them. It is undecided if more runs are needed or the difference is within the margin, and not tested if there is "
    "no data."
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One test at one point."""

    test: Test
    point: dict[str, str]
    estimate: Estimate
    outcome: str
    p_breaks: float
    """Corrected for the other points of the claim at its reading."""


@dataclass(frozen=True, kw_only=True)
class JudgedReading:
    """The outcome of a claim at one reading."""

    reading: Reading
    verdict: str
    """`HOLDS`, `CONTRADICTED`, `UNDECIDED` or `NOT_TESTED`."""
    findings: tuple[Finding, ...]

    @property
    def p_breaks(self) -> float:
        """The p-value of the hypothesis that the claim holds at this reading."""
        return min((finding.p_breaks for finding in self.findings), default=1.0)

    @property
    def is_open(self) -> bool:
        """Could more runs decide the claim?"""
        return any(finding.outcome == OPEN for finding in self.findings)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a claim."""

    claim: Claim
    plan: Plan
    readings: tuple[JudgedReading, ...]

    @property
    def verdict(self) -> str:
        return verdict_of([one.verdict for one in self.readings])

    @property
    def findings(self) -> list[Finding]:
        return [finding for one in self.readings for finding in one.findings]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The findings of a study: the points of its plan, which of them have values, and rows of `FINDINGS`."""

    plan: Plan
    points: Sequence[Point]
    with_data: set[int]
    findings: Iterable[dict[str, Any]]


def verdict_of(readings: Sequence[str]) -> str:
    """The verdict on a claim, from those at its readings.

    >>> verdict_of(["holds", "contradicted", "undecided"])
    'holds in a region'
    >>> verdict_of(["contradicted", "undecided"])
    'undecided'
    """
    tested = {verdict for verdict in readings if verdict != NOT_TESTED}
    if not tested:
        return NOT_TESTED
    if tested == {HOLDS}:
        return EVERYWHERE
    if HOLDS in tested:
        return REGION
    return CONTRADICTED if tested == {CONTRADICTED} else UNDECIDED


def judge(studies: Sequence[Answers]) -> dict[str, list[Judgement]]:
    """The verdicts on all claims of a report, by study."""
    found = [one for answers in studies for one in _judge_study(answers)]
    spread = [reading for one in found for reading in one.readings if reading.verdict != NOT_TESTED]
    corrected = dict(zip(map(id, spread), benjamini_hochberg([one.p_breaks for one in spread]), strict=True))
    judgements: dict[str, list[Judgement]] = {answers.plan.id: [] for answers in studies}
    for one in found:
        readings = tuple(_after_report(reading, corrected.get(id(reading), 1.0)) for reading in one.readings)
        judgements[one.plan.id].append(replace(one, readings=readings))
    return judgements


def _after_report(reading: JudgedReading, p_breaks: float) -> JudgedReading:
    """Make a contradiction undecided if it does not survive the correction over all tests of the report."""
    if reading.verdict == CONTRADICTED and p_breaks > CONTRADICTION_LEVEL:
        return replace(reading, verdict=UNDECIDED)
    return reading


def _judge_study(answers: Answers) -> list[Judgement]:
    plan, points = answers.plan, answers.points
    by_question: dict[int, list[Finding]] = defaultdict(list)
    questions = questions_of(plan, points)
    for row in sorted(answers.findings, key=_order):
        by_question[row["question"]].append(_finding(row, questions[row["question"]].test))
    asked: dict[tuple[str, int], list[Question]] = defaultdict(list)
    known = PointsByReading(points)
    for question in questions:
        if question.is_asked([points[number] for number in known.at(question.where)]):
            asked[question.claim.id, question.reading].append(question)
    with_data = [points[number] for number in sorted(answers.with_data)]
    judgements = []
    for claim in plan.claims:
        tried = readings_of(claim, with_data)
        readings = [
            _judge_reading(where, [by_question[question.number] for question in asked[claim.id, number]])
            for number, where in enumerate(readings_of(claim, points))
            if where in tried
        ]
        judgements.append(Judgement(claim=claim, plan=plan, readings=tuple(readings)))
    return judgements


def _order(row: dict[str, Any]) -> list[Any]:
    return [row["question"], *(sortable(value) for _, value in row["point"])]


def _finding(row: dict[str, Any], test: Test) -> Finding:
    estimate = Estimate(row["value"], row["low"], row["high"], row["n"])
    return Finding(
        test=test,
        point=dict(row["point"]),
        estimate=estimate,
        outcome=row["outcome"],
        p_breaks=row["p_breaks_holm"],
    )


def _judge_reading(where: Reading, answers: list[list[Finding]]) -> JudgedReading:
    findings = tuple(finding for found in answers for finding in found)
    outcomes = {finding.outcome for finding in findings}
    verdict = UNDECIDED
    if not answers or not all(answers):
        verdict = CONTRADICTED if CONTRADICTED in outcomes else NOT_TESTED
    elif CONTRADICTED in outcomes:
        verdict = CONTRADICTED
    elif outcomes == {HOLDS}:
        verdict = HOLDS
    return JudgedReading(reading=where, verdict=verdict, findings=findings)


def ranges(findings: Sequence[Finding]) -> list[str]:
    """Our values in short, a phrase per test: from the smallest to the largest value."""
    phrases = []
    for own in _by_test(findings):
        least, most = (
            _number(end((one.estimate.value for one in own if math.isfinite(one.estimate.value)), default=math.nan))
            for end in (min, max)
        )
        phrases.append(f"{name_of(own[0].test)} {least if least == most else f'{least} to {most}'}")
    return phrases


def _by_test(findings: Sequence[Finding]) -> list[list[Finding]]:
    groups: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[id(finding.test)].append(finding)
    return list(groups.values())


def ours(findings: Sequence[Finding], varying: Sequence[str]) -> list[str]:
    """Our values in words, a sentence per test: its range, and the point that decides the outcome.

    `varying` are the parameters that distinguish the points.
    """
    sentences = []
    for own in _by_test(findings):
        kept = sum(finding.outcome == HOLDS for finding in own)
        worst = max(own, key=_against)
        shown = estimate_text(worst.estimate) + (f" at {at}" if (at := place(worst, varying)) else "")
        if len(own) > 1:
            values = [finding.estimate.value for finding in own]
            shown = f"{_number(min(values))} … {_number(max(values))}; {_DECIDING[worst.outcome]} {shown}"
            shown += f"; holds at {kept} of {len(own)} points"
        sentences.append(f"{name_of(worst.test)}: {shown}")
    return sentences


_DECIDING = dict(zip(OUTCOMES, ("closest to the bound:", "within the margin:", "open:", "against it:"), strict=True))
"""Text before the point that decides a test, by outcome."""


def place(finding: Finding, varying: Sequence[str]) -> str:
    """The parameters of the point of a finding, as text."""
    return ", ".join(f"{name} {value}" for name, value in finding.point.items() if name in varying)


def nearest(findings: Sequence[Finding]) -> Finding | None:
    """The finding closest to the value that the paper gives; None if it gives none."""
    given = [one for one in findings if one.test.paper is not None and math.isfinite(one.estimate.value)]
    return min(given, key=lambda one: distance(one.estimate.value, one.test.paper or 0.0), default=None)


def distance(value: float, paper: float) -> float:
    """How far our value is from the paper's: as a factor if both are positive, else as a share of the paper's."""
    if value > 0 and paper > 0:
        return abs(math.log(value / paper))
    return abs(value - paper) / (abs(paper) or 1.0)


def _against(finding: Finding) -> tuple[int, float]:
    """Sort key of the evidence against a claim: the outcome, then the distance beyond the bound."""
    test, estimate = finding.test, finding.estimate
    below = -math.inf if test.low is None else test.low - estimate.value
    above = -math.inf if test.high is None else estimate.value - test.high
    return OUTCOMES.index(finding.outcome), max(below, above)


def estimate_text(estimate: Estimate) -> str:
    """A value with its interval."""
    if estimate.low == estimate.high:
        return _number(estimate.value)
    return f"{_number(estimate.value)} [{_number(estimate.low)}, {_number(estimate.high)}]"


def _number(value: float) -> str:
    """Three significant digits, without an exponent if the number is readable without one."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "?"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"

"""The tests of claims as questions, and their answers: findings. A worker answers them for a part of the points.

A question is one test of a claim, for one value of `each` where the claim has it. It compares points with each other
that differ in the columns it is about, and are alike in all others. So the points fall into parts that have nothing to
do with each other, and a part is answered without the rest of the study: `answer` gives for all parts together what it
gives for the whole.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cubecast.lab.plan import FORMULAS, Claim, Plan, Test
from cubecast.lab.quantities import Measured, Point, measure
from cubecast.lab.select import matches
from cubecast.lab.stats import Estimate
from cubecast.lab.tables import sortable

CONFIRMED, REFUTED, OPEN = "confirmed", "refuted", "open"
VALUES_PER_PART = 50_000
"""About what a worker holds at a time."""

FINDINGS = pa.schema(
    [
        pa.field("study", pa.string(), nullable=False),
        pa.field("question", pa.int32(), nullable=False),
        pa.field("claim", pa.string(), nullable=False),
        pa.field("test", pa.int32(), nullable=False),
        pa.field("each", pa.string()),
        pa.field("point", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("low", pa.float64(), nullable=False),
        pa.field("high", pa.float64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
    ]
)
"""One row per test and point; `test` is its place in the claim, `each` the value of that parameter, `point` the others
as text."""
FINDINGS_DDL = (
    "study string, question int, claim string, test int, each string, point map<string,string>, n bigint, "
    "value double, low double, high double, outcome string"
)
PARTS = pa.schema(
    [
        pa.field("study", pa.string()),
        pa.field("point", pa.int32()),
        pa.field("metric", pa.string()),
        pa.field("question", pa.int32()),
        pa.field("part", pa.int32()),
    ]
)
"""Which values each question needs, and in which part of it."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One test of a claim, for one value of `each`."""

    study: str
    number: int
    """Of the question in its study."""
    claim: Claim
    place: int
    """Of the test in its claim."""
    where: dict[str, Any]
    """The value of `each`; nothing where the claim has none."""
    exact: bool
    """A formula: its values have no chance in them."""

    @property
    def test(self) -> Test:
        return self.claim.tests[self.place]

    def needs(self, point: Point) -> bool:
        """Does the answer depend on this point?"""
        test = self.test
        if not matches(test.where, point) or not matches(self.where, point):
            return False
        if test.kind not in ("ratio", "difference", "spread"):
            return True
        return all(
            any(matches(side, point) for side in sides) for sides in ((test.top, test.bottom), (test.at, test.versus))
        )

    def part_of(self, point: Point, parts: int) -> int:
        """Points that are compared with each other are in one part."""
        test = self.test
        about = {*test.top, *test.bottom, *test.at, *test.versus, *test.along}
        about |= {test.x} if test.kind in ("growth", "spread") else set()
        rest = sorted((name, value) for name, value in point.items() if name not in about)
        return zlib.crc32(repr(rest).encode()) % parts


def questions_of(plan: Plan, points: Sequence[Point]) -> list[Question]:
    """All questions of a plan, claim by claim."""
    found: list[Question] = []
    for claim in plan.claims:
        for where in each_of(claim, points):
            for place, test in enumerate(claim.tests):
                if _applies(test, where):
                    exact = plan.experiment in FORMULAS
                    number = len(found)
                    found.append(
                        Question(study=plan.id, number=number, claim=claim, place=place, where=where, exact=exact)
                    )
    return found


def each_of(claim: Claim, points: Sequence[Point]) -> list[dict[str, Any]]:
    """The values of `each` at these points that a test of the claim asks about."""
    if claim.each is None:
        return [{}]
    values = {point[claim.each] for point in points if claim.each in point}
    ordered = [{claim.each: value} for value in sorted(values, key=sortable)]
    return [where for where in ordered if any(_applies(test, where) for test in claim.tests)]


def _applies(test: Test, where: dict[str, Any]) -> bool:
    """Does the test ask about this value of `each`, or does its `where` leave it out?"""
    return matches({name: wanted for name, wanted in test.where.items() if name in where}, where)


def parts_of(questions: Sequence[Question], points: Sequence[Point], seeds: int) -> Iterator[dict[str, Any]]:
    """Rows of `PARTS`."""
    for question in questions:
        needed = [number for number, point in enumerate(points) if question.needs(point)]
        metrics = {question.test.metric, question.test.metric_bottom or question.test.metric}
        parts = math.ceil(len(needed) * len(metrics) * seeds / VALUES_PER_PART) or 1
        for number in needed:
            part = question.part_of(points[number], parts)
            for metric in sorted(metrics):
                yield {
                    "study": question.study,
                    "point": number,
                    "metric": metric,
                    "question": question.number,
                    "part": part,
                }


def answer(question: Question, points: Sequence[Point], values: pa.Table) -> pa.Table:
    """The findings of a question from values (`point`, `metric`, `seed`, `value`) of the points of one of its parts."""
    found = measure(question.test, Measured(points, values), question.where, exact=question.exact)
    each = next((str(value) for value in question.where.values()), None)
    rows = [
        {
            "study": question.study,
            "question": question.number,
            "claim": question.claim.id,
            "test": question.place,
            "each": each,
            "point": [(name, str(value)) for name, value in point.items() if name not in question.where],
            "n": estimate.n,
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "outcome": outcome_of(estimate, question.test),
        }
        for point, estimate in found
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)


def outcome_of(estimate: Estimate, test: Test) -> str:
    """How an interval stands to the bounds of a test."""
    low = -math.inf if test.low is None else test.low
    high = math.inf if test.high is None else test.high
    if math.isnan(estimate.value):
        return OPEN
    if low <= estimate.low and estimate.high <= high:
        return CONFIRMED
    return REFUTED if estimate.high < low or estimate.low > high else OPEN

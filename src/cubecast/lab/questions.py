"""The tests of claims as questions, and their answers: findings. A worker answers them for a part of the points.

A question is one test of a claim at one reading. It compares points that differ in the columns of the test and are
equal in all others. So the points fall into independent parts, and a part is answered without the rest of the study:
the answers to all parts together are the answer to the whole. When all parts are answered, `correct` corrects the
p-values of a claim at a reading and gives each finding its outcome (`lab.outcomes`).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cubecast.lab.corrections import holm
from cubecast.lab.outcomes import OPEN, outcome_of, p_breaks, p_holds
from cubecast.lab.plan import FORMULAS, Claim, Plan, Test
from cubecast.lab.quantities import Measured, Point, measure
from cubecast.lab.select import matches
from cubecast.lab.stats import Estimate
from cubecast.lab.tables import sortable

VALUES_PER_PART = 50_000
"""About the number of values that a worker holds at a time."""

FINDINGS = pa.schema(
    [
        pa.field("study", pa.string(), nullable=False),
        pa.field("question", pa.int32(), nullable=False),
        pa.field("claim", pa.string(), nullable=False),
        pa.field("test", pa.int32(), nullable=False),
        pa.field("reading", pa.int32(), nullable=False),
        pa.field("point", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("low", pa.float64(), nullable=False),
        pa.field("high", pa.float64(), nullable=False),
        pa.field("p_holds", pa.float64(), nullable=False),
        pa.field("p_breaks", pa.float64(), nullable=False),
        pa.field("p_breaks_holm", pa.float64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
    ]
)
"""One row per test and point; `test` is its place in the claim, `reading` the number of the reading among those of the
claim, `point` the values of all parameters as text."""
FINDINGS_DDL = (
    "study string, question int, claim string, test int, reading int, point map<string,string>, n bigint, "
    "value double, low double, high double, p_holds double, p_breaks double, p_breaks_holm double, outcome string"
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
"""Which values each question needs, and in which of its parts."""


Reading = dict[str, Any]
"""Values of the parameters that a paper leaves open."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One test of a claim at one reading."""

    study: str
    number: int
    """The number of the question in its study."""
    claim: Claim
    place: int
    """The number of the test in its claim."""
    reading: int
    """Number of the reading among those of the claim."""
    where: Reading
    """The reading; empty if the paper leaves nothing open."""
    exact: bool
    """Is it a formula, whose values are exact?"""

    @property
    def test(self) -> Test:
        return self.claim.tests[self.place]

    def is_asked(self, points: Sequence[Point]) -> bool:
        """Do these points include what the test needs, on both sides if it compares?"""
        test = self.test
        own = [point for point in points if matches(test.where, point) and matches(self.where, point)]
        return all(any(matches(side, point) for point in own) for side in (test.top, test.bottom, test.at, test.versus))

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
        """The part of a point; points that are compared with each other are in the same part."""
        test = self.test
        about = {*test.top, *test.bottom, *test.at, *test.versus, *test.along}
        about |= {test.x} if test.kind in ("growth", "spread") else set()
        rest = sorted((name, value) for name, value in point.items() if name not in about)
        return zlib.crc32(repr(rest).encode()) % parts


def questions_of(plan: Plan, points: Sequence[Point]) -> list[Question]:
    """All questions of a plan, claim by claim and reading by reading."""
    found: list[Question] = []
    exact = plan.experiment in FORMULAS
    for claim in plan.claims:
        for reading, where in enumerate(readings_of(claim, points)):
            places = (place for place, test in enumerate(claim.tests) if _applies(test, where))
            found += [
                Question(
                    study=plan.id,
                    number=number,
                    claim=claim,
                    place=place,
                    reading=reading,
                    where=where,
                    exact=exact,
                )
                for number, place in enumerate(places, start=len(found))
            ]
    return found


def readings_of(claim: Claim, points: Sequence[Point]) -> list[Reading]:
    """The readings among these points that a test of the claim concerns."""
    found = {tuple(point.get(name) for name in claim.readings) for point in points}
    ordered = sorted(found, key=lambda values: [sortable(value) for value in values])
    readings = [dict(zip(claim.readings, values, strict=True)) for values in ordered]
    return [where for where in readings if any(_applies(test, where) for test in claim.tests)]


def _applies(test: Test, where: Reading) -> bool:
    """Does the test concern this reading? Its `where` may exclude it."""
    return matches({name: wanted for name, wanted in test.where.items() if name in where}, where)


def parts_of(questions: Sequence[Question], points: Sequence[Point], seeds: int) -> Iterator[dict[str, Any]]:
    """Rows of `PARTS`."""
    known = PointsByReading(points)
    for question in questions:
        needed = [number for number in known.at(question.where) if question.needs(points[number])]
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


class PointsByReading:
    """The numbers of the points at each reading, so that a claim with many readings need not scan all points."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points
        self._groups: dict[tuple[str, ...], dict[tuple[Any, ...], list[int]]] = {}

    def at(self, where: Reading) -> list[int]:
        """The numbers of the points at a reading."""
        names = tuple(where)
        if names not in self._groups:
            groups = self._groups.setdefault(names, {})
            for number, point in enumerate(self._points):
                groups.setdefault(tuple(point.get(name) for name in names), []).append(number)
        return self._groups[names].get(tuple(where.values()), [])


def answer(question: Question, points: Sequence[Point], values: pa.Table) -> pa.Table:
    """The findings of a question from values (`point`, `metric`, `seed`, `value`) of the points of one of its parts.

    Their outcome is *open* until `correct` has processed all findings.
    """
    found = measure(question.test, Measured(points, values), question.where, exact=question.exact)
    rows = [
        {
            "study": question.study,
            "question": question.number,
            "claim": question.claim.id,
            "test": question.place,
            "reading": question.reading,
            "point": [(name, str(value)) for name, value in point.items()],
            "n": estimate.n,
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "p_holds": p_holds(estimate, question.test),
            "p_breaks": p_breaks(estimate, question.test),
            "p_breaks_holm": 1.0,
            "outcome": OPEN,
        }
        for point, estimate in found
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)


def correct(claim: Claim, findings: pa.Table) -> pa.Table:
    """The findings of a claim at one reading, with Holm's correction over all of them and with their outcomes."""
    rows = findings.to_pylist()
    for row, corrected in zip(rows, holm([row["p_breaks"] for row in rows]), strict=True):
        estimate = Estimate(row["value"], row["low"], row["high"], row["n"])
        row["p_breaks_holm"] = float(corrected)
        row["outcome"] = outcome_of(
            estimate, claim.tests[row["test"]], holds=row["p_holds"], breaks=row["p_breaks_holm"]
        )
    return pa.Table.from_pylist(rows, schema=FINDINGS)

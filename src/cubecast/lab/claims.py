"""Judge what a paper claims, by the rule of docs/plans.md and by nothing else.

A test measures one quantity at every point that its selections leave, with a 95 % interval, and holds it to a bound:

- *confirmed* at a point: the whole interval keeps the bound;
- *refuted* at a point: the whole interval breaks it;
- *open*: the interval straddles it.

A claim is refuted when a test is refuted at any point, confirmed when every test is confirmed at every point, and
otherwise not comparable.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cubecast.lab.plan import Claim, Plan, Test
from cubecast.lab.select import matches
from cubecast.lab.stats import Estimate, mean_estimate, spread_ratio

CONFIRMED, REFUTED, OPEN, NOT_COMPARABLE = "confirmed", "refuted", "open", "not comparable"
RULE = (
    "A claim is split into tests; each measures a quantity at every point of the study with its 95 % interval "
    "(Student's, over the seeds; protocols meet the same networks). A point is confirmed when the whole interval keeps "
    "the bound, refuted when the whole interval breaks it, and open otherwise. A claim is confirmed when every point "
    "of every test is, refuted when any point is, and not comparable otherwise (no data, or intervals that straddle a "
    "bound)."
)

Point = dict[str, Any]
Seeds = dict[int, float]
Key = tuple[tuple[str, Any], ...]


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


class Measured:
    """The values of one study by metric, point and seed."""

    def __init__(self, values: pa.Table, study: str) -> None:
        self.points: dict[str, Point] = {}
        self._values: dict[str, dict[str, Seeds]] = defaultdict(dict)
        for row in values.to_pylist():
            if row["study"] != study:
                continue
            if row["point"] not in self.points:
                self.points[row["point"]] = json.loads(row["point"])
            self._values[row["metric"]].setdefault(row["point"], {})[row["seed"]] = row["value"]

    def of(self, metric: str, selection: dict[str, Any]) -> list[tuple[Point, Seeds]]:
        """The points that the selection leaves, with the values of the metric by seed."""
        found = self._values.get(metric, {})
        return [(point, found[key]) for key, point in self.points.items() if key in found and matches(selection, point)]


def judge(plan: Plan, values: pa.Table) -> list[Judgement]:
    """The verdicts on all claims of a plan."""
    measured = Measured(values, plan.id)
    exact = plan.experiment not in ("simulate", "grow_tree")
    return [_judge(plan, claim, measured, where, exact) for claim in plan.claims for where in _each(claim, measured)]


def _each(claim: Claim, measured: Measured) -> Iterable[dict[str, Any]]:
    if claim.each is None:
        return [{}]
    values = dict.fromkeys(point[claim.each] for point in measured.points.values() if claim.each in point)
    return [{claim.each: value} for value in values] or [{}]


def _judge(plan: Plan, claim: Claim, measured: Measured, where: dict[str, Any], exact: bool) -> Judgement:
    findings: list[Finding] = []
    complete = True
    for test in claim.tests:
        found = [
            Finding(test=test, point=point, estimate=estimate, outcome=outcome_of(estimate, test))
            for point, estimate in _QUANTITIES[test.kind](test, measured, where, exact)
        ]
        complete = complete and bool(found)
        findings += found
    outcomes = {finding.outcome for finding in findings}
    verdict = NOT_COMPARABLE
    if REFUTED in outcomes:
        verdict = REFUTED
    elif outcomes == {CONFIRMED} and complete:
        verdict = CONFIRMED
    at = ", ".join(f"{name} = {value}" for name, value in where.items())
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
    """Our figure: the range of each quantity, and where the claim fails worst."""
    if not findings:
        return "no data"
    told = []
    for test in dict.fromkeys(id(finding.test) for finding in findings):
        own = [finding for finding in findings if id(finding.test) == test]
        kept = sum(finding.outcome == CONFIRMED for finding in own)
        worst = max(own, key=lambda finding: _distance(finding.estimate, finding.test))
        point = ", ".join(f"{name} {value}" for name, value in worst.point.items() if name not in where)
        shown = _shown(worst.estimate)
        told.append(f"{_quantity(worst.test)}: {shown}{f' at {point}' if point else ''} ({kept} of {len(own)} points)")
    return "; ".join(told)


def _distance(estimate: Estimate, test: Test) -> float:
    """How far an estimate lies on the wrong side of its bound; negative on the right side."""
    below = -math.inf if test.low is None else test.low - estimate.value
    above = -math.inf if test.high is None else estimate.value - test.high
    return max(below, above)


def _quantity(test: Test) -> str:
    if test.kind == "growth":
        return f"exponent of {test.metric} over {test.shape}"
    if test.kind == "value":
        return test.metric
    over = f" to {test.metric_bottom}" if test.metric_bottom else ""
    return {"ratio": "ratio of ", "difference": "difference of ", "spread": "ratio of spreads of "}[
        test.kind
    ] + f"{test.metric}{over}"


def _shown(estimate: Estimate) -> str:
    if estimate.low == estimate.high:
        return f"{estimate.value:.3g}"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


Quantity = Callable[[Test, Measured, dict[str, Any], bool], list[tuple[Point, Estimate]]]


def _values(test: Test, measured: Measured, where: dict[str, Any], exact: bool) -> list[tuple[Point, Estimate]]:
    found = measured.of(test.metric, {**test.where, **where})
    return [(point, mean_estimate(np.array([*seeds.values()]), exact=exact)) for point, seeds in found]


def _pairs(test: Test, measured: Measured, where: dict[str, Any]) -> list[tuple[Point, Seeds, Seeds]]:
    """Top and bottom points that agree in every column that neither side selects."""
    chosen = {*test.top, *test.bottom}
    common = {**test.where, **where}
    bottoms: dict[Key, list[tuple[Point, Seeds]]] = defaultdict(list)
    for point, seeds in measured.of(test.metric_bottom or test.metric, {**common, **test.bottom}):
        bottoms[_rest(point, chosen)].append((point, seeds))
    pairs = []
    for point, seeds in measured.of(test.metric, {**common, **test.top}):
        for other, below in bottoms[_rest(point, chosen)]:
            pairs.append((_told(point, other, chosen), seeds, below))
    return pairs


def _rest(point: Point, chosen: set[str]) -> Key:
    return tuple(sorted((name, value) for name, value in point.items() if name not in chosen))


def _told(top: Point, bottom: Point, chosen: set[str]) -> Point:
    """The point of a pair, with both values of the columns in which its sides differ."""
    return {
        name: f"{value}/{bottom[name]}" if name in chosen and bottom.get(name, value) != value else value
        for name, value in top.items()
    }


def _ratios(test: Test, measured: Measured, where: dict[str, Any], exact: bool) -> list[tuple[Point, Estimate]]:
    found = []
    for point, top, bottom in _pairs(test, measured, where):
        seeds = [seed for seed in top if bottom.get(seed, 0) > 0 and top[seed] > 0]
        if not seeds:
            continue
        logs = np.log([top[seed] / bottom[seed] for seed in seeds])
        mean = mean_estimate(logs, exact=exact)
        found.append((point, Estimate(_exp(mean.value), _exp(mean.low), _exp(mean.high), mean.n)))
    return found


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _differences(test: Test, measured: Measured, where: dict[str, Any], exact: bool) -> list[tuple[Point, Estimate]]:
    found = []
    for point, top, bottom in _pairs(test, measured, where):
        gaps = np.array([top[seed] - bottom[seed] for seed in top if seed in bottom])
        if len(gaps):
            found.append((point, mean_estimate(gaps, exact=exact)))
    return found


_SHAPES: dict[str, Callable[[float], float]] = {
    "n": lambda n: n,
    "n^2": lambda n: n * n,
    "n log n": lambda n: n * math.log2(n),
    "n log^2 n": lambda n: n * math.log2(n) ** 2,
    "log n": lambda n: math.log2(n),
}


def _growths(test: Test, measured: Measured, where: dict[str, Any], exact: bool) -> list[tuple[Point, Estimate]]:
    """Slope of log metric over log shape(x), by least squares, seed by seed."""
    curves: dict[Key, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for point, seeds in measured.of(test.metric, {**test.where, **where}):
        for seed, value in seeds.items():
            if value > 0:
                shaped = math.log(_SHAPES[test.shape](float(point[test.x])))
                curves[_rest(point, {test.x})][seed].append((shaped, math.log(value)))
    found = []
    for rest, by_seed in curves.items():
        slopes = [_slope(np.array(curve)) for curve in by_seed.values() if len(curve) > 2]
        if slopes:
            found.append((dict(rest), mean_estimate(np.array(slopes), exact=exact)))
    return found


def _slope(curve: npt.NDArray[np.float64]) -> float:
    """Least squares through the points (x, y)."""
    x, y = (curve - curve.mean(axis=0)).T
    return float((x * y).sum() / (x * x).sum())


def _spreads(test: Test, measured: Measured, where: dict[str, Any], _: bool) -> list[tuple[Point, Estimate]]:
    """Standard deviation over the seeds, pooled over x, of top over bottom."""
    groups: dict[Key, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for point, top, bottom in _pairs(test, measured, where):
        tops, bottoms = groups[_rest(point, {test.x})]
        tops.append(np.array([*top.values()]))
        bottoms.append(np.array([*bottom.values()]))
    return [(dict(rest), spread_ratio(tops, bottoms)) for rest, (tops, bottoms) in groups.items()]


_QUANTITIES: dict[str, Quantity] = {
    "value": _values,
    "ratio": _ratios,
    "difference": _differences,
    "growth": _growths,
    "spread": _spreads,
}

"""The quantities that the tests of a claim measure: ratios, differences, growth, spread, each with a 95 % interval.

Seeds are paired whenever two sides are compared: the same seed gives the same network, so common effects cancel.
`describe_test` describes a test in words, with its bound; the report prints it beside the verdict, so that readers see
exactly the rule that was applied.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cubecast.lab.metric_titles import title_of
from cubecast.lab.outcomes import widened
from cubecast.lab.plan import Selection, Test
from cubecast.lab.select import matches
from cubecast.lab.stats import Estimate, exponential, mean_estimate, proportion, spread_ratio, variation

GROWTH_VALUES_MIN = 3
"""The slope of fewer values has no error."""

Point = dict[str, Any]
Seeds = dict[int, float]
Key = tuple[tuple[str, Any], ...]
Found = list[tuple[Point, Estimate]]
Where = tuple[Selection, ...]
"""Selections that must all match."""


class Measured:
    """Values of one study by metric, point and seed, from rows of the table `values`."""

    def __init__(self, points: Sequence[Point], values: pa.Table) -> None:
        self._values: dict[str, dict[int, Seeds]] = defaultdict(dict)
        columns = (values.column(name).to_pylist() for name in ("metric", "point", "seed", "value"))
        for metric, point, seed, value in zip(*columns, strict=True):
            self._values[metric].setdefault(point, {})[seed] = value
        numbers = sorted({number for found in self._values.values() for number in found})
        self.points = {number: points[number] for number in numbers}

    def of(self, metric: str, *selections: Selection) -> list[tuple[Point, Seeds]]:
        """The points that match all selections, with the values of the metric by seed."""
        found = self._values.get(metric, {})
        return [
            (point, found[key])
            for key, point in self.points.items()
            if key in found and all(matches(selection, point) for selection in selections)
        ]


def measure(test: Test, measured: Measured, where: Selection, *, exact: bool) -> Found:
    """The quantity of a test at every point that matches its selections and `where`."""
    return _QUANTITIES[test.kind](test, measured, (test.where, where), exact)


def describe_test(test: Test) -> str:
    """The test in words: its quantity, its selections, and its bound."""
    parts = [name_of(test), *(f"{word} {_selection_text(one)}" for word, one in _selections(test) if one)]
    return f"{', '.join(parts)}: {_bound(test)}"


def name_of(test: Test) -> str:
    """The measured quantity, in words."""
    metric = title_of(test.metric)
    if test.kind == "value":
        return metric
    if test.kind == "growth":
        return f"exponent of {metric} over {test.shape if test.x == 'members' else title_of(test.x)}"
    if test.kind == "proportion":
        return f"share of runs with {metric}"
    if test.kind == "variation":
        return f"standard deviation / mean of {metric}"
    over = f" to {title_of(test.metric_bottom)}" if test.metric_bottom else ""
    change = "change of the " if test.at else ""
    return f"{change}{_COMPARED[test.kind]} of {metric}{over}"


_COMPARED = {"ratio": "ratio", "difference": "difference", "spread": "ratio of standard deviations"}


def _selections(test: Test) -> list[tuple[str, Selection]]:
    return [("of", test.top), ("to", test.bottom), ("from", test.versus), ("to", test.at), ("where", test.where)]


def _selection_text(selection: Selection) -> str:
    words = []
    for name, wanted in selection.items():
        value = " or ".join(map(str, wanted)) if isinstance(wanted, list) else str(wanted)
        words.append(f"{name} {value}")
    return " and ".join(words)


def _bound(test: Test) -> str:
    """The bound, and the value beyond which the claim is contradicted."""
    low, high = widened(test)
    if test.low is None:
        return f"at most {test.high:g}; contradicted above {high:g}"
    if test.high is None:
        return f"at least {test.low:g}; contradicted below {low:g}"
    kept = f"exactly {test.low:g}" if test.low == test.high else f"from {test.low:g} to {test.high:g}"
    return f"{kept}; contradicted below {low:g} or above {high:g}"


def _values(test: Test, measured: Measured, where: Where, exact: bool) -> Found:
    found = measured.of(test.metric, *where)
    return [(point, mean_estimate(np.array([*seeds.values()]), exact=exact)) for point, seeds in found]


def _variations(test: Test, measured: Measured, where: Where, _: bool) -> Found:
    found = measured.of(test.metric, *where)
    return [(point, variation(np.array([*seeds.values()]))) for point, seeds in found if len(seeds) > 1]


def _proportions(test: Test, measured: Measured, where: Where, _: bool) -> Found:
    """Share of runs; runs along the parameters of `along` are pooled."""
    groups: dict[Key, list[float]] = defaultdict(list)
    for point, seeds in measured.of(test.metric, *where):
        groups[_rest(point, {*test.along})] += seeds.values()
    return [(dict(rest), proportion(int(sum(runs)), len(runs))) for rest, runs in groups.items()]


def _pairs(test: Test, measured: Measured, where: Where) -> list[tuple[Point, Seeds, Seeds]]:
    """Top and bottom points that agree in every column that neither side selects."""
    chosen = {*test.top, *test.bottom, *test.along}
    bottoms: dict[Key, list[tuple[Point, Seeds]]] = defaultdict(list)
    for point, seeds in measured.of(test.metric_bottom or test.metric, *where, test.bottom):
        bottoms[_rest(point, chosen)].append((point, seeds))
    pairs = []
    for point, seeds in measured.of(test.metric, *where, test.top):
        for other, below in bottoms[_rest(point, chosen)]:
            pairs.append((_both(point, other, chosen), seeds, below))
    return pairs


def _rest(point: Point, chosen: set[str]) -> Key:
    return tuple(sorted((name, value) for name, value in point.items() if name not in chosen))


def _both(top: Point, bottom: Point, chosen: set[str]) -> Point:
    """The point of a pair, with both values of the columns in which its sides differ."""
    return {
        name: f"{value}/{bottom[name]}" if name in chosen and bottom.get(name, value) != value else value
        for name, value in top.items()
    }


def _gaps(test: Test, measured: Measured, where: Where) -> list[tuple[Point, Seeds]]:
    """Top against bottom per seed: a difference, or the logarithm of a ratio."""
    gaps = []
    for point, top, bottom in _pairs(test, measured, where):
        shared = {seed: (top[seed], bottom[seed]) for seed in top if seed in bottom}
        if test.kind == "ratio":
            own = {seed: math.log(a / b) for seed, (a, b) in shared.items() if a > 0 and b > 0}
        else:
            own = {seed: a - b for seed, (a, b) in shared.items()}
        if own:
            gaps.append((point, own))
    return gaps


def _changes(test: Test, measured: Measured, where: Where) -> list[tuple[Point, Seeds]]:
    """The gap at `at` minus that at `versus`, per seed."""
    chosen = {*test.at, *test.versus, *test.along}
    before: dict[Key, list[tuple[Point, Seeds]]] = defaultdict(list)
    for point, gaps in _gaps(test, measured, (*where, test.versus)):
        before[_rest(point, chosen)].append((point, gaps))
    changes = []
    for point, gaps in _gaps(test, measured, (*where, test.at)):
        for other, old in before[_rest(point, chosen)]:
            own = {seed: gaps[seed] - old[seed] for seed in gaps if seed in old}
            if own:
                changes.append((_both(point, other, chosen), own))
    return changes


def _compared(test: Test, measured: Measured, where: Where, exact: bool) -> Found:
    gaps = (_changes if test.at else _gaps)(test, measured, where)
    found = [(point, mean_estimate(np.array([*seeds.values()]), exact=exact)) for point, seeds in gaps]
    if test.kind == "difference":
        return found
    return [(point, exponential(one)) for point, one in found]


_SHAPES: dict[str, Callable[[float], float]] = {
    "n": lambda n: n,
    "n^2": lambda n: n * n,
    "n log n": lambda n: n * math.log2(n),
    "n log^2 n": lambda n: n * math.log2(n) ** 2,
    "log n": lambda n: math.log2(n),
}


def _growths(test: Test, measured: Measured, where: Where, exact: bool) -> Found:
    """Slope of log metric over log shape(x), by least squares, per seed."""
    curves: dict[Key, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for point, seeds in measured.of(test.metric, *where):
        for seed, value in seeds.items():
            if value > 0:
                shaped = math.log(_SHAPES[test.shape](float(point[test.x])))
                curves[_rest(point, {test.x, *test.along})][seed].append((shaped, math.log(value)))
    found = []
    for rest, by_seed in curves.items():
        slopes = [_slope(np.array(curve)) for curve in by_seed.values() if len(curve) >= GROWTH_VALUES_MIN]
        if slopes:
            found.append((dict(rest), mean_estimate(np.array(slopes), exact=exact)))
    return found


def _slope(curve: npt.NDArray[np.float64]) -> float:
    """Least squares through the points (x, y)."""
    x, y = (curve - curve.mean(axis=0)).T
    return float((x * y).sum() / (x * x).sum())


def _spreads(test: Test, measured: Measured, where: Where, _: bool) -> Found:
    """Standard deviation over the seeds, pooled over x: the ratio of top to bottom."""
    groups: dict[Key, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for point, top, bottom in _pairs(test, measured, where):
        tops, bottoms = groups[_rest(point, {test.x, *test.along})]
        tops.append(np.array([*top.values()]))
        bottoms.append(np.array([*bottom.values()]))
    return [(dict(rest), spread_ratio(tops, bottoms)) for rest, (tops, bottoms) in groups.items()]


Quantity = Callable[[Test, Measured, Where, bool], Found]
_QUANTITIES: dict[str, Quantity] = {
    "value": _values,
    "variation": _variations,
    "ratio": _compared,
    "difference": _compared,
    "growth": _growths,
    "spread": _spreads,
    "proportion": _proportions,
}

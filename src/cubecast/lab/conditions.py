"""Under which conditions a claim holds: in words, and as a phase diagram over the two most influential parameters.

The influence of a parameter is the first-order Sobol index of "the claim holds" over the readings that were tried:
Var(E[h | parameter]) / Var(h), with h = 1 if it holds, 0 if it is contradicted and ½ if it is undecided. It is 1 if
the parameter alone decides, and 0 if it makes no difference on its own.

The sentence is a decision tree, written out: exact for the readings that were tried, without a statement about others.
Of a tree with many branches it has the largest, and counts the readings in the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubecast.lab.claims import NOT_TESTED, UNDECIDED, JudgedReading
from cubecast.lab.metric_titles import VALUES, title_of
from cubecast.lab.outcomes import CONTRADICTED, HOLDS
from cubecast.lab.questions import Reading
from cubecast.lab.tables import sortable

_WEIGHTS = {HOLDS: 1.0, UNDECIDED: 0.5, CONTRADICTED: 0.0}

REGIONS_MAX = 3
NUMBERS_LISTED = 4
"""The values of a region are listed up to so many numbers; of more, the smallest and the largest are given."""

Case = tuple[Reading, str]
"""A reading and the verdict at it."""
Region = dict[str, list[Any]]
"""Parameters and their possible values; a parameter that is not listed may have any value."""


@dataclass(frozen=True, kw_only=True)
class PhaseDiagram:
    """Where a claim holds: one cell per value of each axis, with the number of readings per verdict."""

    x: str
    y: str | None
    """None if only one parameter is open."""
    columns: list[Any]
    rows: list[Any]
    cells: dict[tuple[Any, Any], dict[str, int]]


def influences(readings: Sequence[JudgedReading]) -> dict[str, float]:
    """The influence of each parameter, the most influential first."""
    tested = _tested(readings)
    weights = np.array([_WEIGHTS[verdict] for _, verdict in tested])
    names = _names(tested)
    variance = float(weights.var()) if len(weights) else 0.0
    found = {}
    for name in names:
        groups: dict[Any, list[float]] = defaultdict(list)
        for (reading, _), weight in zip(tested, weights, strict=True):
            groups[reading[name]].append(weight)
        between = sum(len(own) * (np.mean(own) - weights.mean()) ** 2 for own in groups.values()) / len(weights)
        found[name] = float(between / variance) if variance else 0.0
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def phase_diagram(readings: Sequence[JudgedReading]) -> PhaseDiagram | None:
    """The diagram over the two most influential parameters that vary; None if no parameter is open."""
    tested = _tested(readings)
    varying = [name for name in influences(readings) if len({str(reading[name]) for reading, _ in tested}) > 1]
    if not varying:
        return None
    x, y = varying[0], varying[1] if len(varying) > 1 else None
    cells: dict[tuple[Any, Any], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for reading, verdict in tested:
        cells[reading[x], reading[y] if y else None][verdict] += 1
    columns, rows = (sorted({key[place] for key in cells}, key=sortable) for place in (0, 1))
    return PhaseDiagram(x=x, y=y, columns=columns, rows=rows, cells={key: dict(own) for key, own in cells.items()})


def where_holds(readings: Sequence[JudgedReading], verdict: str = HOLDS) -> str:
    """The readings with this verdict in words: "" if there are none, "everywhere" if all have it.

    Of more than `REGIONS_MAX` regions the largest are named, and the readings in the others are counted.
    """
    cases = _tested(readings)
    values = {name: sorted({reading[name] for reading, _ in cases}, key=sortable) for name in _names(cases)}
    sizes = [(region, sum(_contains(region, reading) for reading, _ in cases)) for region in regions(cases, verdict)]
    named = sizes
    if len(sizes) > REGIONS_MAX:
        named = sorted(sizes, key=lambda one: -one[1])[:REGIONS_MAX]
    phrases = [[_phrase(name, own, values[name]) for name, own in region.items()] for region, _ in named]
    text = "; or where ".join(" and ".join(parts) or "everywhere" for parts in phrases)
    more = sum(size for _, size in sizes) - sum(size for _, size in named)
    return f"{text}; and at {more} more of {len(cases)} readings" if more else text


def where_or_count(readings: Sequence[JudgedReading], verdict: str) -> str:
    """The readings with this verdict as "where …" or, if they form many regions, as a count; "" if there are none."""
    cases = _tested(readings)
    if len(regions(cases, verdict)) > REGIONS_MAX:
        return f"at {sum(own == verdict for _, own in cases)} of {len(cases)} readings"
    where = where_holds(readings, verdict)
    return f"where {where}" if where else ""


def _contains(region: Region, reading: Reading) -> bool:
    return all(reading[name] in values for name, values in region.items())


def regions(cases: Sequence[Case], verdict: str) -> list[Region]:
    """Regions that together contain exactly the cases with the verdict."""
    having = [own == verdict for _, own in cases]
    if all(having):
        return [{}]
    if not any(having):
        return []
    name = _most_telling(cases, having)
    by_value: dict[Any, list[Case]] = defaultdict(list)
    for reading, own in cases:
        by_value[reading[name]].append(({key: one for key, one in reading.items() if key != name}, own))
    # Values after which the same conditions follow are named together.
    together: dict[str, tuple[list[Any], list[Region]]] = {}
    for value in sorted(by_value, key=sortable):
        rest = regions(by_value[value], verdict)
        if rest:
            together.setdefault(repr(rest), ([], rest))[0].append(value)
    return [
        ({} if len(values) == len(by_value) else {name: values}) | region
        for values, rest in together.values()
        for region in rest
    ]


def _tested(readings: Sequence[JudgedReading]) -> list[Case]:
    return [(one.reading, one.verdict) for one in readings if one.verdict != NOT_TESTED]


def _names(cases: Sequence[Case]) -> list[str]:
    return list(cases[0][0]) if cases else []


def _most_telling(cases: Sequence[Case], having: list[bool]) -> str:
    """The parameter whose values separate the cases best."""

    def impurity(name: str) -> float:
        groups: dict[Any, list[bool]] = defaultdict(list)
        for (reading, _), own in zip(cases, having, strict=True):
            groups[reading[name]].append(own)
        return float(sum(sum(own) * (1 - sum(own) / len(own)) for own in groups.values()))

    names = [name for name in cases[0][0] if len({str(reading[name]) for reading, _ in cases}) > 1]
    return min(names, key=impurity)


def _phrase(name: str, values: list[Any], known: list[Any]) -> str:
    """A parameter and its values; consecutive numbers are written as a range."""
    title = title_of(name)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    places = [known.index(value) for value in values]
    if numbers and len(values) > 1 and places == list(range(places[0], places[-1] + 1)):
        if places[-1] == len(known) - 1:
            return f"{title} is at least {values[0]:g}"
        if places[0] == 0:
            return f"{title} is at most {values[-1]:g}"
        return f"{title} is {values[0]:g} to {values[-1]:g}"
    return f"{title} is {' or '.join(value_text(name, value) for value in values)}"


def value_text(name: str, value: Any) -> str:
    """A value of a parameter in a sentence."""
    if name in VALUES:
        return VALUES[name].get(value, str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def span_text(name: str, values: Sequence[Any]) -> str:
    """Sorted values of a parameter in a sentence: many numbers as a range, otherwise each.

    >>> span_text("degree", [2.5, 3, 4, 4.5, 5.0])
    '2.5 to 5'
    >>> span_text("routing", ["delay", "hops"])
    'delay or hops'
    """
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numbers and len(values) > NUMBERS_LISTED:
        return f"{value_text(name, values[0])} to {value_text(name, values[-1])}"
    return " or ".join(value_text(name, value) for value in values)

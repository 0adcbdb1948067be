"""Errors of a syntactically correct plan: names, values and bounds that match none of its runs.

Each mistake is found before anything runs, and has the place of its key in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from cubecast.lab.plan import BINARY_METRICS, Claim, Figure, Plan, Selection, Test
from cubecast.lab.select import accepts
from cubecast.lab.tables import file_name

Place = tuple[str | int, ...]
Mistakes = Iterator[tuple[str, Place]]
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_SIDES = ("top", "bottom", "at", "versus")
_COMPARED = ("ratio", "difference")
_SHOWN = 12


def mistakes(plan: Plan) -> Mistakes:
    """Every mistake, with its place in the file."""
    values = values_of(plan)
    if not _ID.fullmatch(plan.id):
        yield f"id = {plan.id!r}: letters, digits, '.', '_' and '-', it names files", ("id",)
    yield from _seeds(plan)
    for place, selection in enumerate(plan.skip):
        yield from _selection(selection, values, "skip", ("skip", place))
    for place, figure in enumerate(plan.figures):
        yield from _figure(plan, figure, values, ("figure", place))
    yield from _claims(plan, values)


def values_of(plan: Plan) -> dict[str, list[Any]]:
    """The columns that identify a point, each with all its values in any size."""
    values: dict[str, list[Any]] = {name: [] for name in plan.parameters}
    values |= {"protocol": [*plan.protocols]} if plan.protocols else {}
    values |= {"variant": [variant["label"] for variant in plan.variants]} if plan.variants else {}
    for size in plan.sizes.values():
        for table in (size.sweep, *size.zips):
            for name, own in table.items():
                values[name] += own
    return values


def _seeds(plan: Plan) -> Mistakes:
    """Reject settings of the seed: seeds are always 0 … repeats − 1."""
    mistake = "seed: a run's seed is its repeat, 0 … repeats − 1; drop it and set repeats"
    for size, own in plan.sizes.items():
        for table, path in ((own.fixed, "fixed"), (own.sweep, "sweep"), *((one, "zip") for one in own.zips)):
            if "seed" in table:
                yield mistake, (path, "seed") if path != "zip" else (size, "zip")
    for place, variant in enumerate(plan.variants):
        if "seed" in variant:
            yield mistake, ("variant", place, "seed")


def _figure(plan: Plan, figure: Figure, values: dict[str, list[Any]], path: Place) -> Mistakes:
    for role in ("x", "series", "panel", "rows"):
        name = getattr(figure, role)
        if name is not None and name not in values:
            yield f"{role} = {name!r}: choose one of {', '.join(values)}", (*path, role)
            return
    if figure.kind == "lines" and (odd := _not_number(values[figure.x])) is not None:
        yield (
            f"x = {figure.x!r} has the value {odd!r}: lines are drawn over numbers, use it as series or panel",
            (
                *path,
                "x",
            ),
        )
    for role in ("first", "second"):
        name = getattr(figure, role)
        if name is not None and name not in values[figure.series]:
            yield f"{role} = {name!r}: {_choose(values[figure.series])}", (*path, role)
    for other in plan.figures[: path[1] if isinstance(path[1], int) else 0]:
        if file_name(plan, other) == file_name(plan, figure):
            yield f"id = {figure.id!r}: figure {other.id!r} has files of that name, rename one", (*path, "id")
    yield from _selection(figure.only, values, "only", (*path, "only"))


def _claims(plan: Plan, values: dict[str, list[Any]]) -> Mistakes:
    ids = {figure.id for figure in plan.figures}
    seen: set[str] = set()
    for place, claim in enumerate(plan.claims):
        path: Place = ("claim", place)
        if claim.id in seen:
            yield f"id = {claim.id!r} is that of another claim: rename one", (*path, "id")
        seen.add(claim.id)
        if not _ID.fullmatch(claim.id):
            yield f"id = {claim.id!r}: letters, digits, '.', '_' and '-', it names files", (*path, "id")
        for name in claim.figures:
            if name not in ids:
                yield f"figure {name!r} is not one of {', '.join(ids)}", (*path, "figures")
        for at, test in enumerate(claim.tests):
            yield from _test(test, values, (*path, "test", at))
        yield from _readings(claim, values, (*path, "readings"))


def _readings(claim: Claim, values: dict[str, list[Any]], path: Place) -> Mistakes:
    """Validate readings: each parameter has at least two values, and no test compares these with each other."""
    for name in claim.readings:
        if name not in values:
            yield f"readings names {name!r}: choose from {', '.join(values)}", path
        elif claim.readings.count(name) > 1:
            yield f"readings names {name!r} twice: keep one", path
        elif len({str(value) for value in values[name]}) < 2:
            yield f"readings names {name!r}, which has one value only: sweep several, or leave it out", path
        elif len({str(value) for value in values[name] if _is_looked_at(claim, name, value)}) < 2:
            yield f"readings names {name!r}, of which the tests select one value only: leave it out of one", path
        for test in claim.tests:
            if any(name in getattr(test, role) for role in _SIDES):
                yield f"readings names {name!r}, whose values a test compares with each other: leave it out", path
            if test.kind in ("growth", "spread") and name == test.x:
                yield f"readings names {name!r}, along which a test measures {test.kind}: leave it out", path
            if name in test.along:
                yield f"readings names {name!r}, which a test has in along: leave it out of one", path


def _is_looked_at(claim: Claim, name: str, value: Any) -> bool:
    """Does any test of a claim look at points with this value?"""
    return any(name not in test.where or accepts(test.where[name], value) for test in claim.tests)


def _test(test: Test, values: dict[str, list[Any]], path: Place) -> Mistakes:
    for role in (*_SIDES, "where"):
        yield from _selection(getattr(test, role), values, role, (*path, role))
    for name in test.along:
        if name not in values:
            yield f"along selects by {name!r}: choose one of {', '.join(values)}", (*path, "along")
    yield from _bounds(test, path)
    if test.at or test.versus:
        if not (test.at and test.versus):
            yield "at and versus go together: give both", path
        elif test.kind not in _COMPARED:
            yield f"at and versus with kind = {test.kind!r}: only {' and '.join(_COMPARED)} change", path
    if test.kind in (*_COMPARED, "spread") and test.top == test.bottom and test.metric_bottom is None:
        yield (
            f"kind = {test.kind!r} compares a quantity with itself: let top and bottom differ, or give metric_bottom",
            path,
        )
    if test.kind == "growth":
        yield from _growth(test, values, path)


def _bounds(test: Test, path: Place) -> Mistakes:
    if test.margin is not None and not 0 <= test.margin < math.inf:
        yield f"margin = {test.margin!r}: write a number from 0", (*path, "margin")
    if test.paper is not None and not math.isfinite(test.paper):
        yield f"paper = {test.paper!r}: write the number that the paper gives", (*path, "paper")
    if test.kind == "proportion" and test.metric not in BINARY_METRICS:
        yield f"metric = {test.metric!r}: a proportion is of {' or '.join(BINARY_METRICS)}", (*path, "metric")
    for bound in (test.low, test.high):
        if bound is not None and (_not_number([bound]) is not None or math.isnan(bound)):
            yield f"bound {bound!r}: write a number", path
            return
    if test.low is not None and test.high is not None and test.low > test.high:
        yield f"between = [{test.low!r}, {test.high!r}]: write the smaller bound first", (*path, "between")


def _growth(test: Test, values: dict[str, list[Any]], path: Place) -> Mistakes:
    """Validate a growth test: the logarithm of shape(x) must exist at every x."""
    if test.x not in values:
        yield f"x = {test.x!r}: choose one of {', '.join(values)}", (*path, "x")
        return
    above = 1 if "log" in test.shape else 0
    odd = _not_number(values[test.x])
    if odd is None:
        odd = next((value for value in values[test.x] if value <= above), None)
    if odd is not None:
        yield (
            f"x = {test.x!r} has the value {odd!r}: growth over {test.shape} needs numbers above {above}",
            (
                *path,
                "x" if test.x != "members" else "kind",
            ),
        )


def _selection(selection: Selection, values: dict[str, list[Any]], what: str, path: Place) -> Mistakes:
    """Reject a selection by a column that the plan does not vary, or by a value that no run has."""
    for name, wanted in selection.items():
        if name not in values:
            yield f"{what} selects by {name!r}: choose one of {', '.join(values)}", path
            continue
        for one in wanted if isinstance(wanted, list) else [wanted]:
            if not any(accepts(one, value) for value in values[name]):
                yield f"{what} selects {name} = {one!r}, which no run has: {_choose(values[name])}", path


def _choose(values: list[Any]) -> str:
    """Text that lists the possible values; for numbers also comparisons."""
    known = list(dict.fromkeys(values))
    shown = ", ".join(repr(value) for value in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"choose from {shown}" + (', or compare: ">=N", "<=N", ">N", "<N", "!=N"' if not _not_number(known) else "")


def _not_number(values: list[Any]) -> Any:
    """The first value that is not a number; None if all are numbers."""
    return next((value for value in values if isinstance(value, bool) or not isinstance(value, int | float)), None)

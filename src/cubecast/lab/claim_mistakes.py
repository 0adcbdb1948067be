"""Errors in the claims of a plan: tests that cannot be measured, judged, or hold together."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, replace
from typing import Any

from cubecast.lab.plan import BINARY_METRICS, FORMULAS, Claim, Plan, Test
from cubecast.lab.select import accepts
from cubecast.lab.selection_mistakes import NAME, NAME_RULE, Mistakes, Place, not_number, selection_mistakes

_SIDES = ("top", "bottom", "at", "versus")
_COMPARED = ("ratio", "difference")
_POSITIVE = ("ratio", "spread", "variation")
_OF_KIND = {
    "value": (),
    "variation": (),
    "proportion": ("along",),
    "growth": ("x", "shape", "along"),
    "spread": ("top", "bottom", "metric_bottom", "x", "along"),
    **dict.fromkeys(_COMPARED, ("top", "bottom", "metric_bottom", "at", "versus", "along")),
}
"""The keys that only some kinds of tests use."""


def claim_mistakes(plan: Plan, values: dict[str, list[Any]]) -> Mistakes:
    """Every mistake in the claims of a plan."""
    ids = {figure.id for figure in plan.figures}
    seeds = max(max(size.repeats, size.repeats_max) for size in plan.sizes.values())
    if plan.claims and seeds < 2 and plan.experiment not in FORMULAS:
        yield "repeats = 1 in every size: a claim needs at least 2 seeds", ("full", "repeats")
    seen: set[str] = set()
    for place, claim in enumerate(plan.claims):
        path: Place = ("claim", place)
        if claim.id in seen:
            yield f"id = {claim.id!r} is that of another claim: rename one", (*path, "id")
        seen.add(claim.id)
        if not NAME.fullmatch(claim.id):
            yield f"id = {claim.id!r}: {NAME_RULE}", (*path, "id")
        for name in claim.figures:
            if name not in ids:
                yield f"figure {name!r} is not one of {', '.join(map(repr, ids))}", (*path, "figures")
        if not claim.tests:
            yield "test = []: a claim needs a test", (*path, "test")
        for at, test in enumerate(claim.tests):
            yield from _test(test, values, (*path, "test", at))
            if any(_quantity(test) == _quantity(other) for other in claim.tests[:at]):
                yield (
                    "another test of this claim measures the same: give one, with between = [low, high]",
                    (
                        *path,
                        "test",
                        at,
                    ),
                )
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


def _quantity(test: Test) -> Test:
    """What a test measures, without its bounds."""
    return replace(test, low=None, high=None, margin=None, paper=None)


def _is_looked_at(claim: Claim, name: str, value: Any) -> bool:
    """Does any test of a claim look at points with this value?"""
    return any(name not in test.where or accepts(test.where[name], value) for test in claim.tests)


def _test(test: Test, values: dict[str, list[Any]], path: Place) -> Mistakes:
    for role in (*_SIDES, "where"):
        yield from selection_mistakes(getattr(test, role), values, role, (*path, role))
    for name in test.along:
        if name not in values:
            yield f"along selects by {name!r}: choose one of {', '.join(values)}", (*path, "along")
    yield from _bounds(test, path)
    if bool(test.at) != bool(test.versus):
        yield "at and versus go together: give both", path
    if test.kind in (*_COMPARED, "spread") and test.top == test.bottom and test.metric_bottom is None:
        yield (
            f"kind = {test.kind!r} compares a quantity with itself: let top and bottom differ, or give metric_bottom",
            path,
        )
    if test.kind == "growth":
        yield from _growth(test, values, path)
    yield from _unused(test, path)


def _unused(test: Test, path: Place) -> Mistakes:
    """Reject a key that the kind of the test ignores: a reader would believe that it has an effect."""
    unset = {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(Test)}
    for name in dict.fromkeys(key for keys in _OF_KIND.values() for key in keys):
        if name not in _OF_KIND[test.kind] and getattr(test, name) != unset[name]:
            yield f"{name} has no effect with kind = {test.kind!r}: leave it out, or select by where", (*path, name)


def _bounds(test: Test, path: Place) -> Mistakes:
    if test.margin is not None and not 0 <= test.margin < math.inf:
        yield f"margin = {test.margin!r}: write a number from 0", (*path, "margin")
    if test.paper is not None and not math.isfinite(test.paper):
        yield f"paper = {test.paper!r}: write the number that the paper gives", (*path, "paper")
    if test.kind == "proportion" and test.metric not in BINARY_METRICS:
        yield f"metric = {test.metric!r}: a proportion is of {' or '.join(BINARY_METRICS)}", (*path, "metric")
    for bound in (test.low, test.high):
        if bound is None:
            continue
        if not_number([bound]) is not None or not math.isfinite(bound):
            yield f"bound {bound!r}: write a number", path
            return
        if test.kind in _POSITIVE and bound <= 0:
            yield f"bound {bound!r}: a {test.kind} is above 0, so is its bound", path
        if test.kind == "proportion" and not 0 <= bound <= 1:
            yield f"bound {bound!r}: a proportion is from 0 to 1", path
    if test.low is not None and test.high is not None and test.low > test.high:
        yield f"between = [{test.low!r}, {test.high!r}]: write the smaller bound first", (*path, "between")


def _growth(test: Test, values: dict[str, list[Any]], path: Place) -> Mistakes:
    """Validate a growth test: the logarithm of shape(x) must exist at every x."""
    if test.x not in values:
        yield f"x = {test.x!r}: choose one of {', '.join(values)}", (*path, "x")
        return
    above = 1 if "log" in test.shape else 0
    odd = not_number(values[test.x])
    if odd is None:
        odd = next((value for value in values[test.x] if value <= above), None)
    if odd is not None:
        yield (
            f"x = {test.x!r} has the value {odd!r}: growth over {test.shape} needs numbers above {above}",
            (*path, "x" if test.x != "members" else "kind"),
        )

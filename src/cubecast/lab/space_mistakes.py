"""Errors that show in the points of a plan: ambiguous values, repeated points, figures and tests without points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cubecast.lab.plan import SIZES, Figure, Plan, Test
from cubecast.lab.quantities import GROWTH_VALUES_MIN, Point
from cubecast.lab.questions import Question
from cubecast.lab.runs import canonical, points_of
from cubecast.lab.select import matches
from cubecast.lab.selection_mistakes import Mistakes

_NOT_PARAMETERS = ("protocol", "variant", "label")


def given_twice(plan: Plan, size: str) -> Iterator[tuple[str, str]]:
    """Each parameter whose value in a run would depend on which of two places counts, with what is wrong with it."""
    chosen = plan.sizes[size]
    places = [("sweep", set(chosen.sweep)), *(("zip", set(table)) for table in chosen.zips)]
    count = Counter(name for _, names in places for name in names)
    for where, names in places:
        for name in sorted(names):
            if name in _NOT_PARAMETERS and (plan.protocols or plan.variants):
                yield name, f"{name} in {where}: give it by protocols or variant"
            elif count[name] > 1:
                yield name, f"{name} is given twice, in sweep and zip or in two zips: keep one"
            elif name in chosen.fixed:
                yield name, f"{name} is given twice, in fixed and {where}: keep one"
            elif any(name in variant for variant in plan.variants):
                yield name, f"{name} is given twice, in a variant and {where}: keep one"
    for name in _NOT_PARAMETERS:
        if name in chosen.fixed and (plan.protocols or plan.variants):
            yield name, f"{name} in fixed: give it by protocols or variant"


def repeated_point(points: list[Point]) -> Point | None:
    """A point that occurs more than once, if there is one; 3 and 3.0 are one number."""
    seen: set[str] = set()
    for point in points:
        name = canonical({key: float(value) if type(value) is int else value for key, value in point.items()})
        if name in seen:
            return point
        seen.add(name)
    return None


def data_mistakes(plan: Plan) -> Mistakes:
    """Figures that cannot be drawn, and tests that cannot be judged, with the points of either size."""
    sizes = [points_of(plan, size) for size in SIZES]
    for place, figure in enumerate(plan.figures):
        if not any(matches(figure.only, point) for points in sizes for point in points):
            yield "no run matches all of only: change it", ("figure", place, "only")
        name = next((name for points in sizes if (name := _drawn_twice(figure, points)) is not None), None)
        if name is not None:
            yield (
                f"figure {figure.id!r} has several values of {name} at one place: make it the panel, or select one "
                "with only",
                ("figure", place),
            )
    for place, claim in enumerate(plan.claims):
        for at in range(len(claim.tests)):
            question = Question(study=plan.id, number=0, claim=claim, place=at, reading=0, where={}, exact=False)
            for message in _test(question, sizes):
                yield message, ("claim", place, "test", at)


def _test(question: Question, sizes: list[list[Point]]) -> Iterator[str]:
    test = question.test
    if not any(question.is_asked(points) for points in sizes):
        yield "no run has what this test selects, the skips omit it: change the selections or a skip"
    if test.kind == "growth" and all(_grows_too_briefly(test, points) for points in sizes):
        yield f"growth needs {GROWTH_VALUES_MIN} values of {test.x}: sweep more"
    if (point := _compared_with_itself(test, [point for points in sizes for point in points])) is not None:
        yield f"both sides of this test select {point_text(point)}, which would be compared with itself"


def _compared_with_itself(test: Test, points: list[Point]) -> Point | None:
    """A point that is on both sides of a comparison, if there is one."""
    sides = [(test.at, test.versus)] if test.at else []
    sides += [(test.top, test.bottom)] if test.metric_bottom is None and (test.top or test.bottom) else []
    for one, other in sides:
        for point in points:
            if matches(one, point) and matches(other, point) and matches(test.where, point):
                return point
    return None


def _grows_too_briefly(test: Test, points: list[Point]) -> bool:
    """Are there fewer values of x than a slope and its error need?"""
    return len({point[test.x] for point in points if matches(test.where, point)}) < GROWTH_VALUES_MIN


def _drawn_twice(figure: Figure, points: list[Point]) -> str | None:
    """A parameter that the figure neither draws nor selects one value of: its lines would jump between its values."""
    drawn = [name for name in (figure.x, figure.series, figure.panel, figure.rows) if name is not None]
    seen: dict[tuple[Any, ...], Point] = {}
    for point in points:
        if not matches(figure.only, point):
            continue
        other = seen.setdefault(tuple(point.get(name) for name in drawn), point)
        if other is not point:
            return next(name for name in point if point[name] != other.get(name))
    return None


def point_text(point: Point) -> str:
    """The parameters of a point in words."""
    return ", ".join(f"{name} = {value!r}" for name, value in point.items())

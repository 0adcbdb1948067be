"""Errors of a syntactically correct plan: names, values and bounds that match none of its runs.

Each mistake is found before anything runs, and has the place of its key in the file.
"""

from __future__ import annotations

from typing import Any

from cubecast.lab.claim_mistakes import claim_mistakes
from cubecast.lab.plan import Figure, Plan
from cubecast.lab.runs import RUNS_MAX
from cubecast.lab.selection_mistakes import NAME, NAME_RULE, Mistakes, Place, choices, not_number, selection_mistakes
from cubecast.lab.tables import file_name

FIGURE_ID_MAX = 40
_ROLES = ("x", "series", "panel", "rows")
_OF_KIND = {"lines": (), "winner": ("rows",), "order": ("rows", "first", "second")}
"""What only some kinds of figures draw."""


def mistakes(plan: Plan) -> Mistakes:
    """Every mistake, with its place in the file."""
    values = values_of(plan)
    if not NAME.fullmatch(plan.id):
        yield f"id = {plan.id!r}: {NAME_RULE}", ("id",)
    yield from _seeds(plan)
    if (mistake := calibration_mistake(plan)) is not None:
        yield mistake, ("calibrate",)
    for place, selection in enumerate(plan.skip):
        yield from selection_mistakes(selection, values, "skip", ("skip", place))
    for place, figure in enumerate(plan.figures):
        yield from _figure(plan, figure, values, ("figure", place))
    yield from claim_mistakes(plan, values)


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


def calibration_mistake(plan: Plan) -> str | None:
    """What is wrong with the size of a calibration that would never end, or could not judge anything."""
    space = plan.calibration
    if space is None:
        return None
    settings = space.start * (len(space.names) + 2) + space.rounds * space.width
    runs = settings * space.repeats * max(len(plan.protocols), len(plan.variants), 1)
    for values in space.sweep.values():
        runs *= len(values)
    if runs > RUNS_MAX:
        return f"{runs} runs: a calibration has at most {RUNS_MAX}; choose smaller sizes"
    if not plan.claims:
        return "calibrate without claims: there is nothing that could hold, add a claim"
    return None


def _figure(plan: Plan, figure: Figure, values: dict[str, list[Any]], path: Place) -> Mistakes:
    if not figure.id.isprintable() or not any(map(str.isalnum, figure.id)) or len(figure.id) > FIGURE_ID_MAX:
        yield f"id = {figure.id!r}: a number or a short name, it names files", (*path, "id")
    if not figure.y:
        yield "y = []: name at least one metric", (*path, "y")
    yield from _roles(figure, values, path)
    if figure.kind == "lines" and (odd := not_number(values.get(figure.x, []))) is not None:
        yield (
            f"x = {figure.x!r} has the value {odd!r}: lines are drawn over numbers, use it as series or panel",
            (*path, "x"),
        )
    if figure.x_scale == "log" and any(value <= 0 for value in values.get(figure.x, [])):
        yield f"x_scale = 'log': {figure.x} has values that are not above 0", (*path, "x_scale")
    if figure.kind == "order" and figure.first == figure.second:
        yield f"second = {figure.second!r} is also first: name two different ones", (*path, "second")
    for role in ("first", "second"):
        name = getattr(figure, role)
        if name is not None and name not in values.get(figure.series, [name]):
            yield f"{role} = {name!r}: {choices(values[figure.series])}", (*path, role)
    for other in plan.figures[: path[1] if isinstance(path[1], int) else 0]:
        if file_name(plan, other) == file_name(plan, figure):
            yield f"id = {figure.id!r}: figure {other.id!r} has files of that name, rename one", (*path, "id")
    yield from selection_mistakes(figure.only, values, "only", (*path, "only"))


def _roles(figure: Figure, values: dict[str, list[Any]], path: Place) -> Mistakes:
    """Validate what a figure draws against what: parameters that vary, each once."""
    roles = {role: name for role in _ROLES if (name := getattr(figure, role)) is not None}
    for role, name in roles.items():
        if name not in values:
            yield f"{role} = {name!r}: choose one of {', '.join(values)}", (*path, role)
        for other, same in roles.items():
            if other == role:
                break
            if same == name and (other, role) != ("x", "series"):  # of a formula each x may have its colour
                yield f"{role} = {name!r} is also {other}: choose another parameter, or leave it out", (*path, role)
    for role in ("rows", "first", "second"):
        if getattr(figure, role) is not None and role not in _OF_KIND[figure.kind]:
            yield f"{role} has no effect with kind = {figure.kind!r}: leave it out", (*path, role)

"""The plans of a paper that are calibrated together, and the space of their open parameters.

All statements of a paper must hold at the same setting, whichever figure they concern. So the space has the parameters
of all plans with a table `calibrate`; a parameter that several plans name has the same values in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cubecast.errors import PlanError
from cubecast.lab.plan import SIZES_MIN, Calibration, Plan, is_power_of_two
from cubecast.lab.plan_mistakes import calibration_mistake
from cubecast.lab.toml_lines import key_lines, line_of

_SIZES = ("start", "rounds", "width")


def plans_of(paper: str, plans: Sequence[Plan]) -> list[Plan]:
    """The plans of a paper that can be calibrated."""
    found = [plan for plan in plans if plan.paper == paper and plan.calibration is not None]
    if not found:
        known = sorted({plan.paper for plan in plans if plan.calibration is not None})
        raise PlanError(f"no plan of {paper!r} has a table [calibrate]: choose from {', '.join(known)}")
    return found


def space_of(plan: Plan) -> Calibration:
    """The calibration space of a plan that has one."""
    assert plan.calibration is not None
    return plan.calibration


def resized(plans: Sequence[Plan], sizes: Mapping[str, int | None]) -> list[Plan]:
    """The plans with these sizes of their calibration (start, rounds, width, repeats) in place of their own."""
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    for name, value in given.items():
        if value < SIZES_MIN[name]:
            raise PlanError(f"{name} = {value}: choose at least {SIZES_MIN[name]}")
    if not is_power_of_two(given.get("start", 2)):
        raise PlanError(f"start = {given['start']}: choose a power of two")
    found = [replace(plan, calibration=replace(space_of(plan), **given)) for plan in plans]
    for plan in found:
        if (mistake := calibration_mistake(plan)) is not None:
            raise PlanError(f"{plan.id}: {mistake}")
    return found


def joint_space(plans: Sequence[Plan]) -> Calibration:
    """The parameters of all plans."""
    first = space_of(plans[0])
    between, among = dict(first.between), dict(first.among)
    for plan in plans[1:]:
        space = space_of(plan)
        for size in _SIZES:
            _check_same(plan, size, getattr(space, size), plans[0], getattr(first, size))
        known: dict[str, Any] = between | among
        for name, values in (space.between | space.among).items():
            _check_same(plan, name, values, plans[0], known.get(name, values))
        between, among = between | space.between, among | space.among
    return replace(first, between=between, among=among)


def _check_same(plan: Plan, name: str, value: Any, other: Plan, known: Any) -> None:
    if value == known:
        return
    line = line_of(key_lines(plan.path.read_text("utf-8")), "calibrate")
    raise PlanError(
        f"{plan.path}:{line}: calibrate: {name} = {value!r}, but {known!r} in {other.path.name}: plans of a paper are "
        "calibrated together, write the same in all"
    )

"""Selections: the points that a skip, a figure or a test of a plan selects."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from cubecast.errors import PlanError

_COMPARISON = re.compile(r"^(>=|<=|>|<|!=)\s*(-?[0-9][0-9_.eE+-]*)$")
_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "!=": operator.ne}


def matches(selection: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Does the point have what the selection asks of each column? A column it lacks never matches."""
    return all(name in point and _accepts(wanted, point[name]) for name, wanted in selection.items())


def _accepts(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, list):
        return any(_accepts(one, value) for one in wanted)
    comparison = _COMPARISON.match(wanted) if isinstance(wanted, str) else None
    if comparison is None:
        return bool(wanted == value)
    if isinstance(value, str | bool):
        return False
    return bool(_OPERATORS[comparison[1]](value, float(comparison[2])))


def check_selection(selection: Mapping[str, Any], columns: tuple[str, ...], what: str) -> None:
    """Refuse a selection by a column that the plan does not vary."""
    for name in selection:
        if name not in columns:
            raise PlanError(f"{what} selects by {name!r}: choose one of {', '.join(columns)}")

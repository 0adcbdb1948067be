"""Selections: the points that a skip, a figure or a test of a plan selects."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

_COMPARISON = re.compile(r"(>=|<=|>|<|!=)\s*(-?[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "!=": operator.ne}


def matches(selection: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Does the point match the selection in each column? A column that it lacks never matches."""
    return all(name in point and accepts(wanted, point[name]) for name, wanted in selection.items())


def accepts(wanted: Any, value: Any) -> bool:
    """Does the value match: a single value, one of a list, or a comparison?"""
    if isinstance(wanted, list):
        return any(accepts(one, value) for one in wanted)
    comparison = _COMPARISON.fullmatch(wanted) if isinstance(wanted, str) else None
    if comparison is None:
        return bool(wanted == value)
    if isinstance(value, str | bool):
        return False
    return bool(_OPERATORS[comparison[1]](value, float(comparison[2])))

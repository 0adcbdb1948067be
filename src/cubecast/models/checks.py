"""Checks shared by the formulas: the error of an invalid value names it and the valid range."""

from __future__ import annotations

import math
from typing import cast

from cubecast.errors import LocalProtocolError


def require_whole(name: str, value: object, *, least: int, most: int | None = None) -> None:
    """Accept a whole number in least…most; reject a bool."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and least <= cast(int, value) <= (math.inf if most is None else most):
        return
    reach = f"{least} or more" if most is None else f"{least} to {most}"
    raise LocalProtocolError(f"{name}={value!r}: give a whole number, {reach}", setting=name)


def require_positive(name: str, value: float) -> None:
    """Accept a finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise LocalProtocolError(f"{name}={value!r}: give a finite number above 0", setting=name)


def require_probability(name: str, value: float, *, zero: bool, one: bool) -> None:
    """Accept a probability; `zero` and `one` say whether 0 and 1 are valid."""
    above = value >= 0 if zero else value > 0
    below = value <= 1 if one else value < 1
    if not (above and below):
        left, right = "[" if zero else "(", "]" if one else ")"
        raise LocalProtocolError(f"{name}={value!r}: give a probability in {left}0, 1{right}", setting=name)


def require(possible: bool, message: str) -> None:
    """Raise `message`, which names the value and the fix, unless the value is possible."""
    if not possible:
        raise LocalProtocolError(message)

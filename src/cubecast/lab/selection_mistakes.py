"""Errors of names, selections and numbers, which the skips, figures and claims of a plan have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cubecast.lab.plan import Selection
from cubecast.lab.select import accepts

Place = tuple[str | int, ...]
Mistakes = Iterator[tuple[str, Place]]
NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{,99}")
"""Ids of studies and claims."""
NAME_RULE = "at most 100 letters, digits, '.', '_' and '-', it names files"
_SHOWN = 12


def selection_mistakes(selection: Selection, values: dict[str, list[Any]], what: str, path: Place) -> Mistakes:
    """Reject a selection by a column that the plan does not vary, or by a value that no run has."""
    for name, wanted in selection.items():
        if name not in values:
            yield f"{what} selects by {name!r}: choose one of {', '.join(values)}", path
            continue
        if wanted == []:
            yield f"{what} selects {name} = [], no value at all: {choices(values[name])}", path
        for one in wanted if isinstance(wanted, list) else [wanted]:
            if not any(accepts(one, value) for value in values[name]):
                yield f"{what} selects {name} = {one!r}, which no run has: {choices(values[name])}", path


def choices(values: list[Any]) -> str:
    """Text that lists the possible values; for numbers also comparisons."""
    known = list(dict.fromkeys(values))
    shown = ", ".join(repr(value) for value in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    comparisons = "" if not_number(known) is not None else ', or compare: ">=N", "<=N", ">N", "<N", "!=N"'
    return f"choose from {shown}{comparisons}"


def not_number(values: list[Any]) -> Any:
    """The first value that is not a number; None if all are numbers."""
    return next((value for value in values if isinstance(value, bool) or not isinstance(value, int | float)), None)

"""The result of a calibration, as a report reads it: only what the plans and the code of the report would find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cubecast.lab.calibrate import fingerprint, result_path
from cubecast.lab.plan import Plan
from cubecast.lab.store import Store


def read_calibration(store: Store, paper: str, plans: Sequence[Plan]) -> dict[str, Any] | str | None:
    """The calibration of a paper; a sentence if it cannot be used with these plans, None if there is none."""
    path = result_path(store, paper)
    if not path.exists():
        return None
    again = f"run cubecast study calibrate {paper} again"
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        studies, setting = dict(found["studies"]), dict(found["best"]["setting"])
    except (ValueError, TypeError, KeyError):
        return f"{path.name} is damaged or of an older version, and ignored: {again}."
    for plan in plans:
        if plan.paper != paper or plan.calibration is None:
            continue
        known = set(plan.calibration.names) <= set(setting)
        if not known or studies.get(plan.id) != fingerprint(plan, setting):
            return f"{path.name} was made with another plan or other code than this report, and is ignored: {again}."
    return found

"""The progress of each study, read from the result files without Spark."""

from __future__ import annotations

from typing import Any

from cubecast.lab.pending_runs import results_on_disk
from cubecast.lab.plan import Plan
from cubecast.lab.runs import runs_of
from cubecast.lab.schema import OK
from cubecast.lab.store import Store


def status_of(plans: list[Plan], size: str, store: Store) -> list[dict[str, Any]]:
    """One row per study: its runs, how many finished or failed, and how many only have results of other code."""
    results: dict[str, dict[str, str]] = {}
    for run_id, code, status in results_on_disk(store):
        by_code = results.setdefault(run_id, {})
        if by_code.get(code) != OK:
            by_code[code] = status
    rows = []
    for plan in plans:
        runs = runs_of(plan, size)
        states = [_state(results.get(run.id, {}), run.code) for run in runs]
        counts = {name: states.count(name) for name in ("done", "failed", "other_code")}
        rows.append({"study": plan.id, "runs": len(runs), **counts})
    return rows


def _state(by_code: dict[str, str], code: str) -> str:
    if code in by_code:
        return "done" if by_code[code] == OK else "failed"
    return "other_code" if by_code else "missing"

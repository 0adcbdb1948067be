"""Which runs one task does, and in which order tasks start.

A task is committed as a whole, so it should be short enough to lose little and to show progress, and long enough to pay
for its start. Long runs get a task each and start first, so that no straggler is left at the end; short ones share a
task, next to the runs on the same network, which is then built once.
"""

from __future__ import annotations

from typing import Any

from cubecast.lab.experiments import experiment_named
from cubecast.lab.runs import Run, canonical

TASK_SECONDS_MIN = 0.5
TASK_SECONDS_MAX = 5.0
TASKS_PER_CORE = 24


def pack(runs: list[Run], cores: int) -> list[list[Run]]:
    """Split the runs into tasks, the longest first."""
    costs = {run.id: experiment_named(run.experiment).cost(run.settings) for run in runs}
    target = sum(costs.values()) / (max(cores, 1) * TASKS_PER_CORE)
    target = min(max(target, TASK_SECONDS_MIN), TASK_SECONDS_MAX)
    tasks: list[list[Run]] = [[run] for run in runs if costs[run.id] >= target]
    light = sorted((run for run in runs if costs[run.id] < target), key=lambda run: (_network_of(run), run.id))
    filled = target
    for run in light:
        if filled + costs[run.id] > target:
            tasks.append([])
            filled = 0.0
        tasks[-1].append(run)
        filled += costs[run.id]
    return sorted(tasks, key=lambda task: -sum(costs[run.id] for run in task))


def _network_of(run: Run) -> str:
    names = ("network", "members", "seed")
    found: dict[str, Any] = {name: run.settings[name] for name in names if name in run.settings}
    return canonical(found)

"""Which runs one task does, and in which order tasks start.

A task is committed as a whole, so it should be short enough to lose little and to show progress, and long enough to pay
for its start. Long runs get a task each and start first; short ones share a task, next to the runs on the same network,
which is then built once. Shared tasks become smaller and smaller (guided self-scheduling), so that no straggler is left
at the end although costs are only estimated.
"""

from __future__ import annotations

from typing import Any

from cubecast.lab.experiments import experiment_named
from cubecast.lab.runs import Run, canonical

TASK_SECONDS_MIN = 0.5
"""A task costs Spark about 0.1 s: to start it, and to write and commit its file."""
TASK_SECONDS_MAX = 10.0
"""The most work per core that a killed study loses, and the longest pause of its progress."""
TASKS_LEFT = 3
"""How many tasks of the same size per core are left when a task is made: tasks shrink towards the end."""


def pack(runs: list[Run], cores: int) -> list[list[Run]]:
    """Split the runs into tasks, the longest first."""
    costs = {run.id: experiment_named(run.experiment).cost(run.settings) for run in runs}
    tasks: list[list[Run]] = []
    left = sum(costs.values())
    room = 0.0
    for run in sorted(runs, key=lambda run: (_network_of(run), run.id)):
        if not tasks or costs[run.id] > room:
            tasks.append([])
            room = min(max(left / (max(cores, 1) * TASKS_LEFT), TASK_SECONDS_MIN), TASK_SECONDS_MAX)
        tasks[-1].append(run)
        room -= costs[run.id]
        left -= costs[run.id]
    return sorted(tasks, key=lambda task: -sum(costs[run.id] for run in task))


def _network_of(run: Run) -> str:
    names = ("network", "members", "seed")
    found: dict[str, Any] = {name: run.settings[name] for name in names if name in run.settings}
    return canonical(found)

"""The assignment of runs or traces to tasks, and the order in which tasks start.

A task is committed as a whole, so it should be short enough to lose little and to show progress, and long enough to
justify its start. Long runs get a task each and start first; short ones share a task with runs on the same network,
which is then built once. Shared tasks become smaller and smaller (guided self-scheduling), so that there is no
straggler at the end although costs are only estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from cubecast.lab.experiments import experiment_named
from cubecast.lab.runs import Run, canonical

Item = TypeVar("Item")

TASK_SECONDS_MIN = 0.5
"""A task costs Spark about 0.1 s: to start it, and to write and commit its file."""
TASK_SECONDS_MAX = 10.0
"""The most work per core that a killed study loses, and the longest pause of its progress."""
TASKS_LEFT = 3
"""How many tasks of the same size per core are left when a task is made: tasks shrink towards the end."""


def pack(runs: list[Run], cores: int) -> list[list[Run]]:
    """Split the runs into tasks, the longest first."""
    ordered = sorted(runs, key=lambda run: (_network_of(run), run.id))
    return split(ordered, costs_of(ordered), cores)


def costs_of(runs: Sequence[Run]) -> list[float]:
    """Estimates of the seconds of the runs. The runs of a point, which share their settings, are estimated once."""
    known: dict[int, float] = {}
    for run in runs:
        if id(run.common) not in known:
            known[id(run.common)] = experiment_named(run.experiment).cost(run.settings)
    return [known[id(run.common)] for run in runs]


def split(items: Sequence[Item], seconds: Sequence[float], cores: int) -> list[list[Item]]:
    """Split items, which take about `seconds` each, into tasks; neighbours stay together, the longest first.

    >>> split("abcd", [9.0, 0.1, 0.1, 0.1], cores=2)
    [['a'], ['b', 'c', 'd']]
    >>> split("abcdef", [0.1] * 6, cores=2)
    [['a', 'b', 'c'], ['d', 'e', 'f']]
    """
    tasks: list[list[Item]] = []
    totals: list[float] = []
    left, room = sum(seconds), 0.0
    # No core is idle for the sake of a longer task.
    least = min(TASK_SECONDS_MIN, 1.001 * left / max(cores, 1))
    for item, cost in zip(items, seconds, strict=True):
        if not tasks or cost > room:
            tasks.append([])
            totals.append(0.0)
            room = min(max(left / (max(cores, 1) * TASKS_LEFT), least), TASK_SECONDS_MAX)
        tasks[-1].append(item)
        totals[-1] += cost
        room -= cost
        left -= cost
    return [tasks[place] for place in sorted(range(len(tasks)), key=lambda place: -totals[place])]


def _network_of(run: Run) -> str:
    names = ("network", "members", "seed")
    found: dict[str, Any] = {name: run.settings[name] for name in names if name in run.settings}
    return canonical(found)

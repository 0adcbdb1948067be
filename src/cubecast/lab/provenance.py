"""Where the figures of a report come from: versions, machine, runs, CPU time, and the command that makes them again."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from cubecast.lab.plan import FORMULAS, Plan
from cubecast.lab.study import StudyOutcome
from cubecast.lab.versions import library_versions, version_of

PRELIMINARY_BELOW = 6
"""The papers draw at least six topologies per point: with fewer seeds a figure is preliminary."""


def study_provenance(plan: Plan, outcome: StudyOutcome) -> str:
    """One line under the title of a study."""
    own = [run for run in outcome.runs if run.study == plan.id]
    repeats = max((run.seed for run in own), default=-1) + 1
    runs = len(own)
    if plan.experiment in FORMULAS:
        seeds = "exact, no seed"
    else:
        seeds = f"{len({run.number for run in own})} points, seeds 0 … {repeats - 1}"
        if (precision := plan.sizes[outcome.size].precision) is not None:
            seeds += f" at most, until each metric is within {precision:.1%} of its mean"
        seeds += "; preliminary: few seeds" if repeats < PRELIMINARY_BELOW else ""
    cpu = outcome.cpu_seconds.get(plan.id)
    cost = f", {_duration(cpu)} of CPU time" if cpu else ""
    return (
        f'<p class="meta">{runs} runs{cost}; {seeds}. Again: <code>{escape(command_of(plan, outcome.size))}</code>, '
        f"with <code>--figure ID</code> for one figure alone</p>"
    )


def command_of(plan: Plan, size: str) -> str:
    """The command that runs a study again."""
    return f"cubecast study run {plan.id} --{size}"


def facts(outcome: StudyOutcome) -> str:
    """Versions, machine and cost of the whole report, as a list of terms."""
    known = {
        **library_versions(),
        "pyspark": version_of("pyspark"),
        "commit": _commit(),
        **outcome.versions,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "runs": f"{len({run.id for run in outcome.runs})}, of which {outcome.done_now} were done now",
        "code of the runs": ", ".join(sorted({run.code for run in outcome.runs})[:4]) + " …",
        "CPU time of all runs": _duration(sum(outcome.cpu_seconds.values())),
        "wall time": _duration(outcome.seconds),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in known.items())


def _duration(seconds: float) -> str:
    """
    >>> _duration(4.2), _duration(200), _duration(9000)
    ('4.2 s', '3.3 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _commit() -> str:
    """The commit of the checkout that runs, if it is one."""
    folder = Path(__file__).resolve().parent
    try:
        finished = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return finished.stdout.strip() or "unknown"

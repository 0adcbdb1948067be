"""The provenance of the figures of a report: versions, machine, runs, CPU time, and the command that repeats them."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from cubecast.errors import CubecastError
from cubecast.lab.plan import FORMULAS, Figure, Plan
from cubecast.lab.study import StudyOutcome, project_plans
from cubecast.lab.tables import Row
from cubecast.lab.versions import library_versions, version_of

_CODES_SHOWN = 3
PRELIMINARY_BELOW = 6
"""The papers draw at least six topologies per point: with fewer seeds a figure is preliminary."""


def study_provenance(plan: Plan, outcome: StudyOutcome) -> str:
    """The line of provenance under the title of a study."""
    own = [run for run in outcome.runs if run.study == plan.id]
    repeats = max((run.seed for run in own), default=-1) + 1
    runs = len(own)
    if plan.experiment in FORMULAS:
        seeds = "exact, no seed"
    else:
        seeds = f"{len({run.number for run in own})} points, seeds 0 … {repeats - 1}"
        if (precision := plan.sizes[outcome.size].precision) is not None:
            seeds += f" at most, until each metric is within {precision:.1%} of its mean"
    cpu = outcome.cpu_seconds.get(plan.id)
    cost = f", {_duration(cpu)} of CPU time" if cpu else ""
    codes = sorted({run.code for run in own})
    hashes = f"plan {plan_hash(plan)}, code {', '.join(codes[:_CODES_SHOWN])}" + (" …" if codes[_CODES_SHOWN:] else "")
    return (
        f'<p class="meta">{runs} runs{cost}; {seeds}. Command: <code>{escape(command_of(plan, outcome.size))}</code>. '
        f"Hashes: {escape(hashes)}</p>"
    )


def plan_hash(plan: Plan) -> str:
    """The beginning of the SHA-256 of the plan's file or, without a file, of its content."""
    try:
        content = plan.path.read_bytes()
    except (OSError, CubecastError):
        content = repr(replace(plan, path=Path())).encode()
    return hashlib.sha256(content).hexdigest()[:12]


def command_of(plan: Plan, size: str) -> str:
    """The command that runs a study again; a plan outside the project is named by its file."""
    own = isinstance(plan.path, Path) and plan.path.parent.resolve() == project_plans().resolve()
    return f"cubecast study run {plan.id if own else plan.path} --{size}"


def caption(plan: Plan, figure: Figure, size: str, rows: list[Row]) -> str:
    """The caption of a figure: the meaning of its marks, the number of seeds, and the command that draws it again."""
    again = f"<code>{escape(command_of(plan, size))} --figure {escape(figure.id)}</code>"
    if not rows:
        return f'<p class="meta">Command: {again}</p>'
    counts = [int(row["n"]) for row in rows]
    few, many = min(counts), max(counts)
    if plan.experiment in FORMULAS:
        return f'<p class="meta">Exact values, without seeds. Command: {again}</p>'
    seeds = f"n = {few}" if few == many else f"n = {few} … {many}"
    marks = {
        "lines": "Means with 95 % intervals (Student)" if figure.statistic == "mean" else "One value per point",
        "winner": "The smallest mean of each cell; faint where the 95 % intervals of the best two overlap",
        "order": "Open where the 95 % intervals overlap",
    }[figure.kind]
    preliminary = ' <b class="part">Preliminary: few seeds.</b>' if few < PRELIMINARY_BELOW else ""
    return f'<p class="meta">{marks}, {seeds} seeds per point.{preliminary} Command: {again}</p>'


def facts(outcome: StudyOutcome) -> str:
    """Versions, machine and cost of the whole report, as a list of terms."""
    known = {
        **library_versions(),
        "pyspark": version_of("pyspark"),
        "commit": _commit(),
        **outcome.versions,
        "machine": f"{platform.system()} {platform.machine()}, {cpu_model()}, {os.cpu_count()} cores",
        "runs": f"{len({run.id for run in outcome.runs})}, of which {outcome.done_now} were executed now",
        "code of the runs": f"{len({run.code for run in outcome.runs})} versions, named with each study",
        "CPU time of all runs": _duration(sum(outcome.cpu_seconds.values())),
        "wall time": _duration(outcome.seconds),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in known.items())


def cpu_model() -> str:
    """The name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown processor"


def _duration(seconds: float) -> str:
    """
    >>> _duration(4.2), _duration(200), _duration(9000)
    ('4.2 s', '3.3 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _commit() -> str:
    """The commit of the running checkout, if it is one."""
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

"""User metrics: functions of the result or of the trace of a run, by name.

A run names the user metrics that it measures in its setting `own_metrics`, so that their code is part of its key. A
metric that reads the trace makes the run keep its events in memory, so it suits small groups. A user's checker is a
metric too: the number of its violations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cubecast.errors import LocalProtocolError
from cubecast.lab.metric_titles import TITLES
from cubecast.sim.result import Result
from cubecast.trace.checkers.report import Checker
from cubecast.trace.files import Trace

MEASURE = "own_metrics"
"""The setting of a run that names its user metrics."""
VIOLATIONS = "violations_"
"""Prefix of a checker's name: the number of its violations in a run."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class OwnMetric:
    """A user metric: a number per run; None if the run has none."""

    name: str
    measure: Callable[[Any], float | None]
    """Called with the `Result` of the run, or with its `Trace`, as `reads` says."""
    reads: Literal["result", "trace"] = "result"
    title: str = ""
    """Its name in figures, with its unit."""

    def check(self, taken: tuple[str, ...]) -> None:
        """Validate the fields."""
        if not _NAME.fullmatch(self.name) or self.name in taken:
            raise LocalProtocolError(
                f"metric {self.name!r}: choose a name of lowercase letters, digits and '_' that no other metric has"
            )
        if self.reads not in ("result", "trace"):
            raise LocalProtocolError(f"metric {self.name}: reads = {self.reads!r}: choose result or trace")


_OWN: dict[str, tuple[OwnMetric, Path]] = {}
"""The metrics that were added, and the file of each."""


def add_metric(metric: OwnMetric, home: Path) -> None:
    """Add a metric of a file."""
    _OWN[metric.name] = (metric, home)
    if metric.title:
        TITLES[metric.name] = metric.title


def own_metrics() -> tuple[str, ...]:
    """The names of the metrics that were added."""
    return tuple(_OWN)


def metric_of(checker: Checker) -> OwnMetric:
    """The violations that a checker finds in a run, as a metric; None if the scenario does not make the promise."""

    def count(trace: Trace) -> float | None:
        return None if checker.not_promised(trace) is not None else float(len(checker.check(trace)))

    name = VIOLATIONS + re.sub(r"[^a-z0-9]+", "_", checker.NAME.lower()).strip("_")
    return OwnMetric(name=name, measure=count, reads="trace", title=f"violations of {checker.NAME}")


def needs_trace(names: list[str]) -> bool:
    """Does any of these metrics read the trace?"""
    return any(_named(name)[0].reads == "trace" for name in names)


def measure_own(names: list[str], result: Result, trace: Trace | None) -> dict[str, float]:
    """The values of these metrics."""
    found = {}
    for name in names:
        metric, _ = _named(name)
        value = metric.measure(result if metric.reads == "result" else trace)
        if value is not None:
            found[name] = float(value)
    return found


def metric_files(settings: Mapping[str, Any]) -> set[Path]:
    """The files of the user metrics of a run."""
    return {_named(name)[1] for name in settings.get(MEASURE, ())}


def _named(name: str) -> tuple[OwnMetric, Path]:
    if name not in _OWN:
        raise LocalProtocolError(f"unknown metric {name!r}: name the file that has it in [code] files", setting=MEASURE)
    return _OWN[name]

"""A study as data: its runs, figures and claims (docs/plans.md documents the file format).

| part of a plan | contents |
|---|---|
| `fixed` | parameters that every run shares |
| `variant` | protocols with their own settings, each under a label |
| `sweep` | parameters with lists of values, every combination of which is run |
| `zip` | tables of lists of the same length, whose n-th values belong together |
| `skip` | combinations that are left out |
| `quick`, `full` | the two sizes: repeats, and changes to `fixed`, `sweep` and `zip` |
| `code` | Python files with the user's own protocols, networks, metrics and checkers |
| `metrics` | metrics that are measured in addition to those of figures and claims |
| `figure` | a metric drawn against a parameter |
| `claim` | a sentence of the paper and the tests by which it is judged |

Seeds are always 0 … repeats − 1. Invariant: a `Plan` that `load_plan` returned can be run, unless `missing` names
protocols that do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cubecast.errors import PlanError
from cubecast.lab.metric_titles import FLOOR
from cubecast.lab.remote import AnyPath

SIZES = ("quick", "full")
PAPERS = ("cube", "guo", "causal", "rasm", "own")
BINARY_METRICS = ("ended", "attached")
"""Metrics that are 1 or 0 in a run: their mean is a share of runs."""
FORMULAS = ("gossip_chain", "trigger", "causal_cost", "overlay_shape", "failure_threshold")
"""Experiments without randomness: their values are exact, and a seed changes nothing."""
SIMULATED = ("simulate", "step_search", "round_cost", "data_flow", "processing_load")
"""Experiments whose settings are those of a simulation."""
EXPERIMENTS = (*SIMULATED, "grow_tree", *FORMULAS)

Selection = dict[str, Any]
"""Column to value, list of values, or a comparison such as ">=100"."""


@dataclass(frozen=True, kw_only=True)
class PlanSize:
    """How much of a plan is run."""

    repeats: int
    fixed: dict[str, Any]
    sweep: dict[str, list[Any]]
    zips: tuple[dict[str, list[Any]], ...]
    precision: float | None = None
    """The relative error down to which points are replicated (`lab.precision`)."""
    repeats_max: int = 0
    """The largest number of seeds of a point, if there is a precision."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Draws metrics `y` against parameter `x`: one line per value of `series`, one panel per value of `panel`."""

    id: str
    title: str
    x: str
    y: tuple[str, ...]
    series: str = "protocol"
    panel: str | None = None
    kind: Literal["lines", "winner", "order"] = "lines"
    """`winner`: a phase diagram over `x` and `rows`, coloured by the series with the smallest `y`. `order`: coloured by
    whether `y` of the series `first` is below that of `second`."""
    rows: str | None = None
    first: str | None = None
    second: str | None = None
    statistic: Literal["mean", "spread", "variation"] = "mean"
    """`spread`: worst minus best over the seeds. `variation`: standard deviation over mean."""
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    only: Selection = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Test:
    """One measurable statement: a quantity whose interval must lie between `low` and `high` (lab.outcomes)."""

    __test__ = False  # pytest must not collect this class

    kind: Literal["value", "ratio", "difference", "growth", "spread", "variation", "proportion"]
    metric: str
    metric_bottom: str | None = None
    top: Selection = field(default_factory=dict)
    bottom: Selection = field(default_factory=dict)
    where: Selection = field(default_factory=dict)
    at: Selection = field(default_factory=dict)
    versus: Selection = field(default_factory=dict)
    """With both, the ratio or difference at `at` is compared with that at `versus`: how a gap changes."""
    along: tuple[str, ...] = ()
    """Parameters that vary together with those compared, such as a step interval chosen for each group size."""
    x: str = "members"
    shape: Literal["n", "n^2", "n log n", "n log^2 n", "log n"] = "n"
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    """How far beyond the bound the quantity must be to contradict the claim; None: the default of the kind."""
    paper: float | None = None
    """The value that the paper gives for the quantity."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, where it stands, and how it is judged."""

    id: str
    text: str
    source: str
    figures: tuple[str, ...]
    tests: tuple[Test, ...]
    readings: tuple[str, ...] = ()
    """Parameters that the paper leaves open: the claim is judged at each combination of their values."""
    reading: str = ""
    """How a vague expression of the sentence ("almost flat", "much faster") is turned into a number, and why."""


SIZES_MIN = {"start": 2, "rounds": 0, "width": 1, "repeats": 2}
"""The smallest valid value of each size of a calibration."""


def is_power_of_two(count: int) -> bool:
    """Is this a power of two, at which a Sobol sequence is balanced?"""
    return count > 0 and count & (count - 1) == 0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The parameters that a paper leaves open, and the settings to try (`lab.calibration`)."""

    start: int
    """Points of the Sobol sequence, a power of two: start · (parameters + 2) settings."""
    rounds: int
    """Of refinement."""
    width: int
    """Settings per round of refinement."""
    repeats: int
    sweep: dict[str, list[Any]]
    """The parameters over which each setting is run."""
    fixed: dict[str, Any]
    between: dict[str, tuple[float, float]]
    among: dict[str, list[Any]]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.between, *self.among)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One study, read and validated."""

    id: str
    paper: str
    title: str
    about: str
    experiment: str
    protocols: tuple[str, ...]
    variants: tuple[dict[str, Any], ...] = ()
    """Settings by label, instead of `protocols`: FullDist scattered and not, sub-groups of 4 and of 50."""
    skip: tuple[Selection, ...]
    sizes: dict[str, PlanSize]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    path: AnyPath
    code: tuple[Path, ...] = ()
    """Files with user code (`lab.own_code`)."""
    extra_metrics: tuple[str, ...] = ()
    """Metrics that are in the tables although no figure and no claim uses them."""
    calibration: Calibration | None = None
    only: Selection = field(default_factory=dict)
    """The points that are run; all if it is empty."""
    missing: tuple[str, ...] = ()
    """Protocols that this version does not have; the plan is then listed as not available."""

    def for_figure(self, name: str) -> Plan:
        """The part of the plan that one figure draws."""
        chosen = [figure for figure in self.figures if figure.id == name]
        if not chosen:
            known = ", ".join(figure.id for figure in self.figures)
            raise PlanError(f"study {self.id} has no figure {name!r}: choose one of {known}")
        return replace(self, figures=tuple(chosen), claims=(), only=chosen[0].only)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The columns that identify a point: the swept and zipped parameters, and the protocol."""
        names = ["protocol"] if self.protocols else ["variant"] if self.variants else []
        for size in self.sizes.values():
            names += [*size.sweep, *(name for table in size.zips for name in table)]
        return tuple(dict.fromkeys(names))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that the plan names, a figure draws or a claim tests."""
        names = [*self.extra_metrics, *(name for figure in self.figures for name in figure.y)]
        for claim in self.claims:
            for test in claim.tests:
                names += [test.metric, *([test.metric_bottom] if test.metric_bottom else [])]
        return tuple(dict.fromkeys(names))

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics, and the lower bounds of those that are drawn as lines."""
        drawn = [name for figure in self.figures if figure.kind == "lines" for name in figure.y]
        return tuple(dict.fromkeys([*self.metrics, *(FLOOR + name for name in drawn)]))

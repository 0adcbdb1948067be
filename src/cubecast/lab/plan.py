"""A study as data: what is run, drawn and claimed (docs/plans.md documents the file format).

| part of a plan | what it says |
|---|---|
| `fixed` | parameters that every run shares |
| `variant` | protocols with settings of their own, each under a label |
| `sweep` | parameters with lists of values, of which every combination is run |
| `zip` | tables of lists of one length, whose n-th values go together |
| `skip` | combinations that are left out |
| `quick`, `full` | the two sizes: repeats, and what they change in `fixed`, `sweep` and `zip` |
| `code` | Python files with protocols, networks, metrics and checkers of the user's own |
| `metrics` | what is measured besides what is drawn and claimed |
| `figure` | what is drawn against what |
| `claim` | a sentence of the paper and the tests by which it is judged |

Seeds are always 0 … repeats − 1. Invariant: a `Plan` that `load_plan` returned can be run as it stands, or its
protocols are not all there yet, which `missing` says.
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
"""Metrics that are 1 or 0 in a run: their mean is a share of the runs."""
FORMULAS = ("gossip_chain", "trigger", "causal_cost", "overlay_shape", "failure_threshold")
"""Experiments without chance: their values are exact, and a seed changes nothing."""
SIMULATED = ("simulate", "step_search", "round_cost", "data_flow", "processing_load")
"""Experiments whose settings are those of a simulation."""
EXPERIMENTS = (*SIMULATED, "grow_tree", *FORMULAS)

Value = str | int | float | bool
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
    """The relative error that points are replicated to (`lab.precision`)."""
    repeats_max: int = 0
    """How many seeds a point has at most, where there is a precision."""


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

    __test__ = False  # not a test of ours, whatever pytest thinks of the name

    kind: Literal["value", "ratio", "difference", "growth", "spread", "variation", "proportion"]
    metric: str
    metric_bottom: str | None = None
    top: Selection = field(default_factory=dict)
    bottom: Selection = field(default_factory=dict)
    where: Selection = field(default_factory=dict)
    at: Selection = field(default_factory=dict)
    versus: Selection = field(default_factory=dict)
    """With both, a ratio is that at `at` over that at `versus`, and a difference likewise: how a gap changes."""
    along: tuple[str, ...] = ()
    """Parameters that change together with those compared, such as a step interval chosen for each group size."""
    x: str = "members"
    shape: Literal["n", "n^2", "n log n", "n log^2 n", "log n"] = "n"
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    """By how much more than the bound the quantity must be off to contradict the claim; None: by the kind."""
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
    """How a word of the sentence that is no number ("almost flat", "much faster") is read as one, and why so."""


SIZES_MIN = {"start": 2, "rounds": 0, "width": 1, "repeats": 2}
"""The least of each size of a calibration."""


def is_power_of_two(count: int) -> bool:
    """Can a Sobol sequence of this length be balanced?"""
    return count > 0 and count & (count - 1) == 0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a paper leaves open, and how much is tried of it (`lab.calibration`)."""

    start: int
    """Points of the Sobol sequence, a power of two: start · (parameters + 2) settings."""
    rounds: int
    """Of refinement."""
    width: int
    """Settings per round of refinement."""
    repeats: int
    sweep: dict[str, list[Any]]
    """What each setting is run over."""
    fixed: dict[str, Any]
    between: dict[str, tuple[float, float]]
    among: dict[str, list[Any]]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.between, *self.among)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One study, read and checked."""

    id: str
    paper: str
    title: str
    about: str
    experiment: str
    protocols: tuple[str, ...]
    variants: tuple[dict[str, Any], ...] = ()
    """Settings by label, in place of `protocols`: FullDist scattered and not, sub-groups of 4 and of 50."""
    skip: tuple[Selection, ...]
    sizes: dict[str, PlanSize]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    path: AnyPath
    code: tuple[Path, ...] = ()
    """Files with code of the user's own (`lab.own_code`)."""
    extra_metrics: tuple[str, ...] = ()
    """Metrics that are in the tables although no figure and no claim looks at them."""
    calibration: Calibration | None = None
    only: Selection = field(default_factory=dict)
    """The points that are run; all where it is empty."""
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
        """The columns that identify a point: what is swept or zipped, and the protocol."""
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

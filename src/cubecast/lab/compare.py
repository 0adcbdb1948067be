"""Compare protocols: the same groups on the same networks, once per seed.

Every protocol of a comparison runs on the same network with the same R for each size and seed, so that differences are
due to the protocols alone. A protocol that cannot finish a run does not stop the others: the run is kept with the
reason, and excluded from the means. The comparison includes the lower bounds (`models.lower_bounds`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cubecast.errors import LocalProtocolError, SimulationError
from cubecast.lab.metric_titles import LOWER_BOUND
from cubecast.lab.stats import Estimate, mean_estimate
from cubecast.lab.whole_file import write_whole
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import list_protocols as registered
from cubecast.protocols.catalogue import protocol_named
from cubecast.sim.lower_bounds import lower_bounds
from cubecast.sim.result import Result
from cubecast.sim.roles import split_settings
from cubecast.sim.scenario import SEED_MAX, Scenario
from cubecast.sim.simulate import run_scenario

Progress = Callable[[int, int, str], None]
"""Called before each run with the number of finished runs, the number of all runs, and the next run."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A column of the comparison."""

    name: str
    title: str
    short: str
    unit: str = ""
    digits: int = 0
    of: Literal["all", "rounds", "buffers", "causal", "data", "views", "causal views"] = "rounds"
    """When it is measured: always, for rounds of stability detection, for the buffers that these free (if data flows),
    for protocols that carry the data themselves, for groups with views, or for causal stability if requested."""


METRICS = (
    Metric(name="rtt_first_ms", title="RTT, first member", short="RTT first", unit="ms", digits=2),
    Metric(name="rtt_last_ms", title="RTT, last member", short="RTT last", unit="ms", digits=2),
    Metric(name="messages", title="Messages", short="messages"),
    Metric(name="hops", title="Packet-hops", short="hops"),
    Metric(name="bytes", title="Bytes sent", short="bytes"),
    Metric(name="delay_mean_ms", title="Delay, mean", short="delay mean", unit="ms", digits=2, of="data"),
    Metric(name="delay_max_ms", title="Delay, longest", short="delay max", unit="ms", digits=2, of="data"),
    Metric(name="data_messages", title="Messages", short="messages", of="data"),
    Metric(name="data_hops", title="Packet-hops", short="hops", of="data"),
    Metric(name="data_bytes", title="Bytes sent", short="bytes", of="data"),
    Metric(name="delivery_queue_mean", title="Delivery queue, mean", short="held mean", digits=2, of="data"),
    Metric(name="delivered_share", title="Delivered, share", short="delivered", digits=3, of="data"),
    Metric(name="load_mean", title="Messages in the network", short="load", digits=1, of="all"),
    Metric(name="queue_mean", title="Queue, mean", short="queue mean", digits=2, of="all"),
    Metric(name="queue_max", title="Queue, longest", short="queue max", of="all"),
    Metric(name="tts_last_ms", title="Time to stable", short="stable", unit="ms", digits=2, of="buffers"),
    Metric(name="causal_last_ms", title="Time to causally stable", short="causal", unit="ms", digits=2, of="causal"),
    Metric(name="buffer_mean", title="Unstable messages held", short="held", digits=1, of="buffers"),
    Metric(name="views", title="Views", short="views", of="views"),
    Metric(name="paused_share", title="Share of time paused", short="paused", digits=3, of="views"),
    Metric(name="pause_p99_ms", title="Pause, 99th percentile", short="pause p99", unit="ms", digits=1, of="views"),
    Metric(name="stable_p50_ms", title="Time to stable, median", short="stable p50", unit="ms", digits=1, of="views"),
    Metric(name="stable_p99_ms", title="Time to stable, p99", short="stable p99", unit="ms", digits=1, of="views"),
    Metric(
        name="causal_p99_ms",
        title="Time to causally stable, p99",
        short="causal p99",
        unit="ms",
        digits=1,
        of="causal views",
    ),
    Metric(name="membership_bytes", title="Bytes of membership", short="membership", of="views"),
)


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run of a comparison: its result, or why it has none."""

    scenario: Scenario
    result: Result | None = None
    failure: str | None = None
    lower_bounds: dict[str, float] = field(default_factory=dict)
    """The lower bounds on this network, by the name of the metric."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One protocol at one group size, or the lower bound of all, over all seeds."""

    protocol: str
    members: int
    runs: int
    failed: int
    figures: dict[str, Estimate]

    @property
    def title(self) -> str:
        """The name in tables and pictures."""
        return LOWER_BOUND if self.protocol == LOWER_BOUND else protocol_named(self.protocol).title

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: each figure with its mean and the half-width of its 95 % interval."""
        figures = {name: {"mean": one.value, "ci95": one.half_width} for name, one in self.figures.items()}
        return {"protocol": self.protocol, "members": self.members, "runs": self.runs, "failed": self.failed} | figures


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs, and their summaries."""

    runs: tuple[ComparedRun, ...]

    @property
    def failures(self) -> list[str]:
        """The reasons of runs that did not end, each with the command that replays it."""
        return [run.failure for run in self.runs if run.failure is not None]

    @property
    def metrics(self) -> list[Metric]:
        """The metrics that were measured."""
        measured = {"all"}
        for scenario in (run.scenario for run in self.runs):
            if scenario.causal_stability:
                measured.add("causal views" if scenario.has_views else "causal")
            if scenario.has_views:
                measured |= {"data", "views"}
            elif scenario.carries_data:
                measured.add("data")
            else:
                measured |= {"rounds", "buffers"} if scenario.messages else {"rounds"}
        return [metric for metric in METRICS if metric.of in measured]

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each group size and protocol, in the order of the runs."""
        cells: dict[tuple[int, str], list[ComparedRun]] = {}
        for run in self.runs:
            cells.setdefault((run.scenario.members, run.scenario.protocol), []).append(run)
        return [self._summary(members, protocol, runs) for (members, protocol), runs in cells.items()]

    def _summary(self, members: int, protocol: str, runs: list[ComparedRun]) -> Summary:
        ended = [run.result for run in runs if run.result is not None]
        figures = {}
        for metric in self.metrics:
            values = [getattr(result, metric.name) for result in ended]
            known = [float(value) for value in values if value is not None and not math.isnan(value)]
            figures[metric.name] = mean_estimate(np.array(known))
        return Summary(
            protocol=protocol, members=members, runs=len(runs), failed=len(runs) - len(ended), figures=figures
        )

    @cached_property
    def lower_bounds(self) -> list[Summary]:
        """The lower bounds, one summary per group size that has any; metrics without a bound have no value."""
        found = [self._lower_bound(members) for members in dict.fromkeys(one.members for one in self.summaries)]
        return [one for one in found if any(figure.n for figure in one.figures.values())]

    def _lower_bound(self, members: int) -> Summary:
        """The mean over the seeds; the bound for all protocols of a seed is the least of their bounds."""
        least: dict[str, dict[int, float]] = {metric.name: {} for metric in self.metrics}
        for run in self.runs:
            for name, value in run.lower_bounds.items():
                if run.scenario.members == members and name in least:
                    seeds = least[name]
                    seeds[run.scenario.seed] = min(value, seeds.get(run.scenario.seed, math.inf))
        figures = {name: mean_estimate(np.array(list(seeds.values()))) for name, seeds in least.items()}
        runs = max((figure.n for figure in figures.values()), default=0)
        return Summary(protocol=LOWER_BOUND, members=members, runs=runs, failed=0, figures=figures)

    def rows(self) -> list[Summary]:
        """The summaries size by size, the lower bound after the protocols of its size."""
        bounds = {one.members: one for one in self.lower_bounds}
        found: list[Summary] = []
        for place, summary in enumerate(self.summaries):
            found.append(summary)
            following = self.summaries[place + 1].members if place + 1 < len(self.summaries) else None
            if following != summary.members and summary.members in bounds:
                found.append(bounds[summary.members])
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "summary": [summary.to_dict() for summary in self.summaries],
            "lower_bounds": [bound.to_dict() for bound in self.lower_bounds],
            "runs": [run.result.to_dict() for run in self.runs if run.result is not None],
            "failures": self.failures,
        }

    def runs_csv(self) -> str:
        """One line per run, with every figure that has one value."""
        rows = [run.result.to_dict() for run in self.runs if run.result is not None]
        for row in rows:
            del row["per_round"], row["buffer_series"]
        return _csv(rows)

    def summary_csv(self) -> str:
        """One line per protocol and size, and one per lower bound: mean and half-width of the 95 % interval."""
        rows = []
        for summary in self.rows():
            row: dict[str, Any] = {"protocol": summary.protocol, "members": summary.members}
            row |= {"runs": summary.runs, "failed": summary.failed}
            for name, one in summary.figures.items():
                row |= {name: one.value, f"{name}_ci95": one.half_width}
            rows.append(row)
        return _csv(rows)

    def plot(self, path: str | Path) -> Path:
        """Draw an HTML page that works offline, or a PNG, SVG or PDF picture, by the ending of `path`."""
        from cubecast.lab.plots import save_plot

        return save_plot(self, path)

    def save(self, folder: str | Path) -> list[Path]:
        """Write `runs.csv`, `summary.csv`, `compare.html` and `compare.png` into a folder."""
        folder = Path(folder)
        return [
            write_whole(folder / "runs.csv", self.runs_csv()),
            write_whole(folder / "summary.csv", self.summary_csv()),
            self.plot(folder / "compare.html"),
            self.plot(folder / "compare.png"),
        ]


def compare(
    *,
    members: int | Sequence[int],
    protocols: Sequence[str] | None = None,
    family: str = "stability",
    network: str | Network = "random:p=0.02",
    repeat: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Comparison:
    """Run protocols side by side and return their figures.

    >>> comparison = compare(members=[50, 100], network="random:degree=5", repeat=3)  # doctest: +SKIP
    >>> for summary in comparison.summaries:  # doctest: +SKIP
    ...     print(summary.protocol, summary.members, summary.figures["rtt_last_ms"].value)

    `members` is one group size or several; `protocols` are names, by default all of `family`; each runs with the seeds
    `seed` … `seed + repeat − 1`. The other `settings` are the fields of `Scenario` and
    parameters of the protocols; each protocol takes those it has.
    """
    sizes = [members] if isinstance(members, int) else list(members)
    if not sizes or repeat < 1 or seed + repeat - 1 > SEED_MAX:
        raise LocalProtocolError(f"{len(sizes)} group sizes, {repeat} seeds from {seed}: give at least one of each")
    names = (
        [one.name for one in registered(family)] if protocols is None else [protocol_named(p).name for p in protocols]
    )
    spelled = network if isinstance(network, str) else network.name
    # All scenarios are made, and so validated, before the first one runs.
    scenarios = [
        _scenario({"protocol": name, "members": size, "network": spelled, "seed": seed + turn} | settings)
        for size in dict.fromkeys(sizes)
        for turn in range(repeat)
        for name in dict.fromkeys(names)
    ]
    return Comparison(runs=tuple(_run_all(scenarios, network, progress)))


def _scenario(settings: dict[str, Any]) -> Scenario:
    """Make a scenario; parameters that its protocol does not have are dropped."""
    return Scenario(**split_settings(settings, {one.name for one in fields(Scenario)}, lenient=True))


def _run_all(scenarios: list[Scenario], network: str | Network, progress: Progress | None) -> list[ComparedRun]:
    runs: list[ComparedRun] = []
    built: tuple[tuple[int, int], Network] | None = None
    for done, scenario in enumerate(scenarios):
        if progress is not None:
            title = protocol_named(scenario.protocol).title
            progress(done, len(scenarios), f"{title}, {scenario.members} members, seed {scenario.seed}")
        place = (scenario.members, scenario.seed)
        if built is None or built[0] != place:
            built = (place, _network(network, scenario))
        runs.append(_run_one(scenario, built[1]))
    return runs


def _network(network: str | Network, scenario: Scenario) -> Network:
    if isinstance(network, str):
        return build_network(network, members=scenario.members, seed=scenario.seed)
    return network


def _run_one(scenario: Scenario, network: Network) -> ComparedRun:
    try:
        result = run_scenario(scenario, network)
        bounds = lower_bounds(scenario, network, result)
        return ComparedRun(scenario=scenario, result=result, lower_bounds=bounds)
    except SimulationError as error:
        return ComparedRun(scenario=scenario, failure=str(error))


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()

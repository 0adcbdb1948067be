"""Churn rate against what it costs: a grid of measured runs, their means, and a log from which a study goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.sim.churn.measured import ChurnResult, ChurnScenario, run_churn


class Figure(NamedTuple):
    """A quantity of a run, and how it is shown."""

    name: str
    title: str
    short: str
    digits: int
    scale: float = 1.0
    of_view: bool = False
    """Is it known only where the view changed?"""


FIGURES = (
    Figure("views", "Views", "views", 1),
    Figure("pause_median_ms", "Pause of a view change, median (ms)", "pause ms", 0, of_view=True),
    Figure("pause_p99_ms", "Pause of a view change, p99 (ms)", "p99", 0, of_view=True),
    Figure("paused_share", "Time in pauses (%)", "paused %", 2, 100.0),
    Figure("wait_p99_ms", "Messages wait before they are sent, p99 (ms)", "wait p99 ms", 0),
    Figure("returned", "Messages returned", "returned", 1),
    Figure("excluded_living", "Living members excluded", "excluded", 1),
    Figure("stable_median_ms", "Time to stable, median (ms)", "stable ms", 0),
    Figure("stable_p99_ms", "Time to stable, p99 (ms)", "p99", 0),
    Figure("control_bytes_per_member_s", "Control bytes a member sends (kB/s)", "control kB/s", 1, 0.001),
    Figure("control_messages_per_member_s", "Control messages a member sends (1/s)", "messages/s", 1),
    Figure("links_changed_per_view", "Overlay links changed by a view", "links", 1, of_view=True),
    Figure("links_changed_share", "Overlay links changed by a view (%)", "links %", 2, 100.0, of_view=True),
)


@dataclass(frozen=True, kw_only=True)
class ChurnStudy:
    """All runs of the grid."""

    results: tuple[ChurnResult, ...]

    def rows(self) -> list[dict[str, float]]:
        """Means over the seeds, for each group size and rate."""
        points = list(dict.fromkeys((one.scenario.members, one.scenario.churn) for one in self.results))
        return [self._row(*point) for point in points]

    def _row(self, members: int, churn: float) -> dict[str, float]:
        runs = [one for one in self.results if (one.scenario.members, one.scenario.churn) == (members, churn)]
        changed = [run for run in runs if run.views]
        means = {figure.name: _mean(figure, changed if figure.of_view else runs) for figure in FIGURES}
        return {"members": members, "churn": churn, "runs": len(runs), **means}

    def broken(self) -> list[str]:
        """Promises that were broken, and groups that did not settle, each with the run."""
        return [
            f"{one.scenario.members} members, churn {one.scenario.churn}, seed {one.scenario.seed}: {promise}"
            for one in self.results
            for promise in (*one.broken, *(() if one.settled else ("the group did not settle",)))
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rows": self.rows(), "runs": [asdict(one) for one in self.results], "broken": self.broken()}


def _mean(figure: Figure, runs: Sequence[ChurnResult]) -> float:
    return figure.scale * sum(float(getattr(run, figure.name)) for run in runs) / max(1, len(runs))


def run_study(
    *,
    members: Sequence[int],
    churn: Sequence[float],
    repeat: int = 1,
    log: Path | None = None,
    progress: Callable[[int, int, str], None] = lambda *_: None,
    **settings: Any,
) -> ChurnStudy:
    """Run every group size with every rate and every seed; what the log holds already is not run again."""
    seed = settings.pop("seed", 0)
    if repeat < 1:
        raise LocalProtocolError(f"repeat = {repeat}: give at least 1")
    scenarios = [
        ChurnScenario(members=size, churn=rate, seed=seed + place, **settings)
        for size in members
        for rate in churn
        for place in range(repeat)
    ]
    done = _read(log)
    results: list[ChurnResult] = []
    for place, scenario in enumerate(scenarios):
        if scenario not in done:
            what = f"{scenario.members} members, {scenario.churn:g} changes a second, seed {scenario.seed}"
            done[scenario] = run_churn(
                scenario,
                lambda share, place=place, what=what: progress(  # type: ignore[misc]
                    round(100 * (place + share)), 100 * len(scenarios), what
                ),
            )
            _append(log, done[scenario])
        results.append(done[scenario])
    return ChurnStudy(results=tuple(results))


def _read(log: Path | None) -> dict[ChurnScenario, ChurnResult]:
    if log is None or not log.exists():
        return {}
    results = [_result(json.loads(line)) for line in log.read_text().splitlines()]
    return {result.scenario: result for result in results}


def _result(row: dict[str, Any]) -> ChurnResult:
    scenario = row.pop("scenario")
    scenario["delay_ms"] = tuple(scenario["delay_ms"])
    return ChurnResult(scenario=ChurnScenario(**scenario), **{**row, "broken": tuple(row["broken"])})


def _append(log: Path | None, result: ChurnResult) -> None:
    if log is not None:
        with log.open("a") as lines:
            print(json.dumps(asdict(result)), file=lines)

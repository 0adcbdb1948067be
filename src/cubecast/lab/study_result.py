"""Studies from Python: `cubecast.study(...)` runs a plan on Spark and returns its tables as data frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from cubecast.errors import LocalProtocolError
from cubecast.lab.claims import judge
from cubecast.lab.figures import draw
from cubecast.lab.load_plan import plan_of_table
from cubecast.lab.plan import SIZES, Plan
from cubecast.lab.remote import AnyPath, dataset_of, path_of
from cubecast.lab.report import answers_of, write_report
from cubecast.lab.report_summary import verdict_sentence
from cubecast.lab.runs import points_of
from cubecast.lab.spark.parquet import read_parquet
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome, choose_plans, project_plans, run_studies
from cubecast.lab.tables import figure_rows, rows_of

if TYPE_CHECKING:
    import altair as alt

Progress = Callable[[int, int], None]
TABLES = ("points", "values", "summary", "findings")
_REPEATS = 5


def study(
    plan: str | Path | Mapping[str, Any],
    *,
    size: str = "quick",
    out: str | Path = "results",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> StudyResult:
    """Run a study on Spark and return its tables; runs with results in the folder `out` are not repeated.

    >>> result = study({"protocols": ["coord", "s_coord"], "sweep": {"members": [16, 32]},
    ...                 "metrics": ["rtt_last_ms"], "repeats": 5})  # doctest: +SKIP
    >>> result.summary  # doctest: +SKIP

    `plan` is the file of a plan, the name of one of the project's own, or a table with the keys of a plan
    (docs/plans.md), in which `id`, `paper` and `title` may be left out and `repeats` may stand for both sizes. `master`
    and `conf` are Spark's; a Spark session that is active in this process is used instead of a new one.
    """
    if size not in SIZES:
        raise LocalProtocolError(f"size = {size!r}: choose one of {', '.join(SIZES)}")
    chosen = _table_plan(plan) if isinstance(plan, Mapping) else choose_plans(project_plans(), [str(plan)])[0]
    store = Store(path_of(out))
    outcome = run_studies(
        [chosen],
        size,
        store,
        master=master,
        conf=dict(conf or {}),
        retry_failed=retry_failed,
        progress=progress or (lambda _done, _total: None),
        say=lambda _line: None,
    )
    return StudyResult(plan=chosen, outcome=outcome, store=store)


def _table_plan(table: Mapping[str, Any]) -> Plan:
    """The plan of a table, with defaults for the keys that may be omitted."""
    given = dict(table)
    repeats = given.pop("repeats", _REPEATS)
    sizes = {size: {"repeats": repeats} for size in SIZES}
    name = given.get("id", "study")
    return plan_of_table({"id": name, "paper": "own", "title": name, **sizes, **given})


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """The tables of a study as pandas data frames, its verdicts and figures; docs/results.md describes the columns."""

    plan: Plan
    outcome: StudyOutcome
    store: Store

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per point: its number and its parameters."""
        points = points_of(self.plan, self.outcome.size)
        return pd.DataFrame([{"point": number, **point} for number, point in enumerate(points)])

    @cached_property
    def values(self) -> pd.DataFrame:
        """One row per measured number, with the parameters of its point."""
        if self._partition("values").exists():
            found = dataset_of(self._partition("values")).to_table().to_pandas()
        else:  # no run succeeded
            found = pd.DataFrame(columns=["point", "seed", "metric", "value"])
        return self._with_parameters(found).sort_values(["metric", "point", "seed"], ignore_index=True)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per metric and point: n, mean, standard deviation and 95 % interval, with the parameters."""
        return self._with_parameters(self._own(self.outcome.summary)).sort_values(
            ["metric", "point"], ignore_index=True
        )

    @cached_property
    def findings(self) -> pd.DataFrame:
        """One row per test of a claim and point."""
        return self._own(self.outcome.findings)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run of this study: settings, metrics, versions, time."""
        wanted = pd.DataFrame([{"run_id": run.id, "code": run.code} for run in self.outcome.runs])
        found = dataset_of(self.store.runs).to_table().to_pandas()
        return found.merge(wanted.drop_duplicates()).drop_duplicates(["run_id", "code"], ignore_index=True)

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """One row per claim of the plan: its verdict, and the same in words."""
        found = judge([answers_of(self.plan, self.outcome)])[self.plan.id]
        rows = [{"claim": one.claim.id, "verdict": one.verdict, "sentence": verdict_sentence(one)} for one in found]
        return pd.DataFrame(rows, columns=["claim", "verdict", "sentence"])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The runs that failed, with error and seed."""
        return self.outcome.failures

    def chart(self, figure: str) -> alt.TopLevelMixin:
        """A figure of the plan, as a chart for notebooks."""
        import altair as alt

        drawn = self.plan.for_figure(figure).figures[0]
        rows = figure_rows(drawn, points_of(self.plan, self.outcome.size), rows_of(self.outcome.summary, self.plan.id))
        return alt.Chart.from_dict(draw(self.plan, drawn, rows))

    def write_report(self) -> AnyPath:
        """Write tables, pictures and the HTML page of this study; return the path of the page."""
        return write_report(self.outcome, self.store)

    def to_spark(self, spark: Any, name: str) -> Any:
        """A table (points, values, summary, findings) as a Spark data frame, if it is too large for pandas."""
        return read_parquet(spark, self._partition(name))

    def _own(self, table: pa.Table) -> pd.DataFrame:
        """The rows of this study in a table of several."""
        return table.filter(pc.equal(table.column("study"), self.plan.id)).drop_columns(["study"]).to_pandas()

    def _partition(self, name: str) -> AnyPath:
        if name not in TABLES:
            raise LocalProtocolError(f"table {name!r}: choose one of {', '.join(TABLES)}")
        return self.store.partition(name, self.plan.id)

    def _with_parameters(self, frame: pd.DataFrame) -> pd.DataFrame:
        return self.points.merge(frame, on="point")

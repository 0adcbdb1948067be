"""Run studies: plans in, tables out. The command line calls this module."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyarrow.dataset import field as field_named
from pyarrow.dataset import partitioning

from cubecast.errors import LocalProtocolError, PlanError
from cubecast.extras import named
from cubecast.lab.experiments import experiment_named
from cubecast.lab.load_plan import load_plan, load_plans, require_own_names
from cubecast.lab.packing import costs_of
from cubecast.lab.pending_runs import PendingRuns, failures, find_pending_runs
from cubecast.lab.plan import Plan
from cubecast.lab.precision import looks, open_points
from cubecast.lab.questions import FINDINGS
from cubecast.lab.remote import AnyPath, dataset_of, path_of
from cubecast.lab.runs import Run, points_of, runs_of
from cubecast.lab.schema import SUMMARY
from cubecast.lab.store import Store
from cubecast.lab.toml_lines import key_lines, line_of

HEAVY_RUNS = 50_000
"""With more runs than this, Spark is configured for large tables."""

Progress = Callable[[int, int], None]
Say = Callable[[str], None]


@dataclass(kw_only=True)
class StudyOutcome:
    """The result of a study, as far as the report needs it; the values stay on disk."""

    plans: list[Plan]
    size: str
    runs: list[Run]
    done_now: int = 0
    seconds: float = 0.0
    summary: pa.Table | None = None
    findings: pa.Table | None = None
    failures: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """The CPU time of the runs of each study, whenever they were executed."""


def project_plans() -> Path:
    """The project's own plans: in the current folder, or in the checkout that this package runs from."""
    here = Path("plans")
    return here if here.is_dir() else Path(__file__).resolve().parents[3] / "plans"


def choose_plans(folder: AnyPath, names: list[str], say: Say = lambda _: None) -> list[Plan]:
    """The plans of these names or files, or all available ones; report those that are not available."""
    if not names:
        plans = load_plans(folder)
        for plan in plans:
            if plan.missing:
                say(f"study {plan.id} skipped: no protocol {', '.join(plan.missing)} here")
        return [plan for plan in plans if not plan.missing]
    found = find_plans(folder, names)
    for name, plan in found.items():
        if plan.missing:
            raise PlanError(f"study {name} is not available: no protocol {', '.join(plan.missing)} here")
    chosen = {id(plan): plan for plan in found.values()}
    return require_own_names([*chosen.values()])


def find_plans(folder: AnyPath, names: list[str]) -> dict[str, Plan]:
    """The plans of these names, which are in the folder, or of these files, available or not."""
    known = {name: load_plan(path_of(name)) for name in names if _is_file(name)}
    if len(known) < len(set(names)):
        known |= {plan.id: plan for plan in load_plans(folder)}
    for name in names:
        if name not in known:
            raise PlanError(f"unknown study {name!r}: choose one of {', '.join(known)}")
    return {name: known[name] for name in names}


def _is_file(name: str) -> bool:
    return name.partition("?")[0].endswith(".toml")


def runs_of_all(plans: list[Plan], size: str) -> list[Run]:
    """The runs of several plans; a run that two plans share is listed twice and executed once."""
    return [run for plan in plans for run in runs_of(plan, size)]


def run_studies(
    plans: list[Plan],
    size: str,
    store: Store,
    *,
    master: str | None,
    progress: Progress,
    say: Say,
    conf: dict[str, str] | None = None,
    retry_failed: bool = False,
    only_read: bool = False,
) -> StudyOutcome:
    """Execute the pending runs, then aggregate all results. With `only_read` nothing is executed."""
    _spark()
    store.make()
    outcome = StudyOutcome(plans=plans, size=size, runs=runs_of_all(plans, size))
    began = time.perf_counter()
    with store.alone():
        for path in store.set_aside_unreadable():
            say(f"{path.name}: damaged, moved away; its runs are repeated")
        store.clear_unfinished()
        found = find_pending_runs(store, outcome.runs, retry_failed=retry_failed)
        _report_pending(found, say)
        if only_read and not found.done:
            return outcome  # nothing needs Spark
        missing = [] if only_read else found.pending
        heavy = len(outcome.runs) > HEAVY_RUNS
        with _session(store, master, conf, heavy=heavy, meanwhile=lambda: rehearse(missing)) as session:
            study = _RunningStudy(session, store, outcome, progress, say, only_read=only_read)
            study.run(missing)
            study.replicate()
            _analyse(session, store, outcome)
            # Last: the first query of a session takes long, and the runs need not wait for it.
            outcome.versions = _versions(session)
            outcome.seconds = time.perf_counter() - began
    return outcome


@dataclass(frozen=True)
class _RunningStudy:
    """A study while Spark is up: its runs, and the further ones that its precision needs."""

    session: Any
    store: Store
    outcome: StudyOutcome
    progress: Progress
    say: Say
    only_read: bool = field(kw_only=True)

    def run(self, missing: list[Run]) -> None:
        if not missing:
            return
        _spark().execute(self.session, self.store, missing, self.progress)
        _require_arrived(self.store, missing)
        self.outcome.done_now += len(missing)

    def replicate(self) -> None:
        """Add seeds to points that are not precise enough, look by look, until all are or the limit is reached."""
        plans = [plan for plan in self.outcome.plans if plan.sizes[self.outcome.size].precision is not None]
        seeds: dict[str, dict[int, int]] = {plan.id: {} for plan in plans}
        waiting = {plan.id: set(range(len(points_of(plan, self.outcome.size)))) for plan in plans}
        for look in range(max((len(_looks(plan, self.outcome.size)) for plan in plans), default=0)):
            if not self._look(plans, look, seeds, waiting):
                return
        for plan in plans:
            if waiting[plan.id]:
                own = plan.sizes[self.outcome.size]
                place = _place_of_precision(plan, self.outcome.size)
                self.say(
                    f"{place}: study {plan.id}: {len(waiting[plan.id])} points are not within precision = "
                    f"{own.precision} after {own.repeats_max} seeds; results kept"
                )

    def _look(
        self, plans: list[Plan], look: int, seeds: dict[str, dict[int, int]], waiting: dict[str, set[int]]
    ) -> bool:
        """Run the waiting points up to the seeds of a look; return whether a further look is needed and possible."""
        size = self.outcome.size
        asking = [plan for plan in plans if waiting[plan.id] and look < len(_looks(plan, size))]
        if not asking:
            return False
        for plan in asking:
            seeds[plan.id] |= dict.fromkeys(waiting[plan.id], _looks(plan, size)[look])
        runs = [run for plan in self.outcome.plans for run in runs_of(plan, size, seeds.get(plan.id))]
        missing = find_pending_runs(self.store, runs).pending
        if missing and self.only_read:
            return False
        self.run(missing)
        self.outcome.runs = runs
        from cubecast.lab.spark.analysis import summary_of

        own = [run for plan in asking for run in runs_of(plan, size, seeds[plan.id]) if run.number in waiting[plan.id]]
        rows = summary_of(self.session, self.store, asking, own)
        for plan in asking:
            found = [row for row in rows if row["study"] == plan.id]
            precision = plan.sizes[size].precision or 0.0
            waiting[plan.id] = open_points(found, plan.metrics, precision=precision, look=look)
        return True


def _place_of_precision(plan: Plan, size: str) -> str:
    """The file and line that ask for the precision; the file alone where the plan was not read from one."""
    if not plan.path.exists():
        return str(plan.path)
    return f"{plan.path}:{line_of(key_lines(plan.path.read_text('utf-8')), size, 'precision')}"


def _looks(plan: Plan, size: str) -> list[int]:
    return looks(plan.sizes[size].repeats, plan.sizes[size].repeats_max)


def _require_arrived(store: Store, runs: list[Run]) -> None:
    """Require the results of all runs on disk, whatever Spark reports."""
    lost = find_pending_runs(store, runs).pending
    if lost:
        raise LocalProtocolError(
            f"{len(lost)} of {len(runs)} results did not arrive in {store.runs}: "
            "check that all workers write to this folder"
        )


def _report_pending(found: PendingRuns, say: Say) -> None:
    if found.other_code:
        say(f"{found.other_code} results on disk were produced by a different code version: kept, ignored")
    if found.other_runs:
        say(f"{found.other_runs} results on disk belong to runs outside these plans: kept, ignored")
    say(f"{found.done + len(found.pending)} runs, of which {found.done} are finished")


def rehearse(runs: list[Run]) -> None:
    """Execute the shortest run of each kind here, so that its code is compiled before many processes need it."""
    shortest: dict[tuple[Any, ...], tuple[float, Run]] = {}
    for run, cost in zip(runs, costs_of(runs), strict=True):
        settings = run.common
        kind = (run.experiment, settings.get("protocol"), settings.get("messages", 0) > 0, settings.get("transport"))
        if kind not in shortest or cost < shortest[kind][0]:
            shortest[kind] = (cost, run)
    for _, run in shortest.values():
        # The same error will occur in the worker, which records it.
        with suppress(Exception):
            experiment_named(run.experiment).run(run.settings)


_SUMMARY_ORDER = [(name, "ascending") for name in ("study", "point", "metric")]


def _analyse(session: Any, store: Store, outcome: StudyOutcome) -> None:
    from cubecast.lab.spark.analysis import analyse

    if not outcome.runs:
        return
    outcome.cpu_seconds = analyse(session, store, outcome.plans, outcome.size, outcome.runs)
    outcome.summary = _read_table(store, "summary", SUMMARY, outcome.plans).sort_by(_SUMMARY_ORDER)
    outcome.findings = _read_table(store, "findings", FINDINGS, outcome.plans)
    outcome.failures = failures(store, outcome.runs)


def _read_table(store: Store, name: str, schema: pa.Schema, plans: list[Plan]) -> pa.Table:
    """The rows of these studies in a table on disk."""
    if not store.table(name).exists():  # nothing was written, and a store has no empty folders
        return schema.empty_table()
    studies = partitioning(pa.schema([("study", pa.string())]), flavor="hive")
    found = dataset_of(store.table(name), schema=schema, partitioning=studies)
    return found.to_table(filter=field_named("study").isin([plan.id for plan in plans]))


@contextmanager
def _session(
    store: Store, master: str | None, conf: dict[str, str] | None, *, heavy: bool, meanwhile: Callable[[], None]
) -> Iterator[Any]:
    from cubecast.lab.spark.session import one_line, session

    started = session(master, heavy=heavy, conf=conf, meanwhile=meanwhile)
    with started as running, one_line("the study", kept=store.runs):
        yield running


def _versions(session: Any) -> dict[str, str]:
    from cubecast.lab.spark.cluster import versions

    return versions(session)


def _spark() -> ModuleType:
    """Spark is needed only to run studies, not to list them."""
    with named("a study"):
        from cubecast.lab.spark import studies
    return studies

"""Run studies: plans in, tables out. The command line calls this module."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from cubecast.errors import LocalProtocolError, PlanError
from cubecast.lab.experiments import experiment_named
from cubecast.lab.load_plan import load_plan, load_plans
from cubecast.lab.pending_runs import PendingRuns, failures, find_pending_runs
from cubecast.lab.plan import Plan
from cubecast.lab.runs import Run, runs_of
from cubecast.lab.store import Store

Progress = Callable[[int, int], None]
Say = Callable[[str], None]


@dataclass(kw_only=True)
class StudyOutcome:
    """The result of a study, in tables of the driver."""

    plans: list[Plan]
    size: str
    runs: list[Run]
    done_now: int = 0
    seconds: float = 0.0
    values: pa.Table | None = None
    summary: pa.Table | None = None
    failures: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def project_plans() -> Path:
    """The project's own plans: in the current folder, or in the checkout that this package runs from."""
    here = Path("plans")
    return here if here.is_dir() else Path(__file__).resolve().parents[3] / "plans"


def choose_plans(folder: Path, names: list[str], say: Say = lambda _: None) -> list[Plan]:
    """The plans of these names or files, or all that are available; says which of all are not."""
    if not names:
        plans = load_plans(folder)
        for plan in plans:
            if plan.missing:
                say(f"study {plan.id} left out: no protocol {', '.join(plan.missing)} here")
        return [plan for plan in plans if not plan.missing]
    by_name = _plans_by_name(folder, names)
    for name in names:
        if name not in by_name:
            raise PlanError(f"unknown study {name!r}: choose one of {', '.join(by_name)}")
        if by_name[name].missing:
            raise PlanError(f"study {name} is not available: no protocol {', '.join(by_name[name].missing)} here")
    return [by_name[name] for name in dict.fromkeys(names)]


def _plans_by_name(folder: Path, names: list[str]) -> dict[str, Plan]:
    """The plans of the folder by their names, and those in files of their own by the files."""
    files = {name: load_plan(Path(name)) for name in names if name.endswith(".toml")}
    return files if len(files) == len(set(names)) else files | {plan.id: plan for plan in load_plans(folder)}


def runs_of_all(plans: list[Plan], size: str) -> list[Run]:
    """The runs of several plans; what two of them share is in it twice, and is done once."""
    return [run for plan in plans for run in runs_of(plan, size)]


def run_studies(
    plans: list[Plan],
    size: str,
    store: Store,
    *,
    master: str,
    progress: Progress,
    say: Say,
    retry_failed: bool = False,
    only_read: bool = False,
) -> StudyOutcome:
    """Do what is not done yet, then aggregate all of it. With `only_read` nothing is run."""
    spark = _spark()
    store.make()
    outcome = StudyOutcome(plans=plans, size=size, runs=runs_of_all(plans, size))
    began = time.perf_counter()
    with store.alone():
        for path in store.set_aside_unreadable():
            say(f"{path.name}: damaged, set aside; its runs are done again")
        store.clear_unfinished()
        found = find_pending_runs(store, outcome.runs, retry_failed=retry_failed)
        _report_pending(found, say)
        if only_read and not found.done:
            return outcome  # there is nothing to start Spark for
        missing = [] if only_read else found.pending
        with _session(master, meanwhile=lambda: rehearse(missing)) as session, spark.one_line(store):
            outcome.versions = spark.versions(session)
            if missing:
                spark.execute(session, store, missing, progress)
            outcome.done_now = len(missing)
            _aggregate(spark, session, store, outcome)
            outcome.seconds = time.perf_counter() - began
    return outcome


def _report_pending(found: PendingRuns, say: Say) -> None:
    if found.other_code:
        say(f"{found.other_code} results on disk were produced by a different code version: kept, ignored")
    if found.other_runs:
        say(f"{found.other_runs} results on disk belong to runs outside these plans: kept, ignored")
    say(f"{found.done + len(found.pending)} runs, of which {found.done} are done already")


def rehearse(runs: list[Run]) -> None:
    """Do the shortest run of each kind here, so that what it needs is compiled before many processes ask for it."""
    shortest: dict[tuple[Any, ...], tuple[float, Run]] = {}
    for run in runs:
        settings = run.settings
        kind = (run.experiment, settings.get("protocol"), settings.get("messages", 0) > 0, settings.get("transport"))
        cost = experiment_named(run.experiment).cost(settings)
        if kind not in shortest or cost < shortest[kind][0]:
            shortest[kind] = (cost, run)
    for _, run in shortest.values():
        # An error here happens again in the worker, which records it.
        with suppress(Exception):
            experiment_named(run.experiment).run(run.settings)


_SUMMARY_ORDER = [(name, "ascending") for name in ("study", "point", "metric")]


def _aggregate(spark: ModuleType, session: Any, store: Store, outcome: StudyOutcome) -> None:
    if not outcome.runs:
        return
    values = spark.measured(session, store, outcome.runs).cache()
    outcome.values = spark.collect(values)
    outcome.summary = spark.collect(spark.summarise(session, values)).sort_by(_SUMMARY_ORDER)
    outcome.failures = failures(store, outcome.runs)


def _session(master: str, *, meanwhile: Callable[[], None]) -> AbstractContextManager[Any]:
    from cubecast.lab.spark.session import session

    return session(master, meanwhile=meanwhile)


def _spark() -> ModuleType:
    """Spark is needed only to run studies, not to list them."""
    try:
        from cubecast.lab.spark import studies
    except ImportError as error:
        raise LocalProtocolError(f"studies need PySpark ({error}): pip install 'cubecast[lab]'") from error
    return studies

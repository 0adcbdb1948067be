"""Simulate trials: in this process, or on Spark. Every result is kept in a store and computed once.

The store is that of a study (`lab.store`): a plan with the same candidates finds its runs already finished.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.errors import LocalProtocolError
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.workload import EXPERIMENT, Workload, read_observation
from cubecast.lab.batch import run_row
from cubecast.lab.pending_runs import results_on_disk
from cubecast.lab.runs import Run
from cubecast.lab.schema import OK, RUNS
from cubecast.lab.store import Store
from cubecast.lab.task_file import pending_row
from cubecast.lab.whole_file import write_whole

LOCAL_MEMBERS_MAX = 200
"""In larger groups simulations are done on Spark, unless the user decides otherwise."""
FILE_SECONDS = 2.0
"""The most work that is lost when the process is killed."""

Progress = Callable[[int, str], None]
"""Called with the number of finished simulations, and the next one."""
Key = tuple[str, str]


class Trials:
    """Simulates, keeps and reads results."""

    def __init__(self, store: Store, workload: Workload, progress: Progress, *, spark: Any = None) -> None:
        """`spark` is a session, or None to simulate here."""
        self._store = store
        self._workload = workload
        self._progress = progress
        self._spark = spark
        self._settings: dict[Any, dict[str, Any]] = {}
        self._known: dict[Key, tuple[dict[str, float], float]] = {}
        self._read()
        self.done_now = 0

    def measure(self, results: Results, trials: list[Trial]) -> None:
        """Simulate the trials that are not known yet, and add all of them to the results."""
        runs = {trial: self._run(trial) for trial in trials}
        missing = [run for run in runs.values() if (run.id, run.code) not in self._known]
        if missing:
            (self._simulate if self._spark is None else self._simulate_on_spark)(missing)
        for trial, run in runs.items():
            metrics, cpu_s = self._known[run.id, run.code]
            members, delta_ms = self._workload.question.members, trial.candidate.delta_ms
            results.add(trial, read_observation(metrics, members=members, delta_ms=delta_ms), cpu_s=cpu_s)

    def _run(self, trial: Trial) -> Run:
        if trial.candidate not in self._settings:
            self._settings[trial.candidate] = self._workload.settings(trial.candidate)
        return Run(
            study="advice", experiment=EXPERIMENT, common=self._settings[trial.candidate], seed=trial.seed, point={}
        )

    def _simulate(self, runs: list[Run]) -> None:
        rows: list[dict[str, Any]] = []
        seconds = 0.0
        for run in runs:
            self._progress(self.done_now, _described(run))
            row = run_row(pending_row(run))
            rows.append(row)
            seconds += row["wall_seconds"]
            self.done_now += 1
            if seconds > FILE_SECONDS:
                self._keep(rows)
                rows, seconds = [], 0.0
        self._keep(rows)

    def _simulate_on_spark(self, runs: list[Run]) -> None:
        from cubecast.lab.spark.session import one_line
        from cubecast.lab.spark.studies import execute

        before = self.done_now
        with one_line("the advisor", kept=self._store.runs):
            execute(self._spark, self._store, runs, lambda done, _: self._progress(before + done, "on Spark"))
        self.done_now += len(runs)
        self._read()
        lost = sum((run.id, run.code) not in self._known for run in runs)
        if lost:
            raise LocalProtocolError(
                f"{lost} of {len(runs)} results did not arrive in {self._store.runs}: do all workers write to it?"
            )

    def _keep(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=RUNS), file, write_page_checksum=True)
        write_whole(self._store.runs / f"{rows[0]['run_id']}-{rows[0]['code']}.parquet", file.getvalue())
        for row in rows:
            self._note(row["run_id"], row["code"], row["status"], dict(row["metrics"]), row["cpu_seconds"])

    def _read(self) -> None:
        for run_id, code, status, metrics, cpu_s in results_on_disk(self._store, "metrics", "cpu_seconds"):
            self._note(run_id, code, status, dict(metrics), cpu_s)

    def _note(self, run_id: str, code: str, status: str, metrics: dict[str, float], cpu_s: float | None) -> None:
        self._known[run_id, code] = (metrics if status == OK else {}, cpu_s or 0.0)


def _described(run: Run) -> str:
    return f"{run.common['protocol']}, Δ {run.common['delta_ms']:g} ms, seed {run.seed}"


@contextmanager
def spark_session(master: str | None, conf: dict[str, str] | None, *, wanted: bool) -> Iterator[Any]:
    """A session of Spark for the whole race, or None."""
    if not wanted:
        yield None
        return
    from cubecast.extras import named

    with named("the advisor on Spark"):
        from cubecast.lab.spark.session import session
    with session(master, conf=conf) as running:
        yield running

"""The overhead of Spark: many short runs on local[2], compared with the runs' own time and a plain process pool.

    python bench/spark_overhead.py [--runs 2000] [--milliseconds 50] [--cores 2]

The ideal is the sum of the runs' own seconds divided by the cores. Both contenders execute the same runs with the same
function. Spark's time is that of a whole study, as in `cubecast study run`: start, runs, results committed to disk,
statistics, stop. Compiled kernels and Java's archive of classes, which are made once for all studies, exist already.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from cubecast.lab.batch import run_row
from cubecast.lab.load_plan import load_plan
from cubecast.lab.plan import Plan
from cubecast.lab.runs import Run, canonical, runs_of
from cubecast.lab.spark.warm import make_archive
from cubecast.lab.store import Store
from cubecast.lab.study import run_studies
from cubecast.sim.warm import warm

ROUNDS_TRIED = 50
PLAN = """\
id = "overhead"
paper = "own"
title = "many short runs"
protocols = ["cube_full_dist"]
[fixed]
network = "random:degree=5"
rounds = {rounds}
[sweep]
members = [64]
[quick]
repeats = {runs}
[full]
repeats = {runs}
[[figure]]
id = "1"
title = "RTT"
x = "members"
y = "rtt_last_ms"
"""


def plan_of(runs: int, rounds: int) -> Plan:
    """A study of `runs` runs, whose length depends on their rounds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "overhead.toml"
        path.write_text(PLAN.format(runs=runs, rounds=rounds))
        return load_plan(path)


def row(run: Run) -> dict[str, object]:
    """The row of a run for a worker."""
    return {"run_id": run.id, "code": "", "experiment": run.experiment, "settings": canonical(run.settings)}


def rounds_for(seconds: float) -> int:
    """The number of rounds that take about this long on this machine."""
    [tried] = runs_of(plan_of(1, ROUNDS_TRIED), "quick")
    run_row(row(tried))
    # Processor time, because a busy machine would make the runs too short.
    took = min(float(run_row(row(tried))["cpu_seconds"]) for _ in range(3))
    return max(1, round(ROUNDS_TRIED * seconds / took))


def on_spark(plan: Plan, cores: int) -> tuple[float, float, float]:
    """Wall seconds of the whole study and before the first run began, and the runs' own seconds."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        began, began_unix_s = time.perf_counter(), time.time()
        run_studies(
            [plan],
            "quick",
            store,
            master=f"local[{cores}]",
            progress=lambda _done, _total: None,
            say=lambda _line: None,
        )
        wall = time.perf_counter() - began
        columns = ["wall_seconds", "finished_unix_s"]
        rows = [
            one
            for path in store.runs.glob("*.parquet")
            for one in pq.read_table(path, columns=columns, partitioning=None).to_pylist()
        ]
    assert len(rows) == plan.sizes["quick"].repeats
    first = min(one["finished_unix_s"] - one["wall_seconds"] for one in rows)
    return wall, first - began_unix_s, sum(one["wall_seconds"] for one in rows)


def on_pool(plan: Plan, cores: int) -> tuple[float, float, float]:
    """The same measurements with a process pool."""
    runs = [row(run) for run in runs_of(plan, "quick")]
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        pool.map(run_row, runs[:cores], chunksize=1)
        started = time.perf_counter()
        rows = pool.map(run_row, runs, chunksize=8)
        ended = time.perf_counter()
    return ended - began, started - began, sum(one["wall_seconds"] for one in rows)


def main() -> None:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--milliseconds", type=float, default=50.0)
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    warm()
    make_archive()
    rounds = rounds_for(asked.milliseconds / 1e3)
    plan = plan_of(asked.runs, rounds)
    print(f"{asked.runs} runs of {rounds} rounds, about {asked.milliseconds:g} ms each, on {asked.cores} cores")
    print(f"{'':10}{'wall s':>9}{'start s':>9}{'own s/cores':>13}{'wall/ideal':>12}{'without start':>15}")
    for name, measure in (("Spark", on_spark), ("pool", on_pool)):
        wall, start, own = measure(plan, asked.cores)
        ideal = own / asked.cores
        print(f"{name:10}{wall:9.1f}{start:9.1f}{ideal:13.1f}{wall / ideal:12.2f}{(wall - start) / ideal:15.2f}")


if __name__ == "__main__":
    main()

"""What Spark costs: many short runs on local[2], against the time the runs themselves take and a plain process pool.

    python bench/spark_overhead.py [--runs 2000] [--milliseconds 50] [--cores 2]

The ideal is the sum of the runs' own seconds divided by the cores. Both contenders do the same runs with the same
function; start-up is counted, and shown apart.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from cubecast.lab.batch import run_row
from cubecast.lab.runs import Run, canonical
from cubecast.lab.spark.session import session
from cubecast.lab.spark.studies import execute, take_stock
from cubecast.lab.store import Store
from cubecast.sim.warm import warm

ROUNDS_TRIED = 50
MEMBERS = 64


def settings(rounds: int, seed: int) -> dict[str, object]:
    """A run whose length is set by its rounds."""
    return {
        "protocol": "cube_full_dist",
        "members": MEMBERS,
        "network": "random:degree=5",
        "rounds": rounds,
        "seed": seed,
    }


def row(run: Run) -> dict[str, object]:
    """A run as a worker gets it."""
    return {"run_id": run.id, "code": "", "experiment": run.experiment, "settings": canonical(run.settings)}


def rounds_for(seconds: float) -> int:
    """So many rounds take about so long on this machine."""
    tried = Run(study="bench", experiment="simulate", settings=settings(ROUNDS_TRIED, 0), point={})
    run_row(row(tried))
    # Processor time, because a busy machine would make the runs too short.
    took = min(float(run_row(row(tried))["cpu_seconds"]) for _ in range(3))
    return max(1, round(ROUNDS_TRIED * seconds / took))


def on_spark(runs: list[Run], cores: int) -> tuple[float, float, float]:
    """Wall seconds in all, of which to start, and the runs' own seconds."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.make()
        began = time.perf_counter()
        with session(f"local[{cores}]") as spark:
            pending = take_stock(spark, store, runs).pending
            started = time.perf_counter()
            execute(spark, store, pending, lambda _done, _total: None)
            ended = time.perf_counter()
        seconds = [value for path in store.runs.glob("*.parquet") for value in _seconds(path)]
    assert len(seconds) == len(runs)
    return ended - began, started - began, sum(seconds)


def _seconds(path: Path) -> list[float]:
    table = pq.read_table(path, columns=["wall_seconds"], partitioning=None)
    return [float(value) for value in table.column("wall_seconds").to_pylist()]


def on_pool(runs: list[Run], cores: int) -> tuple[float, float, float]:
    """The same with a process pool."""
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        pool.map(run_row, [row(run) for run in runs[:cores]], chunksize=1)
        started = time.perf_counter()
        rows = pool.map(run_row, [row(run) for run in runs], chunksize=8)
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
    rounds = rounds_for(asked.milliseconds / 1e3)
    runs = [
        Run(study="bench", experiment="simulate", settings=settings(rounds, seed), point={})
        for seed in range(asked.runs)
    ]
    print(f"{asked.runs} runs of {rounds} rounds, about {asked.milliseconds:g} ms each, on {asked.cores} cores")
    print(f"{'':10}{'wall s':>9}{'start s':>9}{'own s/cores':>13}{'wall/ideal':>12}{'without start':>15}")
    for name, measure in (("Spark", on_spark), ("pool", on_pool)):
        wall, start, own = measure(runs, asked.cores)
        ideal = own / asked.cores
        print(f"{name:10}{wall:9.1f}{start:9.1f}{ideal:13.1f}{wall / ideal:12.2f}{(wall - start) / ideal:15.2f}")


if __name__ == "__main__":
    main()

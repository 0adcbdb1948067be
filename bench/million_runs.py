"""A report on a million runs: its duration, and the memory of the driver and of Java.

    python bench/million_runs.py [--runs 1000000] [--cores 2] [--metrics 33]

The results are generated: the simulator would need days for them, and the pipeline after it does not depend on them.
Everything after the runs is measured as in `cubecast study report`: finished runs, values, summary, findings, verdicts,
tables and charts (without pictures).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.lab.load_plan import load_plan
from cubecast.lab.plan import Plan
from cubecast.lab.report import write_report
from cubecast.lab.runs import Run, canonical, runs_of
from cubecast.lab.schema import OK, RUNS
from cubecast.lab.store import Store
from cubecast.lab.study import run_studies
from cubecast.lab.versions import library_versions

RUNS_PER_FILE = 10_000
WATCH_SECONDS = 0.5
POINTS = 2 * 10 * 10
PLAN = """\
id = "million"
paper = "own"
title = "many runs"
protocols = ["coord", "cube_full_dist"]
[fixed]
network = "random:degree=5"
[sweep]
members = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
loss = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]
[quick]
repeats = {repeats}
[full]
repeats = {repeats}
[[figure]]
id = "1"
title = "RTT"
x = "members"
y = "rtt_last_ms"
panel = "loss"
[[claim]]
id = "faster"
text = "CubeFullDist is faster than Coord."
source = "here"
readings = ["loss"]
figures = ["1"]
[[claim.test]]
kind = "ratio"
metric = "rtt_last_ms"
top = {{ protocol = "cube_full_dist" }}
bottom = {{ protocol = "coord" }}
below = 1.0
[[claim.test]]
kind = "growth"
metric = "messages"
between = [0.5, 1.5]
"""


def write_results(store: Store, plan: Plan, metrics: int) -> int:
    """Write results of all runs of the plan, in files of some thousand; return their number."""
    store.make()
    runs = runs_of(plan, "quick")
    random = np.random.default_rng(1)
    names = [*plan.metrics, *(f"metric_{number}" for number in range(metrics - len(plan.metrics)))]
    for start in range(0, len(runs), RUNS_PER_FILE):
        own = runs[start : start + RUNS_PER_FILE]
        pq.write_table(_results(own, names, random), store.runs / f"part-{start:08}.parquet", compression="zstd")
    return len(runs)


def _results(runs: list[Run], names: list[str], random: np.random.Generator) -> pa.Table:
    count = len(runs)
    sizes = np.array([run.point["members"] for run in runs], float)
    values = sizes[:, None] * random.lognormal(0.0, 0.1, (count, len(names)))
    offsets = np.arange(0, count * len(names) + 1, len(names), dtype=np.int32)
    columns: dict[str, Any] = {
        "run_id": [run.id for run in runs],
        "code": [run.code for run in runs],
        "experiment": [run.experiment for run in runs],
        "settings": [canonical(run.settings) for run in runs],
        "seed": pa.array([run.seed for run in runs], pa.int64()),
        "status": [OK] * count,
        "error": pa.nulls(count, pa.string()),
        "metrics": pa.MapArray.from_arrays(offsets, pa.array(names * count), pa.array(values.reshape(-1))),
        "wall_seconds": np.ones(count),
        "cpu_seconds": np.ones(count),
        "versions": pa.array([list(library_versions().items())] * count, RUNS.field("versions").type),
        "host": ["here"] * count,
        "finished_unix_s": np.zeros(count),
    }
    return pa.table([columns[field.name] for field in RUNS], schema=RUNS)


def java_peak_mib() -> float:
    """The peak memory of the Java of this process so far; 0 without Java."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if fields["Name"].strip() == "java" and int(fields["PPid"]) == os.getpid():
            return int(fields["VmHWM"].split()[0]) / 1024
    return 0.0


def report(folder: str, runs: int, cores: int) -> None:
    """Write the report and print its cost; runs in a separate process, whose memory is that of the report."""
    began = time.perf_counter()
    seen = [0.0]

    def watch() -> None:
        while True:
            seen.append(max(seen[-1], java_peak_mib()))
            time.sleep(WATCH_SECONDS)

    def say(what: str) -> None:
        print(f"{time.perf_counter() - began:8.1f} s  {what}", flush=True)

    threading.Thread(target=watch, daemon=True).start()
    outcome = run_studies(
        [_plan(Path(folder), runs)],
        "quick",
        Store(Path(folder) / "out"),
        master=f"local[{cores}]",
        progress=lambda _done, _total: None,
        say=say,
        only_read=True,
    )
    say("tables written")
    write_report(outcome, Store(Path(folder) / "out"), pictures=False)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    say(f"report written; at most {own:.0f} MiB in the driver, {seen[-1]:.0f} MiB in Java")


def _plan(folder: Path, runs: int) -> Plan:
    path = folder / "million.toml"
    path.write_text(PLAN.format(repeats=runs // POINTS))
    return load_plan(path)


def main() -> None:
    """Generate the results, then report on them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--metrics", type=int, default=33)
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        count = write_results(Store(Path(folder) / "out"), _plan(Path(folder), asked.runs), asked.metrics)
        print(f"{count:,} results of {asked.metrics} metrics generated in {time.perf_counter() - began:.0f} s")
        sys.stdout.flush()
        child = multiprocessing.get_context("spawn").Process(target=report, args=(folder, asked.runs, asked.cores))
        child.start()
        child.join()


if __name__ == "__main__":
    main()

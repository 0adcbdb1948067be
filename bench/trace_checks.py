"""The speed of checking traces on Spark, on one core and on two.

    python bench/trace_checks.py [--traces 8] [--members 128] [--cores 1,2]

One simulated run is written once and linked under several names, so that every trace is judged. The first pass warms up
Java and the workers; the fastest of the next three counts. In addition to the wall time the table has the processor
time of everything that Spark started, which is meaningful on a shared machine too. One process alone checks one trace
after another.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cubecast.lab.spark.session import session
from cubecast.lab.spark.tracefiles import find_traces
from cubecast.lab.spark.traces import check_traces
from cubecast.sim.simulate import simulate
from cubecast.trace.checkers import check_all
from cubecast.trace.files import read_trace

PASSES = 3
TICKS = os.sysconf("SC_CLK_TCK")


def write_traces(folder: Path, count: int, members: int) -> int:
    """Write the traces; return the number of events of all of them."""
    first = folder / "0.parquet"
    simulate("cube_full_dist", members=members, network="random:degree=5", messages=20, rounds=10, trace=first)
    for number in range(1, count):
        os.link(first, folder / f"{number}.parquet")
    return sum(trace.events for trace in find_traces(folder))


def processor_seconds() -> float:
    """Processor time of this process and all processes that it started, finished or not."""
    parents, used = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(place.name)] = int(fields[1])
        used[int(place.name)] = sum(int(field) for field in fields[11:15]) / TICKS
    return sum(seconds for pid, seconds in used.items() if _is_ours(pid, parents))


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parents.get(pid, 0)
    return False


def on_spark(folder: Path, cores: int) -> tuple[float, float]:
    """Wall and processor seconds of one pass, after a warm-up pass."""
    traces = find_traces(folder)
    with session(f"local[{cores}]", heavy=True) as spark:

        def check() -> None:
            assert check_traces(spark, traces) == []

        check()
        return fastest(check)


def fastest(check: Callable[[], None]) -> tuple[float, float]:
    """Wall and processor seconds of the fastest of some passes."""
    passes = []
    for _ in range(PASSES):
        began, used = time.perf_counter(), processor_seconds()
        check()
        passes.append((time.perf_counter() - began, processor_seconds() - used))
    return min(passes)


def in_one_process(folder: Path) -> tuple[float, float]:
    """Wall and processor seconds without Spark."""
    paths = sorted(folder.glob("*.parquet"))

    def check() -> None:
        for path in paths:
            assert check_all(read_trace(path)).ok

    assert check_all(read_trace(paths[0])).ok
    return fastest(check)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=8)
    parser.add_argument("--members", type=int, default=128)
    parser.add_argument("--cores", default="1,2")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = write_traces(folder, asked.traces, asked.members)
        print(f"{asked.traces} traces, {events:,} events")
        print(f"{'':16}{'wall s':>9}{'processor s':>13}{'events/s':>13}{'events/processor s':>20}")
        rows = [("one process", *in_one_process(folder))]
        rows += [(f"Spark local[{cores}]", *on_spark(folder, int(cores))) for cores in asked.cores.split(",")]
        for what, wall, used in rows:
            print(f"{what:16}{wall:9.2f}{used:13.2f}{events / wall:13,.0f}{events / used:20,.0f}")


if __name__ == "__main__":
    main()

"""The cost of a whole round at the sizes of the paper: network, routes and run, and the memory of the process.

    python bench/rounds.py                 CubeFullDist at n = 1900, FullDist at n = 400 and 1000, m = 50, p = 0.02
    python bench/rounds.py --growth        nanoseconds per packet-hop of the storm from n = 100 to 1900

Every job runs in its own process on a warm cache (`cubecast warm`); the best of several repetitions counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

JOBS = (("cube_full_dist", 1900), ("full_dist", 400), ("full_dist", 1000), ("coord", 1900), ("s_coord", 1900))
GROWTH_MEMBERS = (100, 200, 500, 1000, 1900)

# Runs in its own process, so that its peak memory is the job's.
ONE_JOB = """
import json, resource, sys, time
from cubecast.sim.simulate import simulate
protocol, members = sys.argv[1], int(sys.argv[2])
simulate(protocol, members=8, network="random:degree=3")
began = time.perf_counter()
result = simulate(protocol, members=members, network="random:p=0.02", seed=0)
print(json.dumps({
    "job_s": time.perf_counter() - began,
    "run_s": result.wall_seconds,
    "hops": result.hops,
    "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def best_job(protocol: str, members: int, repeat: int) -> dict[str, float]:
    """The fastest of several runs of one job, each in its own process."""
    results: list[dict[str, float]] = []
    for _ in range(repeat):
        command = [sys.executable, "-c", ONE_JOB, protocol, str(members)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        results.append(json.loads(ended.stdout))
    return min(results, key=lambda result: result["job_s"])


def print_jobs(repeat: int) -> None:
    print(f"{'protocol':<16} {'n':>5} {'job s':>8} {'run s':>8} {'hops':>10} {'M hops/s':>9} {'peak MiB':>9}")
    for protocol, members in JOBS:
        best = best_job(protocol, members, repeat)
        rate = best["hops"] / best["run_s"] / 1e6
        print(
            f"{protocol:<16} {members:>5} {best['job_s']:>8.2f} {best['run_s']:>8.2f} {best['hops']:>10.0f} "
            f"{rate:>9.2f} {best['rss_mib']:>9.0f}"
        )


def print_growth(repeat: int) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from bench.storm import storm

    first = 0.0
    print(f"{'n':>5} {'ns/hop':>9} {'against n = 100':>16}")
    for members in GROWTH_MEMBERS:
        cost_ns = 1e9 / storm(members, peers=(), repeat=repeat)[0].hops_per_s
        first = first or cost_ns
        print(f"{members:>5} {cost_ns:>9.1f} {cost_ns / first:>15.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", action="store_true", help="cost of a packet-hop as the group grows")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if options.growth:
        print_growth(options.repeat)
    else:
        print_jobs(options.repeat)


if __name__ == "__main__":
    main()

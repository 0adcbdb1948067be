"""The benefit of linking: compile time, size of the code and speed, with our pipeline and with Numba's own.

    python bench/jit.py [--repeat 3] [--protocols cube_full_dist timestamp]

Each variant (`CUBECAST_JIT=linked` and `plain`) begins with an empty cache, in a separate process; the variants
alternate. The table has the best of the repeats: processor seconds until the first simulation of each protocol ended
(including compilation), megabytes of compiled code, and packet-hops per second of a warm simulation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

VARIANTS = ("linked", "plain")
PROGRAM = """
import json, resource, sys
import cubecast
settings = dict(members=200, network="random:p=0.04", seed=1, rounds=3, measure=False)
for name in sys.argv[1:]:
    data = {"messages": 5} if next(one for one in cubecast.list_protocols() if one.name == name).carries_data else {}
    cubecast.simulate(name, **settings, **data)
used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cold_s = sum(one.ru_utime + one.ru_stime for one in used)
warm = [cubecast.simulate(sys.argv[1], **settings | {"rounds": 20}).packet_hops_per_second for _ in range(3)]
print(json.dumps({"cold_s": cold_s, "hops_per_s": max(warm)}))
"""


def measure(variant: str, protocols: list[str]) -> dict[str, float]:
    """Run one process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CUBECAST_JIT": variant, "CUBECAST_CACHE_DIR": folder}
        command = [sys.executable, "-c", PROGRAM, *protocols]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout)
        found["code_mb"] = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
    return found


def main() -> None:
    """Measure the variants alternately and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--protocols", nargs="+", default=["cube_full_dist", "s_coord", "timestamp"])
    options = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for turn in range(options.repeat):
        for variant in VARIANTS:
            print(f"turn {turn + 1} of {options.repeat}: {variant}", file=sys.stderr, flush=True)
            runs[variant].append(measure(variant, options.protocols))
    print("| variant | until the first results, processor s | compiled code, MB | packet-hops/s |")
    print("|---|---|---|---|")
    for variant, found in runs.items():
        cold_s = min(one["cold_s"] for one in found)
        hops = max(one["hops_per_s"] for one in found)
        print(f"| {variant} | {cold_s:.1f} | {found[0]['code_mb']:.1f} | {hops / 1e6:.1f} M |")


if __name__ == "__main__":
    main()

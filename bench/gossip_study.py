"""The gossip study of guo §5.3.1: 200 members, 50 senders, the WAN tree at 30 kb/s.

`python bench/gossip_study.py` executes its 12,000 runs: dense and sparse, three loss models, subset sizes 1 … 5, steps
of 1 … 20 s, twenty seeds. `--sample K` executes one run in K and estimates how long all would take. It prints the mean
TPR for each step interval and subset size, the fastest step intervals, the standard deviations and the runs that were
not stable within ten minutes; `--csv` writes every run.

Loss models: I no loss; II queues of 64 messages per link, and two random gossip messages lost at their senders in every
step; III, the intermediate one, only those two.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import random
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from cubecast.errors import SimulationError
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario

MEMBERS, SENDERS, SEEDS = 200, 50, 20
NETWORKS = {"dense": "wan-tree", "sparse": "wan-tree:nodes=1000"}
LOSSES = {"I": (0, 0), "II": (64, 2), "III": (0, 2)}
SUBSETS, STEPS_S = range(1, 6), range(1, 21)
UNTIL_MS = 600_000.0  # a round that takes longer is a bad sample


class Run(NamedTuple):
    """One run, by its place in the study."""

    network: str
    losses: str
    seed: int
    subset: int
    step_s: int


class Measured(NamedTuple):
    """The result of a run; NaN for a bad sample."""

    tpr_s: float
    steps: float
    queue_mean: float
    queue_max: float
    drops: float


def study() -> Iterator[Run]:
    """All runs, network by network."""
    for network in NETWORKS:
        for seed in range(SEEDS):
            for losses in LOSSES:
                for subset in SUBSETS:
                    for step_s in STEPS_S:
                        yield Run(network, losses, seed, subset, step_s)


@lru_cache(maxsize=2)
def _network(spec: str, seed: int) -> Network:
    return build_network(spec, members=MEMBERS, seed=seed)


def measure(run: Run) -> Measured:
    """Simulate one run."""
    queue_limit, lost = LOSSES[run.losses]
    spec = NETWORKS[run.network]
    scenario = Scenario.of(
        "gossip",
        members=MEMBERS,
        senders=SENDERS,
        network=spec,
        seed=run.seed,
        subset=run.subset,
        step_s=float(run.step_s),
        queue_limit=queue_limit,
        losses_per_step=lost,
        until_ms=UNTIL_MS,
    )
    try:
        found = run_scenario(scenario, _network(spec, run.seed))
    except SimulationError:
        return Measured(*[math.nan] * 5)
    return Measured(found.rtt_first_ms / 1e3, found.steps or math.nan, found.queue_mean, found.queue_max, found.drops)


def main() -> None:
    """Read the options, run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=1, help="make one run in so many, drawn at random")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    runs = list(study())
    if options.sample > 1:
        chosen = random.Random(0).sample(range(len(runs)), len(runs) // options.sample)
        runs = [runs[place] for place in sorted(chosen)]
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        found = dict(zip(runs, pool.imap(measure, runs, chunksize=25), strict=True))
    wall_s = time.perf_counter() - began
    if options.csv:
        _write(options.csv, found)
    _report(found)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = usage.ru_utime + usage.ru_stime
    print(
        f"{len(runs)} runs in {wall_s:.0f} s, {cpu_s:.0f} s of CPU, {usage.ru_maxrss / 1024:.0f} MiB a worker at most"
    )
    if options.sample > 1:
        print(f"all 12000 on two free cores: {cpu_s * options.sample / 2:.0f} s")


def _write(path: Path, found: dict[Run, Measured]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*Run._fields, *Measured._fields])
        rows.writerows([*run, *measured] for run, measured in found.items())


def _report(found: dict[Run, Measured]) -> None:
    points: dict[tuple[str, str, int, int], list[Measured]] = defaultdict(list)
    for run, measured in found.items():
        if not math.isnan(measured.tpr_s):
            points[run.network, run.losses, run.subset, run.step_s].append(measured)
    for network in NETWORKS:
        for losses in LOSSES:
            _table(network, losses, points)
    _spread("TPR", [[one.tpr_s for one in samples] for samples in points.values()])
    _spread("mean queue", [[one.queue_mean for one in samples] for samples in points.values()])
    bad = sum(math.isnan(one.tpr_s) for one in found.values())
    print(f"not stable within ten minutes: {bad} of {len(found)}")


def _table(network: str, losses: str, points: dict[tuple[str, str, int, int], list[Measured]]) -> None:
    """Mean TPR; the fastest step interval of each subset size, and the window within 10 % of it."""
    print(f"\n{network}, simulation {losses}: mean TPR in s by step interval (down) and subset size (across)")
    best: dict[int, list[tuple[float, int]]] = {subset: [] for subset in SUBSETS}
    for step_s in STEPS_S:
        cells = []
        for subset in SUBSETS:
            samples = points.get((network, losses, subset, step_s), [])
            value = mean(one.tpr_s for one in samples) if samples else math.nan
            cells.append(f"{value:7.1f}")
            if samples:
                best[subset].append((value, step_s))
        print(f"{step_s:4d} " + " ".join(cells))
    for subset, values in best.items():
        if values:
            least, step_s = min(values)
            window = [step for value, step in values if value <= 1.1 * least]
            print(f"  subset {subset}: {least:.1f} s at {step_s} s; within 10 % from {min(window)} to {max(window)} s")


def _spread(name: str, samples: list[list[float]]) -> None:
    ratios = sorted(stdev(values) / mean(values) for values in samples if len(values) > 2 and mean(values) > 0)
    if ratios:
        print(f"standard deviation / mean of {name}: median {ratios[len(ratios) // 2]:.1%}, largest {ratios[-1]:.1%}")


if __name__ == "__main__":
    main()

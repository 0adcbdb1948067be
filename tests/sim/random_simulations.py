"""Any range of seeds of all kinds of small random simulations, in parallel, with every checker on.

    python -m tests.sim.random_simulations --first-seed 0 --count 100000 --processes 2

A seed chooses the kind of simulation and draws everything else. Every broken promise and every run that does not end is
printed with its seed, the command that replays it, and the one that runs the seed again. With `--seconds` no seed
begins later than that; the last line names the seed to continue from.

| kind            | draws                                                                                       |
|-----------------|---------------------------------------------------------------------------------------------|
| stability       | all stability protocols under loss, duplication, reordering, crashes, partitions, joins     |
| aggregation     | the same, of cascade and dissemination alone                                                |
| gossip          | gossip where one message in five is lost and one member in ten crashes                      |
| stacks          | stability protocol, reliable multicast family and failure detector together                 |
| churn           | groups with views: joins, leaves, crashes and returns while messages flow                   |
| churn, aggregation | the same, with cascade and dissemination alone                                           |
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from cubecast.sim.scenario import Scenario
from tests.sim import churn_runs, random_gossip, random_scenarios, random_stacks

AGGREGATION = ("cascade", "dissemination")
CHUNK = 25


class Kind(NamedTuple):
    """How a seed becomes a scenario, and what is wrong with its run."""

    draw: Callable[[int], Scenario]
    complaints: Callable[[Scenario], list[str]]


KINDS = {
    "stability": Kind(
        partial(random_scenarios.random_scenario, names=churn_runs.STABILITY), random_scenarios.complaints
    ),
    "aggregation": Kind(partial(random_scenarios.random_scenario, names=AGGREGATION), random_scenarios.complaints),
    "gossip": Kind(random_gossip.random_gossip, random_scenarios.complaints),
    "stacks": Kind(random_stacks.random_stack, random_stacks.complaints),
    "churn": Kind(churn_runs.random_churn, churn_runs.broken_promises),
    "churn, aggregation": Kind(partial(churn_runs.random_churn, stability=AGGREGATION), churn_runs.broken_promises),
}
TURNS = (
    "aggregation",
    "stability",
    "churn, aggregation",
    "aggregation",
    "stability",
    "stacks",
    "aggregation",
    "churn",
    "aggregation",
    "gossip",
)
"""The kind of a seed, by the seed's last digit."""


class Outcome(NamedTuple):
    """One simulation."""

    seed: int
    kind: str
    protocol: str
    command: str
    complaints: list[str]


def run_seed(seed: int) -> Outcome:
    """Draw the scenario of a seed, run it, judge it."""
    kind = TURNS[seed % len(TURNS)]
    scenario = KINDS[kind].draw(seed)
    protocol = scenario.stability_protocol if scenario.has_views else scenario.protocol
    return Outcome(seed, kind, protocol, scenario.command(), KINDS[kind].complaints(scenario))


def run_chunk(seeds: range) -> list[Outcome]:
    """What a process does between two reports."""
    return [run_seed(seed) for seed in seeds]


def outcomes(seeds: range, *, processes: int, seconds: float) -> Iterator[list[Outcome]]:
    """Run the seeds in order, chunk by chunk, until the time is over."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    end = time.monotonic() + seconds
    in_time = (chunk for chunk in chunks if time.monotonic() < end)
    if processes == 1:
        yield from map(run_chunk, in_time)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        while block := [chunk for _, chunk in zip(range(processes), in_time, strict=False)]:
            yield from pool.imap(run_chunk, block)


def describe(outcome: Outcome) -> str:
    """A failed simulation: what is wrong with it, and how to run it again."""
    lines = [f"seed {outcome.seed} ({outcome.kind}): {line}" for line in outcome.complaints[:3]]
    again = f"python -m tests.sim.random_simulations --first-seed {outcome.seed} --count 1"
    return "\n".join([*lines, f"  replay: {outcome.command}", f"  again: {again}"])


def main(arguments: list[str] | None = None) -> int:
    """Run a range of seeds; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description="Run small random simulations of all kinds with every checker on.")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args(arguments)
    began, failed, done = time.monotonic(), 0, 0
    seen: Counter[str] = Counter()
    seeds = range(options.first_seed, options.first_seed + options.count)
    for chunk in outcomes(seeds, processes=options.processes, seconds=options.seconds):
        for outcome in chunk:
            seen[f"{outcome.kind}: {outcome.protocol}"] += 1
            if outcome.complaints:
                failed += 1
                print(describe(outcome), flush=True)
        done += len(chunk)
        print(f"{done} simulations, {failed} failed, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for what, count in sorted(seen.items()):
        print(f"  {count:7} {what}")
    print(f"{done} simulations from seed {seeds.start}, {failed} failed; next seed {seeds.start + done}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

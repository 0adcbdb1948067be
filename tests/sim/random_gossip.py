"""Gossip where one message in five is lost, one member in ten crashes and one in ten comes late, with every checker on.

`python -m tests.sim.random_gossip --count 2000` runs that many seeds, half of them with each ending, and prints for
every broken promise and every run that does not end the command that replays it. A run ends only when every member up
has done the rounds that are wanted (and, under data traffic, knows every message of a live sender stable), so no
complaint means: nothing was called stable too early, and no round was stuck.

A message is lost with probability 0.2 on its whole way where all ways are alike (flat, star); in random graphs on every
link it crosses, which is harder.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from tests.sim.random_scenarios import complaints

NS_PER_MS = 1_000_000
LOSS, SHARE = 0.2, 0.1
NETWORKS = {
    "flat": LOSS,
    "flat:delay=exp:1ms": LOSS,
    "star": 1 - math.sqrt(1 - LOSS),  # two links
    "random:degree=5": LOSS,
}
SPAN_MS = 400.0  # about as long as the rounds take
UNTIL_MS = 300_000.0


def random_gossip(seed: int) -> Scenario:
    """The scenario of a seed; even seeds have the optimised ending, odd ones piggyback."""
    draw = random.Random(seed)
    members = draw.choice([10, 20, 30, draw.randint(11, 60)])
    network = draw.choice(sorted(NETWORKS))
    settings: dict[str, Any] = {
        "ending": "piggyback" if seed % 2 else "optimised",
        "members": members,
        "senders": draw.choice([1, 3, members // 2]),
        "network": network,
        "loss": NETWORKS[network],
        "seed": seed,
        "rounds": draw.randint(2, 5),
        "delta_ms": draw.choice([0.0, 10.0, 50.0]),
        "subset": draw.randint(1, 4),
        "step_s": draw.choice([0.005, 0.02]),
        "detect_ms": draw.choice([5.0, 40.0]),
        "detect_spread_ms": draw.choice([0.0, 10.0]),
        "until_ms": UNTIL_MS,
    }
    if draw.random() < 0.4:
        settings |= {"messages": draw.randint(1, 10), "rate": draw.choice([50.0, 200.0])}
    return Scenario.of("gossip", **settings | _changes(draw, members))


def _changes(draw: random.Random, members: int) -> dict[str, tuple[Fault, ...]]:
    """A tenth crashes (some come back, some say good-bye instead); another tenth joins."""
    count = max(1, round(SHARE * members))
    crashes, leaves = [], []
    for rank in draw.sample(range(members - count), count):
        at_ns = round(draw.uniform(0, SPAN_MS) * NS_PER_MS)
        kind = draw.random()
        if kind < 0.15:
            leaves.append(Fault(members=(rank,), at_ns=at_ns))
        else:
            until_ns = at_ns + round(draw.uniform(1, SPAN_MS / 4) * NS_PER_MS) if kind < 0.4 else -1
            crashes.append(Fault(members=(rank,), at_ns=at_ns, until_ns=until_ns))
    joins = [Fault(members=(members - 1 - k,), at_ns=round(draw.uniform(0, SPAN_MS) * NS_PER_MS)) for k in range(count)]
    return {"crashes": tuple(crashes), "leaves": tuple(leaves), "joins": tuple(joins)}


def failures(first: int, count: int) -> Iterator[str]:
    """What is wrong with the scenarios of these seeds."""
    for seed in range(first, first + count):
        scenario = random_gossip(seed)
        for complaint in complaints(scenario):
            yield f"seed {seed}: {complaint}; replay: {scenario.command()}"


def main() -> int:
    """Run many seeds; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description="Run Gossip under loss, crashes and joins with every checker on.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    began, found = time.monotonic(), 0
    for failure in failures(options.first_seed, options.count):
        print(failure, flush=True)
        found += 1
    drawn = [random_gossip(seed) for seed in range(options.first_seed, options.first_seed + options.count)]
    print(f"{options.count} simulations in {time.monotonic() - began:.0f} s, {found} complaints")
    for name in ("ending", "network", "subset"):
        print(f"  {name}: {dict(sorted(Counter(one.to_dict()[name] for one in drawn).items()))}")
    for name in ("crashes", "leaves", "joins"):
        print(f"  {name}: {sum(len(getattr(one, name)) for one in drawn)}")
    print(f"  members: {sum(one.members for one in drawn)}, with data: {sum(one.messages > 0 for one in drawn)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

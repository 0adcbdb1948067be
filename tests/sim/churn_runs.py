"""Small random runs with views and everything that can go wrong, each judged by every checker.

`python -m tests.sim.churn_runs --count 1000 --first-seed 0` runs that many seeds and prints, for every broken promise
and every run that does not settle, the seed and the command that replays it. `--stability cascade` draws the stability
protocols named, by default all.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from cubecast.errors import SimulationError
from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.trace.checkers import check_all
from tests.support.scenarios import shared_scenario

DATA = tuple(protocol.name for protocol in list_protocols("causal") if not protocol.admits_joins)
STABILITY = tuple(protocol.name for protocol in list_protocols("stability"))
DETECTORS = ("model", "model", "live_array", "gossip", "heartbeat")
NS_PER_MS = 1_000_000


def random_churn(seed: int, stability: Sequence[str] = STABILITY) -> Scenario:
    """The scenario of a seed, with one of these stability protocols."""
    draw = random.Random(seed)
    members = draw.choice([3, 4, 5, 7, 8, draw.randint(9, 16)])
    data = draw.choice(DATA)
    settings: dict[str, Any] = {
        "protocol": data,
        "stability": draw.choice(stability),
        "members": members,
        "senders": draw.choice([1, max(1, members // 2), members]),
        "network": _network(draw, members),
        "seed": seed,
        "churn_per_s": draw.choice([0, 1, 4, 10]),
        "churn_ms": draw.choice([500, 1000, 2000]),
        "batch_ms": draw.choice([0, 20, 100]),
        "rate": draw.choice([5, 20, 60]),
        "loss": draw.choice([0, 0, 0.01, 0.05]),
        "delta_ms": draw.choice([5, 30, 100]),
        "stability_step_s": draw.choice([0.01, 0.03]),
        "detect_ms": draw.choice([5, 30, 200]),
        "detect_spread_ms": draw.choice([0, 5, 50]),
        "detector": draw.choice(DETECTORS),
        "detector_step_ms": draw.choice([10, 30]),
        "detector_threshold": draw.choice([8, 12]),
        "state_bytes": draw.choice([0, 10_000]),
        "until_ms": 60_000,
        "packets_max": 1 << 17,
    }
    if draw.random() < 0.2:
        settings |= {"reorder": 0.1, "reorder_ms": draw.choice([1, 10])}
    if draw.random() < 0.1:
        settings["queue_limit"] = 4 * members
    faults = _faults(draw, members, settings["churn_ms"], churns=settings["churn_per_s"] > 0)
    return shared_scenario(**settings | faults, causal_stability=draw.random() < 0.5)


def _network(draw: random.Random, members: int) -> str:
    return draw.choice(
        [
            f"random:degree={min(3, members - 1)}",
            f"random:degree={min(3, members - 1)},bandwidth=1e7",
            "star",
            "chain:delay=0-0.2ms",
            "flat",
            "flat:delay=0.2-3ms",
            "flat:delay=exp:1ms",
        ]
    )


def _faults(draw: random.Random, members: int, span_ms: float, *, churns: bool) -> dict[str, Any]:
    """Crashes at once and one after the other, returns, leaves, joins and a partition, all of them close together.

    A majority of the founders stays within reach of each other, even if a change drawn at random takes one more.
    """
    found: dict[str, Any] = {}
    founders = members - (draw.choice([0, 0, 1]) if members > 4 else 0)
    if founders < members:
        found["joins"] = (Fault(members=(founders,), at_ns=_moment(draw, span_ms)),)
    spare = (founders - 1) // 2 - (1 if churns else 0)
    if draw.random() < 0.25:
        begin_ns = _moment(draw, span_ms)
        side = tuple(sorted(draw.sample(range(members), draw.randint(1, max(1, spare)))))
        end_ns = begin_ns + draw.randint(20, 600) * NS_PER_MS
        found["partitions"] = (Fault(members=side, at_ns=begin_ns, until_ns=end_ns),)
        spare -= len(side)
    return found | _departures(draw, draw.sample(range(founders), draw.randint(0, max(0, spare))), span_ms)


def _departures(draw: random.Random, hosts: list[int], span_ms: float) -> dict[str, Any]:
    """These hosts crash, some to return, or leave, one soon after the other."""
    crashes, leaves = [], []
    at_ns = _moment(draw, span_ms)
    for host in hosts:
        at_ns += draw.choice([0, draw.randint(0, 40) * NS_PER_MS])
        if draw.random() < 0.7:
            until_ns = draw.choice([-1, at_ns + draw.randint(1, 300) * NS_PER_MS])
            crashes.append(Fault(members=(host,), at_ns=at_ns, until_ns=until_ns))
        else:
            leaves.append(Fault(members=(host,), at_ns=at_ns))
    return {"crashes": tuple(crashes), "leaves": tuple(leaves)}


def _moment(draw: random.Random, span_ms: float) -> int:
    return round(draw.uniform(0.01, 0.9) * span_ms * NS_PER_MS)


def broken_promises(scenario: Scenario) -> list[str]:
    """What a run of this scenario does wrong."""
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    try:
        trace = trace_scenario(scenario, network)
    except (SimulationError, AssertionError) as error:
        return [f"seed {scenario.seed}: {type(error).__name__} {error}"]
    report = check_all(trace)
    return [
        f"seed {scenario.seed}: {violation.checker}: {violation.message}; replay: {scenario.command()}"
        for verdict in report.verdicts
        for violation in verdict.violations[:2]
    ]


def main() -> int:
    """Run many seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--stability", action="append", choices=STABILITY)
    given = parser.parse_args()
    began = time.perf_counter()
    failures = 0
    for seed in range(given.first_seed, given.first_seed + given.count):
        found = broken_promises(random_churn(seed, given.stability or STABILITY))
        failures += bool(found)
        for line in found:
            print(line, flush=True)
    print(f"{given.count} runs, {failures} failed, {time.perf_counter() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

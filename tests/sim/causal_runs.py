"""Random small causal simulations, each judged by every checker.

`python -m tests.sim.causal_runs crashes 10000` runs so many with crashes (fewer than log2 n in one half of them, any
number in the other), of one protocol if its name follows, and prints the seed and the replay command of each run that
breaks a promise. `changes` in place of `crashes` runs the changing overlay while members join and leave.
"""

from __future__ import annotations

import random
import sys
import time

from cubecast.errors import SimulationError
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.trace.checkers import check_all

US = 1_000


def crashing_scenario(seed: int, protocol: str | None = None) -> tuple[Scenario, Network]:
    """A group of 2 to 24, its senders busy while some members crash."""
    draw = random.Random(seed)
    protocol = protocol or draw.choice(["timestamp", "overlay"])
    members = draw.randint(2, 24)
    few = max(0, (members - 1).bit_length() - 2)
    many = members - 2
    crashes = draw.randint(0, few if draw.random() < 0.5 else many)
    rate = draw.choice([500, 2_000, 10_000])
    messages = draw.randint(1, 8)
    span_us = messages * 1_000_000 // rate + 3_000
    unordered = protocol == "timestamp" and draw.random() < 0.5
    network = draw.choice(
        [
            "random:degree=3,bandwidth=10e6",
            "random:p=0.4,bandwidth=1e6",
            "star",
            "chain:bandwidth=1e6",
            "flat:delay=1ms",
        ]
    )
    if network.startswith("random:degree") and members < 5:
        network = "random:p=0.9"
    scenario = Scenario(
        protocol=protocol,
        members=members,
        senders=draw.randint(1, members),
        network=network,
        seed=seed,
        messages=messages,
        rate=rate,
        payload_bytes=draw.choice([0, 100, 2000]),
        crashes=tuple(
            Fault(members=(rank,), at_ns=draw.randint(0, span_us) * US) for rank in draw.sample(range(members), crashes)
        ),
        detect_ms=draw.choice([0.0, 1.0, 10.0]),
        detect_spread_ms=draw.choice([0.0, 1.0, 5.0]),
        reorder=0.3 if unordered else 0.0,
        duplicate=0.1 if unordered else 0.0,
        reorder_ms=draw.choice([0.1, 3.0]),
        packets_max=1 << 16,
    )
    return scenario, build_network(network, members=members, seed=seed)


def changing_scenario(seed: int) -> tuple[Scenario, Network]:
    """A group of 3 to 24 in which some members join and some leave while messages flow."""
    draw = random.Random(seed)
    members = draw.randint(3, 24)
    joins = draw.randint(0, members - 2)
    first = members - joins
    spread_ms = draw.choice([0.0, 1.0, 5.0])
    rate = draw.choice([500, 2_000, 10_000])
    messages = draw.randint(1, 10)
    span_us = messages * 1_000_000 // rate + 3_000
    joined_us = {rank: draw.randint(0, span_us) for rank in range(first, members)}
    leavers = draw.sample(range(members), draw.randint(0, members - 1))
    # Some member must stay from beginning to end, and the service reports a join before it reports a leave.
    stays = draw.randrange(first)
    leaves_us = {
        rank: joined_us.get(rank, 0) + draw.randint(0, span_us) + (2_000 * round(spread_ms) + 1 if rank >= first else 0)
        for rank in leavers
        if rank != stays
    }
    network = draw.choice(["random:p=0.6,bandwidth=10e6", "random:p=0.4,bandwidth=1e6", "star", "chain:bandwidth=1e6"])
    scenario = Scenario(
        protocol="pc_overlay",
        members=members,
        senders=draw.randint(1, members),
        network=network,
        seed=seed,
        messages=messages,
        rate=rate,
        payload_bytes=draw.choice([0, 100, 2000]),
        joins=tuple(Fault(members=(rank,), at_ns=at * US) for rank, at in joined_us.items()),
        leaves=tuple(Fault(members=(rank,), at_ns=at * US) for rank, at in leaves_us.items()),
        detect_spread_ms=spread_ms,
        packets_max=1 << 18,
    )
    return scenario, build_network(network, members=members, seed=seed)


def broken_promises(scenario: Scenario, network: Network) -> list[str]:
    """The violations of a run, after its replay command; empty when it kept every promise."""
    try:
        report = check_all(trace_scenario(scenario, network))
    except SimulationError as error:
        return [str(error)]
    if report.ok:
        return []
    messages = [violation.message for violation in report.violations]
    return [f"seed {scenario.seed}: {scenario.command()}", *messages]


def main(kind: str, runs: int, protocol: str | None = None) -> int:
    """Run them all; the exit status says whether one broke a promise."""
    began = time.perf_counter()
    broken = 0
    for seed in range(runs):
        made = changing_scenario(seed) if kind == "changes" else crashing_scenario(seed, protocol)
        messages = broken_promises(*made)
        broken += bool(messages)
        print("\n".join(messages[:8]), end="\n" if messages else "")
    print(f"{runs} simulations with {kind}: {broken} broke a promise ({time.perf_counter() - began:.0f} s)")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))

"""Small random scenarios with everything that can go wrong, each run with every checker on.

`python -m tests.sim.random_scenarios --count 10000 --first-seed 0` runs that many seeds and prints, for every broken
promise and every run that does not end, the seed and the command that replays it. `--family cube` draws the protocols
of the cube paper alone, `--protocol cascade` those named; by default all that detect stability are drawn.

What is promised bounds what is drawn: of CubeFullDist's members fewer than its overlay can lose go down for good (its
vertex connectivity is its smallest degree, cube §3.3); the others outlive all but two.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cubecast.errors import SimulationError
from cubecast.networks.spec import build_network
from cubecast.protocol.overlays import hypercube
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.trace.checkers import check_all
from tests.support.scenarios import shared_scenario

PROTOCOLS = ("coord", "full_dist", "s_coord", "cube_full_dist")
"""Those of the cube paper."""
MEMBERS_MAX = 33
SLOW_MEMBERS_MAX = 15  # the data of more would fill slow links with their own repairs
UNTIL_MS = 1_200_000.0  # twenty minutes: a fifth of all copies lost on each of six links, repeated twice a second
CASCADE_LOSS_MAX = defaultdict(lambda: 0.2, random=0.1, chain=0.01)
"""Of each hop: with more, its waits over long paths and in deep trees grow to minutes (docs/cascade.md)."""
NS_PER_MS = 1_000_000


def random_scenario(seed: int, names: Sequence[str] = PROTOCOLS) -> Scenario:
    """The scenario of a seed, with one of these protocols."""
    draw = random.Random(seed)
    members = draw.choice([2, 3, 4, 5, 7, 8, 9, draw.randint(10, 20), draw.randint(21, MEMBERS_MAX)])
    protocol = draw.choice(names)
    slow = draw.random() < 0.15
    if slow:
        members = min(members, SLOW_MEMBERS_MAX)
    settings: dict[str, Any] = {
        "protocol": protocol,
        "members": members,
        "senders": draw.choice([1, max(1, members // 2), members]),
        "network": _slow_network(draw, members) if slow else _network(draw, members),
        "seed": seed,
        "rounds": draw.randint(1, 4),
        "delta_ms": draw.choice([0, 0.3, 5, 20]),
        "tree_degree": draw.choice([None, 1, 2, 3]),
        "until_ms": UNTIL_MS,
        "packets_max": 1 << 16,
        "measure": draw.random() < 0.8,
        "detect_ms": draw.choice([0, 0.2, 3, 30]),
        "detect_spread_ms": draw.choice([0, 1, 10]),
    }
    if not settings["network"].startswith("flat"):
        settings["multicast"] = draw.choice(["copies", "tree"])
        settings["routing"] = draw.choice(["hops", "delay"])
    long = slow or settings["network"].startswith("chain")
    settings |= _options(draw, members, slow)
    settings |= (
        _disturbances(draw, members, long)
        | _data(draw, settings["network"])
        | _faults(draw, protocol, members, 300 if slow else 30)
    )
    if protocol == "cascade":
        most = CASCADE_LOSS_MAX["chain" if settings["tree_degree"] == 1 else settings["network"].partition(":")[0]]
        settings["loss"] = min(settings.get("loss", 0.0), most)
    if shared_scenario(**settings | {"repeat_ms": 1.0}).loses_messages or settings.get("reorder", 0) > 0:
        # Repeats that come faster than the network can carry them pile up without end.
        narrow = "bandwidth" in settings["network"] or settings.get("queue_limit", 0) > 0
        crowded = narrow and members > 20
        settings["repeat_ms"] = draw.choice(
            [500, 1500] if slow else [300, 500] if crowded else [50, 150] if narrow else [3, 20]
        )
    settings |= {
        "overlay": draw.choice(["tree", "dissemination", "hypercube"]),
        "radix": draw.choice([2, 3, 5]),
        "linger": draw.random() < 0.7,
    }
    joining = min((rank for join in settings.get("joins", ()) for rank in join.members), default=members)
    if settings.get("messages", 0) > 0 and joining >= settings["senders"]:
        settings["causal_stability"] = draw.random() < 0.5
    return shared_scenario(**settings)


def _options(draw: random.Random, members: int, slow: bool) -> dict[str, Any]:
    """What only some protocols know; the others do not mind."""
    return {
        "group_size": draw.choice([None, None, 2, 3, 7]),
        "shuffled": draw.choice([None, True]),
        "controllers": draw.randint(1, 3),
        "scatter": draw.random() < 0.1,
        "repeat_acks": draw.random() < 0.3,
        "subset": draw.randint(1, min(3, members - 1)),
        "step_s": draw.choice([0.3, 1.0]) if slow else draw.choice([0.01, 0.03]),
        "ending": draw.choice(["optimised", "piggyback"]),
    }


def _network(draw: random.Random, members: int) -> str:
    degree = min(draw.choice([2, 3, 5]), members - 1)
    kinds = [
        f"random:degree={degree}",
        "random:p=0.1",
        f"random:degree={degree},bandwidth={1e6 if members <= SLOW_MEMBERS_MAX else 1e7}",
        "star",
        "star:delay=0.01ms,bandwidth=2e6",
        "chain:delay=0-0.2ms",
        "flat",
        "flat:delay=0.2-3ms",
        "flat:delay=exp:1ms",
    ]
    return draw.choice(kinds)


def _slow_network(draw: random.Random, members: int) -> str:
    nodes = draw.choice(["", f":nodes={members + draw.randint(0, 20)}"])
    return f"wan-tree{nodes}{',' if nodes else ':'}bandwidth=300e3"


def _disturbances(draw: random.Random, members: int, long: bool) -> dict[str, Any]:
    if draw.random() < 0.3:
        return {}
    found: dict[str, Any] = {}
    if draw.random() < 0.5:
        found["loss"] = draw.choice([0.01, 0.03] if long else [0.01, 0.05, 0.2])
    if draw.random() < 0.3:
        found["duplicate"] = 0.05 if long else draw.choice([0.05, 0.3])
    if draw.random() < 0.3:
        found |= {"reorder": draw.choice([0.05, 0.4]), "reorder_ms": draw.choice([0.1, 2, 15])}
    if draw.random() < 0.2:
        # A queue too short for one multicast would drop the copy for the last rank every time it is announced.
        found["queue_limit"] = draw.choice([members, 2 * members, 64])
    return found


def _data(draw: random.Random, network: str) -> dict[str, Any]:
    if draw.random() < 0.5:
        return {}
    payload = draw.choice([0, 100])
    if "bandwidth" in network:  # a burst that takes the network seconds to carry is repeated before it arrives
        return {"messages": draw.randint(1, 3), "rate": draw.choice([2, 10]), "payload_bytes": payload}
    return {"messages": draw.randint(1, 12), "rate": draw.choice([50, 400]), "payload_bytes": payload}


def _faults(draw: random.Random, protocol: str, members: int, span_ms: float) -> dict[str, Any]:
    if draw.random() < 0.4:
        return {}
    lost = draw.sample(range(members), draw.randint(0, _losses_max(protocol, members)))
    if lost and draw.random() < 0.4:
        lost = sorted({*lost, 0})[: len(lost)]  # those who coordinate and lead are the lowest
    crashes, suspicions = [], []
    for rank in lost:
        at_ns = draw.choice([0, round(draw.uniform(0, span_ms) * NS_PER_MS)])
        if draw.random() < 0.25:
            suspicions.append(Fault(members=(rank,), at_ns=at_ns))
        else:
            until_ns = at_ns + round(draw.uniform(0.1, span_ms) * NS_PER_MS) if draw.random() < 0.4 else -1
            crashes.append(Fault(members=(rank,), at_ns=at_ns, until_ns=until_ns))
    partitions = []
    if draw.random() < 0.15:
        at_ns = round(draw.uniform(0, span_ms) * NS_PER_MS)
        side = tuple(sorted(draw.sample(range(members), draw.randint(1, members - 1))))
        until_ns = at_ns + round(draw.uniform(1, span_ms) * NS_PER_MS)
        partitions.append(Fault(members=side, at_ns=at_ns, until_ns=until_ns))
    found = {"crashes": tuple(crashes), "suspicions": tuple(suspicions), "partitions": tuple(partitions)}
    return found | _membership(draw, protocol, members, span_ms, lost)


def _membership(
    draw: random.Random, protocol: str, members: int, span_ms: float, lost: list[int]
) -> dict[str, tuple[Fault, ...]]:
    """The last ranks join later; a member leaves. For CubeFullDist an absent member is a gap too."""
    room = _losses_max(protocol, members) - len(lost)
    found: dict[str, tuple[Fault, ...]] = {}
    first = max(lost, default=0) + 1  # a member that leaves was there from the start
    if room > 0 and first < members and draw.random() < 0.4:
        count = draw.randint(1, min(room, members - first))
        times = [round(draw.uniform(0, span_ms) * NS_PER_MS) for _ in range(count)]
        found["joins"] = tuple(Fault(members=(members - 1 - k,), at_ns=at_ns) for k, at_ns in enumerate(times))
        room -= count
    if room > 0 and draw.random() < 0.2:
        at_ns = round(draw.uniform(0, span_ms) * NS_PER_MS)
        found["leaves"] = (Fault(members=(draw.randrange(members - len(found.get("joins", ()))),), at_ns=at_ns),)
    return found


def _losses_max(protocol: str, members: int) -> int:
    if protocol == "cube_full_dist":
        return int(np.diff(hypercube(members).offsets).min()) - 1
    return min(members - 2, 5)


def complaints(scenario: Scenario) -> list[str]:
    """What is wrong with a run of this scenario; nothing, we hope."""
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    try:
        trace = trace_scenario(scenario, network)
    except SimulationError as error:
        return [str(error)]
    return [f"{found.checker}: {found.message}" for found in check_all(trace).violations]


def run_seeds(seeds: range, names: Sequence[str] = PROTOCOLS) -> Iterator[tuple[int, Scenario, list[str]]]:
    """Every seed whose scenario has complaints."""
    for seed in seeds:
        scenario = random_scenario(seed, names)
        found = complaints(scenario)
        if found:
            yield seed, scenario, found


def main() -> int:
    """Run as many seeds as asked for; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description="Run small random scenarios with every checker on.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--family", choices=["cube", "stability"], default="stability")
    parser.add_argument(
        "--protocol", action="append", choices=[protocol.name for protocol in list_protocols("stability")]
    )
    options = parser.parse_args()
    names = PROTOCOLS if options.family == "cube" else [protocol.name for protocol in list_protocols("stability")]
    names = options.protocol or names
    began, bad = time.monotonic(), 0
    last = options.first_seed + options.count
    for start in range(options.first_seed, last, 100):
        for seed, scenario, found in run_seeds(range(start, min(start + 100, last)), names):
            bad += 1
            print(f"\nseed {seed}: {scenario.command()}")
            print("\n".join(f"  {line}" for line in found[:3]), flush=True)
        done = min(start + 100, last) - options.first_seed
        progress = f"{done} of {options.count} scenarios, {bad} with complaints, {time.monotonic() - began:.0f} s"
        print(progress, file=sys.stderr, flush=True)
    print(f"{options.count} scenarios from seed {options.first_seed}: {bad} with complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

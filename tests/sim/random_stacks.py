"""Small random scenarios of the whole stack, each run with every checker on.

A stack is a stability protocol over a reliable multicast family, beside a failure detector; data flows, links lose,
double and reorder messages, members crash and come back. `python -m tests.sim.random_stacks --count 1000` runs that
many seeds and prints, for every broken promise and every run that does not end, the command that replays it.

Besides the checkers: a message of a sender that stays up reaches every member that stays up (the run would not end
otherwise), and every member that stays up has excluded the members that went down for good.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cubecast.errors import SimulationError
from cubecast.networks.spec import build_network
from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, EXCLUDE, RECOVER
from tests.support.scenarios import shared_scenario

NS_PER_MS = 1_000_000
MEMBERS_MAX = 17
LEAST_MS, EARLY_MS = 3000.0, 1000.0  # a member that goes down early is noticed before the run ends


class Stack(NamedTuple):
    """One combination of layers. Each is compiled apart, so there are few."""

    protocol: str
    transport: str
    detector: str = "model"


STACKS = (
    Stack("coord", "ack"),
    Stack("coord", "nak"),
    Stack("coord", "nak_multicast"),
    Stack("coord", "srm"),
    Stack("coord", "hybrid"),
    Stack("coord", "hierarchical"),
    Stack("coord", "nak", "heartbeat"),
    Stack("coord", "nak", "polling"),
    Stack("coord", "nak", "gossip"),
    Stack("coord", "nak", "structured_gossip"),
    Stack("cube_full_dist", "srm", "gossip"),
    Stack("s_coord", "hierarchical", "gossip"),
)
LONG_SENDERS_MAX = 4


def random_stack(seed: int, stacks: tuple[Stack, ...] = STACKS) -> Scenario:
    """The scenario of a seed."""
    draw = random.Random(seed)
    stack = draw.choice(stacks)
    members = draw.choice([2, 3, 4, 7, 8, draw.randint(9, MEMBERS_MAX)])
    degree = draw.choice([None, 1, 2, 3])
    settings: dict[str, Any] = stack._asdict() | {
        "members": members,
        "senders": draw.choice([1, max(1, members // 2), members]),
        "network": draw.choice(["star", "chain:delay=0-0.2ms", "flat:delay=0.2-3ms", _random_graph(members)]),
        "seed": seed,
        "rounds": draw.randint(1, 4),
        "delta_ms": draw.choice([0.3, 5, 20]),
        "tree_degree": degree,
        "transport_tree_degree": degree,
        "until_ms": 60_000.0,
        "packets_max": 1 << 18,
        "repeat_ms": draw.choice([5, 20]),
        "messages": draw.randint(1, 40),
        "rate": draw.choice([50, 400]),
        "transport_repair": draw.choice(["multicast", "unicast"]),
        "detect_ms": draw.choice([0.2, 30]),
        "detector_step_ms": draw.choice([5, 20]),
        "detector_p_mistake": draw.choice([1e-9, 0.2]),
    }
    long = settings["network"].startswith("chain")
    if long and settings["senders"] > LONG_SENDERS_MAX:  # more would send faster than the links in the middle carry
        settings["rate"] = 50
    settings |= _disturbances(draw, long) | _crashes(draw, stack, members) | _trigger(draw)
    if stack.detector != "model":
        settings["least_ms"] = LEAST_MS
    return shared_scenario(**settings)


def _random_graph(members: int) -> str:
    return f"random:degree={min(3, members - 1)}"


def _disturbances(draw: random.Random, long: bool) -> dict[str, Any]:
    """Over a long way little may be lost at each link, or next to nothing arrives."""
    found: dict[str, Any] = {}
    if draw.random() < 0.6:
        found["loss"] = draw.choice([0.01, 0.03] if long else [0.01, 0.05, 0.15])
    if draw.random() < 0.3:
        found["duplicate"] = draw.choice([0.05, 0.2])
    if draw.random() < 0.3:
        found |= {"reorder": draw.choice([0.05, 0.4]), "reorder_ms": draw.choice([0.1, 10])}
    return found


def _crashes(draw: random.Random, stack: Stack, members: int) -> dict[str, Any]:
    """Of CubeFullDist's members so few that its overlay stays connected; with it no false suspicions are risked."""
    if stack.protocol == "cube_full_dist":
        return {"detector_p_mistake": 1e-9, "crashes": _some(draw, members, min(1, members - 2))}
    return {"crashes": _some(draw, members, min(3, members - 2))}


def _some(draw: random.Random, members: int, most: int) -> tuple[Fault, ...]:
    crashes = []
    for rank in draw.sample(range(members), draw.randint(0, most)):
        at_ns = round(draw.uniform(0, 60) * NS_PER_MS)
        until_ns = at_ns + round(draw.uniform(0.1, 100) * NS_PER_MS) if draw.random() < 0.4 else -1
        crashes.append(Fault(members=(rank,), at_ns=at_ns, until_ns=until_ns))
    return tuple(crashes)


def _trigger(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.7:
        return {}
    room = draw.choice([1, 3, 8])
    return {"trigger": "buffer", "buffer_messages": room, "trigger_messages": draw.randint(0, room)}


def complaints(scenario: Scenario) -> list[str]:
    """What is wrong with a run of this scenario; nothing, we hope."""
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    try:
        trace = trace_scenario(scenario, network)
    except SimulationError as error:
        return [str(error)]
    found = [f"{one.checker}: {one.message}" for one in check_all(trace).violations]
    return found + (_not_noticed(trace) if scenario.detects else [])


def _not_noticed(trace: Trace) -> list[str]:
    """Members that are up at the end and still count on one that went down for good, long before."""
    events = trace.events
    members = int(trace.scenario["members"])
    up, early = np.ones(members, np.bool_), np.zeros(members, np.bool_)
    for row in events[np.isin(events["event"], [CRASH, RECOVER])]:
        up[row["member"]] = row["event"] == RECOVER
        early[row["member"]] = row["time_ns"] < EARLY_MS * NS_PER_MS
    excluded = {(int(row["member"]), int(row["peer"])) for row in events[events["event"] == EXCLUDE]}
    return [
        f"member {one} still counts on member {gone}, which is down"
        for one in np.flatnonzero(up)
        for gone in np.flatnonzero(~up & early)
        if (int(one), int(gone)) not in excluded
    ]


def failures(first: int, count: int, stacks: tuple[Stack, ...] = STACKS) -> Iterator[str]:
    """What is wrong with the scenarios of these seeds."""
    for seed in range(first, first + count):
        scenario = random_stack(seed, stacks)
        for complaint in complaints(scenario):
            yield f"seed {seed}: {complaint}; replay: {scenario.command()}"


def main() -> int:
    """Run many seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--stack", type=int, choices=range(len(STACKS)), help="only this one")
    options = parser.parse_args()
    stacks = STACKS if options.stack is None else STACKS[options.stack : options.stack + 1]
    began = time.perf_counter()
    found = 0
    for failure in failures(options.first_seed, options.count, stacks):
        print(failure, flush=True)
        found += 1
    print(f"{options.count} scenarios in {time.perf_counter() - began:.0f} s, {found} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

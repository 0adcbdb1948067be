"""Every protocol that declares its traffic, with and without placement: `python bench/placement.py`.

Prints, for each protocol and network, the time until the last member knows the result of a round (stability), or the
mean delay of a message (causal), for each placement, as a mean over the seeds.

Networks: a random graph of degree 5, and eight regions that model a WAN: points drawn in a rectangle of 10,000 by
6,000 km, light in fibre between their gateways (200 km per ms), and a random graph of degree 5 inside each.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario

PLACEMENTS = (None, "random", "bisection", "search")
REGIONS = 8
KM_PER_MS = 200.0


def region_edges(members: int, seed: int) -> Iterator[tuple[int, int, float]]:
    """Edges (from, to, ms) over nodes in an order independent of their regions."""
    draw = random.Random(seed)
    nodes = draw.sample(range(members), members)
    parts = [nodes[which::REGIONS] for which in range(REGIONS)]
    points = [(draw.uniform(0, 10_000), draw.uniform(0, 6_000)) for _ in parts]
    for which, part in enumerate(parts):
        for place in range(1, len(part)):  # a random tree, so that the region is connected, and the edges that lack
            yield part[draw.randrange(place)], part[place], draw.random()
        known: set[tuple[int, int]] = set()
        for other in range(which):
            yield part[0], parts[other][0], math.dist(points[which], points[other]) / KM_PER_MS
        while len(known) < 1.5 * len(part):
            one, two = sorted(draw.sample(part, 2))
            known.add((one, two))
        yield from ((one, two, draw.random()) for one, two in sorted(known))


def regions(members: int, seed: int) -> Network:
    edges = {tuple(sorted(ends)): ms for *ends, ms in region_edges(members, seed)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "regions.edges"
        path.write_text("".join(f"{one} {two} {ms:.6f}\n" for (one, two), ms in edges.items()))
        return build_network(f"file:{path}", members=members, seed=seed)


def network_of(name: str, members: int, seed: int) -> Network:
    return regions(members, seed) if name == "regions" else build_network(name, members=members, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--networks", nargs="+", default=["random:degree=5", "regions"])
    parser.add_argument(
        "--protocols", nargs="+", default=[one.name for one in list_protocols() if one.traffic is not None]
    )
    given = parser.parse_args()
    print("| network | protocol | not placed | random | bisection | search | search (ms CPU) |")
    print("|---|---|---|---|---|---|---|")
    for network in given.networks:
        for protocol in given.protocols:
            print(row(network, protocol, given.members, given.seeds), flush=True)


def row(network: str, protocol: str, members: int, seeds: int) -> str:
    found: dict[str | None, list[float]] = {placement: [] for placement in PLACEMENTS}
    began_s = spent_s = 0.0
    for seed in range(seeds):
        built = network_of(network, members, seed)
        for placement in PLACEMENTS:
            scenario = Scenario.of(
                protocol, members=members, network=network, seed=seed, placement=placement, **data_settings(protocol)
            )
            began_s = time.process_time()
            result = run_scenario(scenario, built)
            found[placement].append((result.delay_mean_ms if scenario.carries_data else result.rtt_last_ms) or math.nan)
        spent_s += time.process_time() - began_s
    values = " | ".join(f"{mean(found[placement]):.1f}" for placement in PLACEMENTS)
    return f"| {network} | {protocol} | {values} | {1e3 * spent_s / seeds:.0f} |"


def data_settings(protocol: str) -> dict[str, float]:
    entry = next(one for one in list_protocols() if one.name == protocol)
    return {"messages": 1, "senders": 16} if entry.carries_data else {}


if __name__ == "__main__":
    main()

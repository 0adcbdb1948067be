"""Packet-hops per second of the hypercube-neighbour storm, compared with other simulators on the same network file.

    python bench/storm.py                     our simulator, with and without metrics
    python bench/storm.py --peers             ns-2, ns-3 and SimPy too, in the same run
    python bench/storm.py --members 200 1000  choose the sizes

Set-up is everything before the first packet (network file, routes, arrays; for the peers everything before they run).
The best of several repetitions counts; repetitions alternate, so that a disturbance of the machine affects all alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `bench` is found when run as a script

from bench.peers.make_storm import make_storm
from bench.peers.run import PEERS, PeerResult, as_table, better, check_agreement, missing_peers, run_peers
from bench.storm_protocol import add_storm
from cubecast import __version__
from cubecast.errors import CubecastError
from cubecast.networks.spec import build_network
from cubecast.sim import kernel
from cubecast.sim.build import build_simulation
from cubecast.sim.runner import runner
from cubecast.sim.scenario import Scenario

BURSTS = {200: 20, 1000: 5}
EDGE_PROBABILITY = 0.04


def run_ours(network_file: Path, members: int, bursts: int, *, measure: bool) -> PeerResult:
    """One run of our simulator on the network file."""
    add_storm(bursts)
    began = time.perf_counter()
    network = build_network(f"file:{network_file}", members=members, seed=0)
    scenario = Scenario(
        protocol="storm", members=members, senders=1, network=network.name, routing="delay", measure=measure
    )
    simulation = build_simulation(scenario, network, tracing=False)
    run = runner(simulation)
    setup_s = time.perf_counter() - began
    began = time.perf_counter()
    status = run(1 << 62, 1 << 40)
    run_s = time.perf_counter() - began
    assert status == kernel.FINISHED, status
    hops = int(simulation.world.scalars[0].hops)
    return PeerResult(
        name="cubecast" if measure else "cubecast, bare",
        version=__version__,
        setup_s=setup_s,
        run_s=run_s,
        hops=hops,
        last_arrival_ms=float(simulation.world.scalars[0].now_ns) / 1e6,
        hops_per_s=hops / run_s,
    )


def storm(members: int, *, peers: tuple[str, ...], repeat: int) -> list[PeerResult]:
    """Run all simulators on one storm of `members`."""
    bursts = BURSTS.get(members, 5)
    with tempfile.TemporaryDirectory() as folder:
        network_file, pairs_file = Path(folder, "storm.net"), Path(folder, "storm.pairs")
        make_storm(
            members=members, probability=EDGE_PROBABILITY, seed=1, network_file=network_file, pairs_file=pairs_file
        )
        run_ours(
            network_file, members, bursts, measure=True
        )  # compiled, or loaded from the cache, before the clock runs
        ours: dict[bool, PeerResult | None] = {True: None, False: None}
        for _ in range(repeat):
            for measure in ours:
                ours[measure] = better(ours[measure], run_ours(network_file, members, bursts, measure=measure))
        results = [result for result in ours.values() if result is not None]
        if peers:
            results += run_peers(network_file, pairs_file, bursts, peers, 1 if members >= 1000 else repeat)
    check_agreement(results)
    return results


def ratios(results: list[PeerResult]) -> str:
    """The speed relative to each peer, in the run and in the whole job; and the cost of the metrics."""
    ours, bare = results[0], results[1]
    lines = [f"metrics cost {100 * (1 - ours.hops_per_s / bare.hops_per_s):.0f} % of the bare speed"]
    for peer in results[2:]:
        run = ours.hops_per_s / peer.hops_per_s
        job = (peer.setup_s + peer.run_s) / (ours.setup_s + ours.run_s)
        lines.append(f"{run:6.1f} x {peer.name} in the run, {job:6.1f} x in the whole job")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=sorted(BURSTS))
    parser.add_argument("--peers", nargs="?", const=",".join(PEERS), default="", help="all of them, or a list of names")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peers = tuple(filter(None, options.peers.split(",")))
    try:
        missing = missing_peers(peers)
        for members in options.members:
            results = storm(members, peers=tuple(peer for peer in peers if peer not in missing), repeat=options.repeat)
            if options.json:
                print(json.dumps({"members": members, "results": [dataclasses.asdict(one) for one in results]}))
            else:
                print(f"\n{members} members, p = {EDGE_PROBABILITY}, {BURSTS.get(members, 5)} bursts of 232 B packets")
                print(as_table(results, missing))
                print(ratios(results))
    except CubecastError as error:
        sys.exit(f"storm.py: {error}")


if __name__ == "__main__":
    main()

"""Hypercube-neighbour storm on SimPy: one event and one callback per hop, no processes.

    python bench/peers/storm_simpy.py NETWORK PAIRS BURSTS

A packet is a SimPy event that schedules itself again at each hop: its callback runs on arrival at a node, takes the
link from the next-hop table and schedules the arrival at the other end, `max(now, free) + size / bandwidth + delay`
(FIFO, unlimited queue). The clock counts whole nanoseconds. Routes come from SciPy's Dijkstra.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simpy
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from simpy.events import NORMAL, Event

PACKET_SIZE_BYTES = 232
BURST_INTERVAL_NS = 1_000_000


class Link:
    """One direction of an edge."""

    __slots__ = ("delay_ns", "free_ns", "to", "transmission_ns")

    def __init__(self, to: int, delay_ns: int, bandwidth_bps: int) -> None:
        self.to = to
        self.delay_ns = delay_ns
        self.transmission_ns = round(PACKET_SIZE_BYTES * 8 * 1_000_000_000 / bandwidth_bps)
        self.free_ns: float = 0  # whole, though SimPy calls its time a float


class Packet(Event):
    """A packet in transit: an event that occurs whenever the packet arrives at a node."""

    def __init__(self, env: simpy.Environment, source: int, destination: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self.at = source
        self.destination = destination


def rows(file: Path) -> list[list[str]]:
    """The non-empty lines of a file, comments removed, split at white space."""
    lines = (line.partition("#")[0].split() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def links_by_route(network: Path) -> list[list[Link | None]]:
    """The outgoing link to take, by node and destination, along the routes of least total delay."""
    links: dict[tuple[int, int], Link] = {}
    for a, b, delay_ms, bandwidth_bps in rows(network):
        for ends in ((int(a), int(b)), (int(b), int(a))):
            links[ends] = Link(ends[1], round(float(delay_ms) * 1e6), round(float(bandwidth_bps)))
    n = 1 + max(a for a, _ in links)
    delays = [float(link.delay_ns) for link in links.values()]
    froms, tos = np.array(list(links)).T
    _, before = dijkstra(csr_array((delays, (froms, tos)), shape=(n, n)), return_predecessors=True)
    # Both directions of an edge are equal: the predecessor of `node` on the way from `to` is the next hop to `to`.
    following = before.T.tolist()
    return [[links.get((node, following[node][to])) for to in range(n)] for node in range(n)]


def schedule_storm(
    env: simpy.Environment, routes: list[list[Link | None]], pairs: list[tuple[int, int]], bursts: int
) -> list[int]:
    """Schedule the bursts; return a list into which the run writes (hops, last arrival in ns)."""
    hops_and_last = [0, 0]
    schedule = env.schedule

    def forward(packet: Packet) -> None:
        at = packet.at
        now = env.now
        if at == packet.destination:
            hops_and_last[1] = int(now)
            return
        link = routes[at][packet.destination]
        assert link is not None, "the network is connected"
        start = link.free_ns if link.free_ns > now else now
        link.free_ns = free = start + link.transmission_ns
        packet.at = link.to
        packet.callbacks = on_arrival
        hops_and_last[0] += 1
        schedule(packet, NORMAL, free + link.delay_ns - now)

    on_arrival: list[Callable[[Packet], None]] = [forward]

    def burst(_: Event) -> None:
        for source, destination in pairs:
            forward(Packet(env, source, destination))

    for number in range(bursts):
        env.timeout(number * BURST_INTERVAL_NS).callbacks.append(burst)
    return hops_and_last


def main() -> None:
    network, pairs_file, bursts = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    setup_began = time.perf_counter()
    routes = links_by_route(network)
    pairs = [(int(a), int(b)) for a, b in rows(pairs_file)]
    env = simpy.Environment()
    counted = schedule_storm(env, routes, pairs, bursts)
    gc.disable()
    run_began = time.perf_counter()
    env.run()
    run_ended = time.perf_counter()
    result = {
        "version": simpy.__version__,
        "setup_s": run_began - setup_began,
        "run_s": run_ended - run_began,
        "hops": counted[0],
        "last_arrival_ms": counted[1] / 1e6,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

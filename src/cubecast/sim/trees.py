"""Grow a multicast tree and judge it (rasm §4): reliability by formula, repairs, rounds to converge, deliveries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubecast.models.reachability import expected_share, tree_reachability, tree_reachability_with_quota
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.protocols.broadcast.peers import Peers
from cubecast.protocols.broadcast.rasm import REPAIR, RasmState
from cubecast.sim.build import Simulation
from cubecast.sim.result import Result
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.sim.simulate import run_to_end

PACKET_ROUNDS = 50  # rasm §4.3: the source sends a packet every 50 rounds of 1 ms
PACKETS = 12


@dataclass(frozen=True, kw_only=True)
class GrownTree:
    """The tree of sender 0 at the end of a run, and the cost of growing it."""

    parents: tuple[int, ...]
    reliability: float
    """R(T), Eq 1; 0 while a member has no parent."""
    reliability_with_quota: float
    """R'(T, m), Eq 2, every member sharing a quota of its degree."""
    expected_share: float
    """The mean share of the other members that a message reaches, by formula; nothing crosses a cut link."""
    cut_off: int
    """Members whose provider no longer pushes to them: a PRUNE or REPAIR between the two was lost."""
    rounds_to_converge: int
    repair_share: float
    """The share of REPAIR among all messages sent."""
    delivered: float
    """Share of (packet, other member) pairs that were delivered."""
    copies_per_delivery: float
    delay_mean_rounds: float


def grow_tree(
    protocol: str,
    network: str,
    *,
    members: int = 100,
    seed: int = 0,
    packets: int = PACKETS,
    quota: bool = False,
    heartbeats: int = 0,
) -> GrownTree:
    """Let rank 0 send packets over a `regular` network, and judge the tree that they have grown."""
    scenario = Scenario.of(
        protocol,
        members=members,
        senders=1,
        network=network,
        seed=seed,
        messages=packets,
        rate=1000 / PACKET_ROUNDS,
        payload_bytes=0,
        quota=quota,
        heartbeats=heartbeats,
        packets_max=1 << 18,
        measure=False,
    )
    built = build_network(network, members=members, seed=seed)
    result, simulation = run_to_end(scenario, built)
    return _judge(built, result, simulation, packets)


def failure_between(network: Network) -> NDArray[np.float64]:
    """The true failure probability of every pair of neighbours; 1 for other pairs."""
    table = np.ones((network.nodes, network.nodes))
    table[network.link_from, network.link_to] = network.link_failure
    return table


def _pushes(peers: Peers, rank: int, child: int) -> bool:
    """Is the link from `rank` to `child` in the tree of sender 0?"""
    links = slice(peers.offsets[rank], peers.offsets[rank + 1])
    return bool((peers.eager[links, 0][peers.neighbours[links] == child] != 0).any())


def _judge(network: Network, result: Result, simulation: Simulation, packets: int) -> GrownTree:
    peers = simulation.data.peers
    parents = np.asarray(peers.provider[:, 0])
    table = failure_between(network)
    whole = bool((parents[1:] >= 0).all())
    cut = [rank for rank in range(1, network.members) if parents[rank] >= 0 and not _pushes(peers, parents[rank], rank)]
    crossing = table.copy()
    crossing[parents[cut], cut] = 1.0
    sent = int(peers.sent.sum())
    pairs = packets * (network.members - 1)
    delivered = int(simulation.metrics.totals[0].delays)
    first_ns = int(simulation.metrics.sent_ns[0, 1])
    return GrownTree(
        parents=tuple(int(parent) for parent in parents),
        reliability=tree_reachability(parents, table) if whole else 0.0,
        reliability_with_quota=(tree_reachability_with_quota(parents, table, network.largest_degree) if whole else 0.0),
        expected_share=expected_share(parents, crossing) if whole else 0.0,
        cut_off=len(cut),
        rounds_to_converge=round((int(peers.changed_ns[0]) - first_ns) / NS_PER_MS),
        repair_share=int(peers.sent[REPAIR]) / sent if isinstance(simulation.data, RasmState) else 0.0,
        delivered=delivered / pairs,
        copies_per_delivery=sent / max(delivered, 1),
        delay_mean_rounds=result.delay_mean_ms or 0.0,
    )

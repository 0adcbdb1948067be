"""Flat random graph G(n, p), the network of the cube and causal papers (cube §4.1, causal §5.1).

Every pair of nodes is joined by a duplex edge with probability p, independently. A target average degree d stands for
p = d / (n − 1). Delays are uniform in 0…1 ms and bandwidths 100 Mb/s (cube) by default; both directions of an edge
share them.

Departure: the papers do not say what became of a disconnected draw. Here every smaller component is joined to the
largest one (`networks.joining`); `Network.added_edges` and `Network.average_degree` show the effect.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import NS_PER_MS, DelayDistribution, uniform
from cubecast.networks.joining import joining_edges
from cubecast.networks.network import Edges, Network, every_node_hosts, from_edges, generator_for
from cubecast.networks.options import Options

DELAY = uniform(0, NS_PER_MS)
BANDWIDTH_BPS = 100e6


def from_options(options: Options) -> Network:
    return random_graph(
        members=options.members,
        seed=options.seed,
        edge_probability=_edge_probability(options),
        delay=options.delay(DELAY),
        bandwidth_bps=options.bandwidth_bps(BANDWIDTH_BPS),
        name=options.name,
    )


def random_graph(
    *,
    members: int,
    seed: int,
    edge_probability: float,
    delay: DelayDistribution = DELAY,
    bandwidth_bps: float = BANDWIDTH_BPS,
    name: str = "random",
) -> Network:
    """G(n, p) over the members, made connected."""
    generator = generator_for(seed)
    drawn = _draw_edges(generator, members, edge_probability)
    added = joining_edges(generator, members, drawn)
    ends = np.concatenate([drawn, added])
    edges = Edges(
        ends=ends,
        delay_ns=delay.draw_ns(generator, len(ends)),
        bandwidth_bps=np.full(len(ends), bandwidth_bps),
    )
    return from_edges(edges, name=name, nodes=members, hosts=every_node_hosts(members), added_edges=len(added))


def _edge_probability(options: Options) -> float:
    if options.has("p") == options.has("degree"):
        raise LocalProtocolError(
            f"network {options.name}: give one of p and degree, as in random:p=0.02 or random:degree=5"
        )
    if options.has("p"):
        probability = options.number("p")
        if not 0 <= probability <= 1:
            raise LocalProtocolError(
                f"p={options.values['p']} in network {options.name}: give a probability from 0 to 1"
            )
        return probability
    degree = options.number("degree")
    if not 0 < degree <= options.members - 1:
        raise LocalProtocolError(
            f"degree={options.values['degree']} in network {options.name}: "
            f"give a degree above 0 and at most {options.members - 1} for {options.members} members"
        )
    return degree / (options.members - 1)


def _draw_edges(generator: Generator, nodes: int, probability: float) -> NDArray[np.int64]:
    """Row by row of the upper triangle, so that memory stays linear in the nodes."""
    rows = []
    for node in range(nodes - 1):
        others = node + 1 + np.flatnonzero(generator.random(nodes - 1 - node) < probability)
        rows.append(np.stack([np.full(len(others), node), others], axis=1))
    return np.concatenate(rows).astype(np.int64)

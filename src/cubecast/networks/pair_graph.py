"""Flat graphs in which every pair of nodes is joined independently, with a probability of its own.

The three flat models of GT-ITM, the generator of the cube and causal papers (Zegura, Calvert, Bhattacharjee, "How to
model an internetwork", INFOCOM 1996), differ in that probability alone. Delays are uniform in 0…1 ms and bandwidths
100 Mb/s by default (cube §4.1); both directions of an edge share them. A disconnected graph is made connected
(`networks.joining`); `Network.added_edges` and `Network.average_degree` show the effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cubecast.networks.delays import NS_PER_MS, DelayDistribution, uniform
from cubecast.networks.joining import joining_edges
from cubecast.networks.network import Edges, Network, every_node_hosts, from_edges
from cubecast.networks.options import Options

DELAY = uniform(0, NS_PER_MS)
BANDWIDTH_BPS = 100e6

Probabilities = Callable[[int], NDArray[np.float64] | float]
"""Maps a node to the probabilities of its edges to the nodes after it."""


def joined_pairs(
    options: Options, generator: Generator, probabilities: Probabilities, *, bandwidth_bps: float = BANDWIDTH_BPS
) -> Network:
    """A connected network of randomly drawn edges, in which every node is a member."""
    members = options.members
    drawn = draw_pairs(generator, members, probabilities)
    added = joining_edges(generator, members, drawn)
    edges = with_delays(options, generator, np.concatenate([drawn, added]), bandwidth_bps=bandwidth_bps)
    return from_edges(edges, name=options.name, nodes=members, hosts=every_node_hosts(members), added_edges=len(added))


def with_delays(
    options: Options,
    generator: Generator,
    ends: NDArray[np.int64],
    *,
    delay: DelayDistribution = DELAY,
    bandwidth_bps: float = BANDWIDTH_BPS,
) -> Edges:
    """The edges, with the delays and the bandwidth that the options give."""
    return Edges(
        ends=ends,
        delay_ns=options.delay(delay).draw_ns(generator, len(ends)),
        bandwidth_bps=np.full(len(ends), options.bandwidth_bps(bandwidth_bps)),
    )


def draw_pairs(generator: Generator, nodes: int, probabilities: Probabilities) -> NDArray[np.int64]:
    """Draw the edges row by row of the upper triangle, so that memory stays linear in the nodes."""
    rows = [np.empty((0, 2), np.int64)]
    for node in range(nodes - 1):
        others = node + 1 + np.flatnonzero(generator.random(nodes - 1 - node) < probabilities(node))
        rows.append(np.stack([np.full(len(others), node), others], axis=1))
    return np.concatenate(rows).astype(np.int64)

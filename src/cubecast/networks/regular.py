"""Star and chain, the simple shapes of guo Fig. 5.1: every node hosts a member, rank 0 in the middle or at an end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.networks.delays import NS_PER_MS, DelayDistribution, constant
from cubecast.networks.network import Edges, Network, every_node_hosts, from_edges, generator_for
from cubecast.networks.options import Options

DELAY = constant(NS_PER_MS)
BANDWIDTH_BPS = 100e6


def star(options: Options) -> Network:
    """Rank 0 in the middle, an edge from it to every other rank."""
    return _shaped(options, parents=np.zeros(options.members - 1, dtype=np.int64), arity=options.members - 1)


def chain(options: Options) -> Network:
    """Ranks in a row, an edge between each and the next."""
    return _shaped(options, parents=np.arange(options.members - 1), arity=1)


def tree_edges(parents: NDArray[np.int64], delay: DelayDistribution, bandwidth_bps: float, seed: int) -> Edges:
    """An edge from every node but node 0 to its parent; `parents[i]` is the parent of node i + 1."""
    return Edges(
        ends=np.stack([parents, np.arange(1, len(parents) + 1)], axis=1),
        delay_ns=delay.draw_ns(generator_for(seed), len(parents)),
        bandwidth_bps=np.full(len(parents), bandwidth_bps),
    )


def _shaped(options: Options, *, parents: NDArray[np.int64], arity: int) -> Network:
    edges = tree_edges(parents, options.delay(DELAY), options.bandwidth_bps(BANDWIDTH_BPS), options.seed)
    hosts = every_node_hosts(options.members)
    return from_edges(edges, name=options.name, nodes=options.members, hosts=hosts, arity=arity)

"""Star and chain, the simple shapes of guo Fig. 5.1: every node hosts a member, rank 0 in the middle or at an end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.networks.delays import NS_PER_MS, DelayDistribution, constant
from cubecast.networks.network import Cables, Network, every_node_hosts, from_cables, generator_for
from cubecast.networks.options import Options

DELAY = constant(NS_PER_MS)
BANDWIDTH_BPS = 100e6


def star(options: Options) -> Network:
    """Rank 0 in the middle, a cable from it to everybody else."""
    return _shaped(options, parents=np.zeros(options.members - 1, dtype=np.int64))


def chain(options: Options) -> Network:
    """Ranks in a row, a cable between each and the next."""
    return _shaped(options, parents=np.arange(options.members - 1))


def tree_cables(parents: NDArray[np.int64], delay: DelayDistribution, bandwidth_bps: float, seed: int) -> Cables:
    """A cable from every node but node 0 to its parent; `parents[i]` is the parent of node i + 1."""
    return Cables(
        ends=np.stack([parents, np.arange(1, len(parents) + 1)], axis=1),
        delay_ns=delay.draw_ns(generator_for(seed), len(parents)),
        bandwidth_bps=np.full(len(parents), bandwidth_bps),
    )


def _shaped(options: Options, parents: NDArray[np.int64]) -> Network:
    cables = tree_cables(parents, options.delay(DELAY), options.bandwidth_bps(BANDWIDTH_BPS), options.seed)
    return from_cables(cables, name=options.name, nodes=options.members, hosts=every_node_hosts(options.members))

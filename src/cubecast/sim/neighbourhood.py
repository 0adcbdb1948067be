"""Estimates of neighbours and links after a number of heartbeats (rasm §3.1).

In every step each member that is up sends a heartbeat to each neighbour. The heartbeats that arrive are drawn from the
network's true probabilities; `models.neighbourhood` computes the estimates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.models.neighbourhood import posterior_mean
from cubecast.networks.network import Network

_HEARTBEAT_STREAM = 0x6862


def estimated_link_failure(network: Network, *, heartbeats: int, seed: int) -> NDArray[np.float64]:
    """The failure probability of each link, as the member at its beginning estimates it."""
    if network.unreliability is None:
        return np.zeros(network.links)
    generator = np.random.Generator(np.random.Philox(key=[seed, _HEARTBEAT_STREAM]))
    true = network.unreliability
    missed = generator.binomial(heartbeats, true.crash)
    crash = posterior_mean(missed, np.full(network.nodes, heartbeats))
    # The member at a link's beginning hears the heartbeats of its end: a step is a trial if both were up in it.
    both_up = (1 - true.crash[network.link_from]) * (1 - true.crash[network.link_to])
    trials = generator.binomial(heartbeats, both_up)
    loss = posterior_mean(generator.binomial(trials, true.loss), trials)
    failure: NDArray[np.float64] = 1 - (1 - crash[network.link_from]) * (1 - loss) * (1 - crash[network.link_to])
    return failure

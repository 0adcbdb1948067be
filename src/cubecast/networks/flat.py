"""A network without links: every message takes one logical hop, with a delay drawn for each message.

It serves groups too large for a table of routes, whose memory grows with the square of the nodes. It has no queues, so
it shows the behaviour of a protocol without their effect.
"""

from __future__ import annotations

import numpy as np

from cubecast.networks.delays import NS_PER_MS, DelayDistribution, constant
from cubecast.networks.network import Network, every_node_hosts
from cubecast.networks.options import Options

DELAY = constant(NS_PER_MS)


def from_options(options: Options) -> Network:
    return flat(members=options.members, delay=options.delay(DELAY), name=options.name)


def flat(*, members: int, delay: DelayDistribution = DELAY, name: str = "flat") -> Network:
    """One hop between any two members."""
    return Network(
        name=name,
        nodes=members,
        link_from=np.empty(0, dtype=np.int32),
        link_to=np.empty(0, dtype=np.int32),
        delay_ns=np.empty(0, dtype=np.int64),
        bandwidth_bps=np.empty(0, dtype=np.float64),
        hosts=every_node_hosts(members),
        one_hop=delay,
    )

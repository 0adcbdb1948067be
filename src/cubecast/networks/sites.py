"""Members at the sites of a given network, such as the cities of a real one; there may be more members than sites.

Sites get members in a random order, one each. If there are more members than sites, each further member has a node of
its own that an access edge links to a site; sites are assigned in the same order again. Sites without a member only
route.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from cubecast.networks.network import Edges, Network, from_edges
from cubecast.networks.options import Options


def members_at_sites(
    options: Options, generator: Generator, sites: int, edges: Edges, *, access_ns: int, access_bps: float
) -> Network:
    """The network of `edges` between nodes 0 … sites − 1, with the number of members that the options give."""
    members = options.members
    order = generator.permutation(sites)
    away = max(0, members - sites)
    at = order[np.arange(away) % sites]
    access = np.stack([at, sites + np.arange(away)], axis=1).astype(np.int64)
    hosts = np.concatenate([order[: min(members, sites)], sites + np.arange(away)])
    joined = Edges(
        ends=np.concatenate([edges.ends, access]),
        delay_ns=np.concatenate([edges.delay_ns, np.full(away, access_ns, np.int64)]),
        bandwidth_bps=np.concatenate([edges.bandwidth_bps, np.full(away, access_bps)]),
    )
    return from_edges(joined, name=options.name, nodes=sites + away, hosts=hosts.astype(np.int32))

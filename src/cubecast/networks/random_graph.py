"""Flat random graph G(n, p), the network of the cube and causal papers (cube §4.1, causal §5.1).

Every pair of nodes is joined by a duplex edge with probability p (`networks.pair_graph`). A target average degree d
stands for p = d / (n − 1).

Departure: the papers do not say what they do with a disconnected graph. Here every smaller component is joined to the
largest one.
"""

from __future__ import annotations

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import Network, generator_for
from cubecast.networks.options import Options
from cubecast.networks.pair_graph import joined_pairs


def from_options(options: Options) -> Network:
    probability = _edge_probability(options)
    return joined_pairs(options, generator_for(options.seed), lambda _node: probability)


def _edge_probability(options: Options) -> float:
    if options.has("p") == options.has("degree"):
        raise LocalProtocolError(
            f"network {options.name}: give one of p and degree, as in random:p=0.02 or random:degree=5"
        )
    if options.has("p"):
        return options.probability("p", 0.0)
    return options.average_degree() / (options.members - 1)

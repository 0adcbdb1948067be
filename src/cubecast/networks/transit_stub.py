"""Transit–stub graph: connected transit domains, and stub domains that hang on their nodes (GT-ITM, INFOCOM 1996).

All nodes are members. Every transit node has `stubs` stub domains of about `stub_size` nodes. The number of transit
nodes follows from the number of members: 4 for 100 members, 40 for 1000, as in the samples ts100 and ts1000 of GT-ITM;
the edge probabilities inside the domains are from these samples too. Transit domains have up to ten nodes; every pair
of them is joined by an edge between a random node of each. One edge joins a stub domain to its transit node. A domain
whose random graph is disconnected is made connected.

The nodes are numbered at random, so the numbers of the senders and the coordinator do not put them on the backbone.
Delays and bandwidths are those of the flat graphs; `transit=` is the delay of the edges between transit nodes.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.joining import joining_edges
from cubecast.networks.network import Network, every_node_hosts, from_edges, generator_for
from cubecast.networks.options import Options, parse_delay
from cubecast.networks.pair_graph import draw_pairs, with_delays

STUBS = 3
STUB_SIZE = 8
TRANSIT_DOMAIN = 10
TRANSIT_PROBABILITY = 0.6
STUB_PROBABILITY = 0.42

Ends = NDArray[np.int64]


def from_options(options: Options) -> Network:
    stubs, stub_size = options.whole_number("stubs", STUBS), options.whole_number("stub_size", STUB_SIZE)
    if stubs < 1 or stub_size < 1:
        raise LocalProtocolError(f"network {options.name}: give 1 or more stubs, and a stub_size of 1 or more")
    generator = generator_for(options.seed)
    members = options.members
    transit = max(1, round(members / (1 + stubs * stub_size)))
    backbone = _backbone(generator, transit)
    branches = [
        _stub(generator, nodes, at)
        for at, nodes in zip(
            np.repeat(np.arange(transit), stubs).tolist(),
            np.array_split(np.arange(transit, members), transit * stubs),
            strict=True,
        )
        if len(nodes)
    ]
    ends = generator.permutation(members)[np.concatenate([backbone, *branches])]
    edges = with_delays(options, generator, ends)
    if options.has("transit"):
        edges.delay_ns[: len(backbone)] = parse_delay(options.values["transit"]).draw_ns(generator, len(backbone))
    return from_edges(edges, name=options.name, nodes=members, hosts=every_node_hosts(members))


def _backbone(generator: Generator, transit: int) -> Ends:
    domains = np.array_split(np.arange(transit), -(-transit // TRANSIT_DOMAIN))
    inside = [_domain(generator, nodes, TRANSIT_PROBABILITY) for nodes in domains]
    between = [
        [int(generator.choice(one)), int(generator.choice(other))] for one, other in itertools.combinations(domains, 2)
    ]
    return np.concatenate([*inside, np.array(between, np.int64).reshape(-1, 2)])


def _stub(generator: Generator, nodes: NDArray[np.int64], transit_node: int) -> Ends:
    uplink = np.array([[transit_node, int(generator.choice(nodes))]], np.int64)
    return np.concatenate([uplink, _domain(generator, nodes, STUB_PROBABILITY)])


def _domain(generator: Generator, nodes: NDArray[np.int64], probability: float) -> Ends:
    """A connected random graph over these nodes."""
    drawn = draw_pairs(generator, len(nodes), lambda _node: probability)
    ends: Ends = nodes[np.concatenate([drawn, joining_edges(generator, len(nodes), drawn)])]
    return ends

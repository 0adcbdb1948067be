"""Random regular graph with hubs, the network of the rasm paper (rasm §4): one hop per round, unreliable links, nodes.

Every node has `degree` neighbours; degree 2 is a ring. A share `hubs` of the nodes never crashes, and the links at a
hub lose a message with probability 1e-4 (or `loss`, if that is less). For the other nodes and links the paper gives
loss and crash probabilities of "approximately" some value v: each is drawn uniformly from (1 − spread) v …
(1 + spread) v, by default 0.5 v … 1.5 v; both directions of a link share it. A round lasts 1 ms, and sending takes no
time.

A message crosses a link if neither of its two ends crashes in that step and the link does not lose it: with
probability (1 − P_i)(1 − L_ij)(1 − P_j). With `sampled=0` the protocols know the probabilities but no failure happens;
studies use this to compute the reliability of a tree by formula.

Copies of a message that reach a node in the same round arrive in an order that is random for each link. With
`ties=link` they arrive in the order of the link numbers, which follow the numbers of their source nodes: then all
nodes prefer the same neighbours, and Plumtree, which keeps the first copy, grows a tree of few inner nodes with many
children, among which they have to divide their quotas.

How the graph is drawn: the nodes in random order form a ring lattice of that degree; then ten random swaps per edge
(a–b, c–d → a–d, c–b) follow that keep the graph simple. If the graph is not connected, it is drawn again.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import allocating
from cubecast.networks.delays import NS_PER_MS, constant
from cubecast.networks.network import Edges, Network, Unreliability, components, every_node_hosts, generator_for
from cubecast.networks.network import from_edges as network_of_edges
from cubecast.networks.options import Options

ROUND = constant(NS_PER_MS)
NO_TIME_BPS = 1e18
HUB_LOSS = 1e-4
SPREAD = 0.5
SWAPS_PER_EDGE = 10
TRIES_MAX = 100


def from_options(options: Options) -> Network:
    degree = options.whole_number("degree", 4)
    members = options.members
    if not 2 <= degree < members or members * degree % 2:
        raise LocalProtocolError(
            f"degree={degree} in network {options.name}: give one from 2 to {members - 1} "
            f"whose product with the {members} members is even"
        )
    generator = generator_for(options.seed)
    ends = _regular_graph(generator, members, degree)
    return network_of_edges(
        Edges(
            ends=ends,
            delay_ns=options.delay(ROUND).draw_ns(generator, len(ends)),
            bandwidth_bps=np.full(len(ends), options.bandwidth_bps(NO_TIME_BPS)),
        ),
        name=options.name,
        nodes=members,
        hosts=every_node_hosts(members),
        unreliability=_unreliability(options, generator, ends),
        random_ties=_has_random_ties(options),
    )


def _has_random_ties(options: Options) -> bool:
    ties = options.values.get("ties", "random")
    if ties not in ("random", "link"):
        raise LocalProtocolError(f"ties={ties} in network {options.name}: choose random or link")
    return ties == "random"


def _unreliability(options: Options, generator: Generator, ends: NDArray[np.int64]) -> Unreliability:
    values = {key: options.number(key, default) for key, default in (("hubs", 0.2), ("loss", 0.0), ("crash", 0.0))}
    for key, value in values.items():
        if not 0 <= value <= (1 if key == "hubs" else 0.5):
            raise LocalProtocolError(
                f"{key}={value:g} in network {options.name}: it is a probability, at most one half"
            )
    hub = np.zeros(options.members, np.bool_)
    hub[generator.permutation(options.members)[: round(values["hubs"] * options.members)]] = True
    spread = options.probability("spread", SPREAD)
    crash = values["crash"] * generator.uniform(1 - spread, 1 + spread, options.members)
    loss = values["loss"] * generator.uniform(1 - spread, 1 + spread, len(ends))
    loss[hub[ends].any(axis=1)] = min(HUB_LOSS, values["loss"])
    return Unreliability(loss=loss, crash=np.where(hub, 0.0, crash), sampled=options.whole_number("sampled", 1) != 0)


def _regular_graph(generator: Generator, nodes: int, degree: int) -> NDArray[np.int64]:
    for _ in range(TRIES_MAX):
        ends = _lattice(generator.permutation(nodes), degree)
        if degree > 2:
            _swap(generator, ends)
        if components(nodes, ends).max() == 0:
            return ends
    raise LocalProtocolError(f"no connected graph of degree {degree} over {nodes} nodes was found: choose another seed")


def _lattice(order: NDArray[np.int64], degree: int) -> NDArray[np.int64]:
    """Join each node of the ring to degree/2 nodes on either side and, for an odd degree, to the opposite node."""
    nodes = len(order)
    steps = [np.stack([order, np.roll(order, -step)], axis=1) for step in range(1, degree // 2 + 1)]
    if degree % 2:
        steps.append(np.stack([order[: nodes // 2], order[nodes // 2 :]], axis=1))
    return np.concatenate(steps)


def _swap(generator: Generator, ends: NDArray[np.int64]) -> None:
    """Exchange the ends of random pairs of edges, in place, where the graph stays simple."""
    picks = generator.integers(0, len(ends), (SWAPS_PER_EDGE * len(ends), 2))
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    neighbours = both[:, 1].reshape(int(ends.max()) + 1, -1).copy()  # every node has as many
    _exchange_ends(ends, picks, neighbours)


@allocating
def _exchange_ends(ends: NDArray[np.int64], picks: NDArray[np.int64], neighbours: NDArray[np.int64]) -> None:
    for pick in range(picks.shape[0]):
        one = picks[pick, 0]
        other = picks[pick, 1]
        a, b, c, d = ends[one, 0], ends[one, 1], ends[other, 0], ends[other, 1]
        if a == d or c == b or _place(neighbours, a, d) >= 0 or _place(neighbours, c, b) >= 0:
            continue
        neighbours[a, _place(neighbours, a, b)] = d
        neighbours[b, _place(neighbours, b, a)] = c
        neighbours[c, _place(neighbours, c, d)] = b
        neighbours[d, _place(neighbours, d, c)] = a
        ends[one, 1] = d
        ends[other, 1] = b


@allocating
def _place(neighbours: NDArray[np.int64], node: int, other: int) -> int:
    """The position of `other` among the neighbours of `node`, or −1."""
    for place in range(neighbours.shape[1]):
        if neighbours[node, place] == other:
            return place
    return -1

"""Networks by name: `random:p=0.02`, `wan-tree:nodes=1000`, `file:net.edges` and the rest.

A kind is one entry in `_KINDS`; its builder reads the options after the colon. `add_network` adds the user's own kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.networks import (
    flat,
    from_file,
    geometric,
    random_graph,
    real_topology,
    regions,
    regular,
    rounds,
    transit_stub,
    wan_tree,
)
from cubecast.networks.network import MEMBERS_MAX, NODES_MAX, Network
from cubecast.networks.options import Options


class NetworkKind(NamedTuple):
    """A kind of network: its builder, the options it accepts, its spelling and a one-line description."""

    build: Callable[[Options], Network]
    keys: tuple[str, ...]
    """The names of the options that it accepts."""
    spelling: str
    description: str


_KINDS: dict[str, NetworkKind] = {
    "random": NetworkKind(
        random_graph.from_options,
        ("p", "degree", "delay", "bandwidth"),
        "random:p=0.02 | random:degree=5[,delay=0-1ms][,bandwidth=100e6]",
        "flat random graph by edge probability or average degree, made connected",
    ),
    "waxman": NetworkKind(
        geometric.waxman,
        ("alpha", "beta", "degree", "delay", "bandwidth"),
        "waxman:alpha=0.1 | waxman:degree=5[,beta=0.2][,delay=0-1ms][,bandwidth=100e6]",
        "random places, edges alpha·exp(−d / (beta·L)) likely at distance d (Waxman), made connected",
    ),
    "locality": NetworkKind(
        geometric.locality,
        ("near", "far", "degree", "ratio", "radius", "delay", "bandwidth"),
        "locality:near=0.1,far=0.01 | locality:degree=5[,ratio=10][,radius=0.2][,delay=0-1ms][,bandwidth=100e6]",
        "random places, edges likelier within the radius than beyond (GT-ITM's locality), made connected",
    ),
    "transit-stub": NetworkKind(
        transit_stub.from_options,
        ("stubs", "stub_size", "transit", "delay", "bandwidth"),
        "transit-stub[:stubs=3][,stub_size=8][,transit=5-20ms][,delay=0-1ms][,bandwidth=100e6]",
        "transit domains with stub domains at their nodes (GT-ITM), every node a member",
    ),
    "topohub": NetworkKind(
        real_topology.from_options,
        ("name", "bandwidth"),
        "topohub:name=sndlib/germany50[,bandwidth=1e9]",
        "a real network with delays from its lengths (Topology Zoo, SNDlib, …), from the extra topologies",
    ),
    "regions": NetworkKind(
        regions.from_options,
        ("count", "delay", "bandwidth"),
        "regions[:count=10][,delay=0.5ms][,bandwidth=1e9]",
        "members in regions of a public cloud, with its published round-trip times between them",
    ),
    "star": NetworkKind(
        regular.star,
        ("delay", "bandwidth"),
        "star[:delay=1ms][,bandwidth=100e6]",
        "rank 0 in the middle, a link to every other member",
    ),
    "chain": NetworkKind(
        regular.chain,
        ("delay", "bandwidth"),
        "chain[:delay=1ms][,bandwidth=100e6]",
        "members in a row, a link between each and the next",
    ),
    "flat": NetworkKind(
        flat.from_options,
        ("delay",),
        "flat[:delay=1ms | delay=0.5-1.5ms | delay=exp:1ms]",
        "one hop between any two members, no links and no queues: for very large groups",
    ),
    "wan-tree": NetworkKind(
        wan_tree.from_options,
        ("nodes", "fill", "order", "delay", "bandwidth"),
        "wan-tree[:nodes=1000][,fill=even][,order=random][,delay=5ms][,bandwidth=30e3]",
        "slow tree with three children a node and node costs; with nodes= rank 0 is the root, other members are random",
    ),
    "regular": NetworkKind(
        rounds.from_options,
        ("degree", "hubs", "loss", "crash", "spread", "ties", "delay", "bandwidth", "sampled"),
        "regular:degree=4[,hubs=0.2][,loss=0.02][,crash=0.01][,spread=0.5][,ties=random][,delay=1ms][,sampled=0]",
        "random regular graph, one hop per round; links lose, nodes but the hubs crash",
    ),
    "file": NetworkKind(
        from_file.from_options,
        (),
        "file:PATH",
        "links from an edge list (from to [delay_ms [bandwidth_bps]]) or a .graphml file",
    ),
}


_OWN: dict[str, NetworkKind] = {}
"""Kinds that `add_network` added."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_LARGE = ("flat", "star", "chain", "wan-tree", "regular")
"""Kinds that need no table of routes."""


def network_kinds() -> list[tuple[str, str]]:
    """The spec of each kind, and a one-line description."""
    return [(kind.spelling, kind.description) for kind in (_KINDS | _OWN).values()]


def add_network(name: str, kind: NetworkKind) -> None:
    """Add a kind of network by name; it replaces a kind that was added under this name before."""
    if name in _KINDS or not _NAME.fullmatch(name):
        raise LocalProtocolError(
            f"network {name!r}: choose a name of lowercase letters, digits and '-' other than {', '.join(_KINDS)}"
        )
    _OWN[name] = kind


def build_network(spec: str, *, members: int, seed: int) -> Network:
    """The network of `spec`, with `members` members; the same seed gives the same network, bit for bit."""
    if members < 2:
        raise LocalProtocolError(f"{members} members: a group needs at least 2")
    if members > MEMBERS_MAX:
        raise LocalProtocolError(f"{members} members: a group has at most {MEMBERS_MAX}")
    name, _, words = spec.partition(":")
    kinds = _KINDS | _OWN
    if name not in kinds or not spec.isprintable():
        raise LocalProtocolError(f"unknown network {spec!r}: choose one of {', '.join(kinds)}")
    if name not in _LARGE and members > NODES_MAX:
        raise LocalProtocolError(
            f"{members} members in network {spec}: it reaches {NODES_MAX}, for larger groups use {', '.join(_LARGE)}"
        )
    kind = kinds[name]
    values = {"path": words} if name == "file" else _parse_words(spec, words, kind.keys)
    return kind.build(Options(name=spec, values=values, members=members, seed=seed))


def _parse_words(spec: str, words: str, keys: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words.split(",") if words else []:
        key, equals, value = word.partition("=")
        if key not in keys:
            raise LocalProtocolError(f"unknown option {word!r} in network {spec}: choose from {', '.join(keys)}")
        if not equals or not value:
            raise LocalProtocolError(f"option {key} in network {spec} has no value: write {key}=VALUE")
        if key in values:
            raise LocalProtocolError(f"option {key} in network {spec} is given twice: keep one")
        values[key] = value
    return values

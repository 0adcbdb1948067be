"""Real networks from the package `topohub`: Internet Topology Zoo, SNDlib, CAIDA, backbones; and its Gabriel graphs.

P. Jurkiewicz, "TopoHub: A repository of reference Gabriel graph and real-world topologies for networking research",
SoftwareX 24 (2023) 101540. The data ships inside the package, which is an extra: `pip install cubecast[topologies]`.

The delay of a link is its length times 4.76 µs per kilometre, the speed of light in fibre (guo §5.1). Members are at
random nodes; if there are more members than nodes, access edges link the other members to nodes (`networks.sites`). A
topology that is not connected is rejected.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.extras import named
from cubecast.networks.delays import NS_PER_MS
from cubecast.networks.network import Edges, Network, components, generator_for
from cubecast.networks.options import Options
from cubecast.networks.sites import members_at_sites

NS_PER_KM = 4_760
BANDWIDTH_BPS = 1e9
ACCESS_NS = NS_PER_MS // 10


def from_options(options: Options) -> Network:
    topology = _load(options)
    number = {str(node["id"]): place for place, node in enumerate(topology["nodes"])}
    lengths: dict[tuple[int, int], float] = {}
    for edge in topology["edges"]:
        one, other = sorted((number[str(edge["source"])], number[str(edge["target"])]))
        if one != other:  # only the shortest of parallel links is used
            lengths[one, other] = min(float(edge["dist"]), lengths.get((one, other), np.inf))
    ends = np.array(list(lengths), np.int64).reshape(-1, 2)
    parts = int(components(len(number), ends).max()) + 1
    if parts > 1:
        raise LocalProtocolError(f"network {options.name} falls into {parts} parts: choose another topology")
    bandwidth_bps = options.bandwidth_bps(BANDWIDTH_BPS)
    edges = Edges(
        ends=ends,
        delay_ns=np.rint(np.array(list(lengths.values())) * NS_PER_KM).astype(np.int64),
        bandwidth_bps=np.full(len(ends), bandwidth_bps),
    )
    return members_at_sites(
        options, generator_for(options.seed), len(number), edges, access_ns=ACCESS_NS, access_bps=bandwidth_bps
    )


def _load(options: Options) -> dict[str, Any]:
    name = options.values.get("name", "")
    with named(f"network {options.name}"):
        topohub = importlib.import_module("topohub")
    try:
        if name.count("/") not in (1, 2) or ".." in name or name.startswith("/"):
            raise KeyError(name)
        found: dict[str, Any] = topohub.get(name)
    except (KeyError, OSError, ValueError):
        raise LocalProtocolError(
            f"name={name} in network {options.name}: topohub has no such topology, give one such as topozoo/Abilene, "
            "sndlib/germany50 or gabriel/100/0"
        ) from None
    return found

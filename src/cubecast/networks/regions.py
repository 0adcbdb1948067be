"""Members in the regions of a public cloud: a matrix of round-trip times between them.

IBM Cloud publishes these average round-trip times in milliseconds for its multizone regions, from 27 July to 25 August
2024 (IBM Cloud Docs, "Network latency dashboards", repository ibm-cloud-docs/vpc, file
`_include-segments/network-latency.md`). If the two directions differ, the table has their mean. The delay of a link
between two regions is half the round-trip time.

Every region is a router, linked to all others; its members, rank r in region r mod `count`, are linked to it. With the
access delay of 0.5 ms, a round trip inside a region takes 2 ms, as between the zones of a region (same source:
1.8…2.2 ms).
"""

from __future__ import annotations

import itertools

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import NS_PER_MS, constant
from cubecast.networks.network import Edges, Network, every_node_hosts, from_edges, generator_for
from cubecast.networks.options import Options

REGIONS = ("Dallas", "Toronto", "Washington", "Frankfurt", "London", "Madrid", "Osaka", "Sydney", "Tokyo", "Sao Paulo")
ROUND_TRIP_MS = (
    (34.0, 31.0, 123.0, 113.0, 120.5, 150.0, 186.0, 143.0, 145.0),
    (19.0, 93.0, 82.5, 107.0, 168.5, 214.5, 162.0, 128.5),
    (91.0, 75.0, 87.5, 172.0, 214.0, 165.0, 118.5),
    (13.0, 29.0, 231.5, 249.5, 233.0, 197.0),
    (27.0, 243.5, 261.0, 243.5, 187.5),
    (257.0, 275.0, 257.0, 208.5),
    (122.0, 9.0, 292.0),
    (115.0, 328.0),
    (283.5,),
)
"""Row i: from region i to the regions after it."""
ACCESS = constant(NS_PER_MS // 2)
BANDWIDTH_BPS = 1e9


def from_options(options: Options) -> Network:
    count = options.whole_number("count", len(REGIONS))
    if not 2 <= count <= len(REGIONS):
        raise LocalProtocolError(
            f"count={count} in network {options.name}: give 2 to {len(REGIONS)}, the first of {', '.join(REGIONS)}"
        )
    members = options.members
    ranks = np.arange(members)
    pairs = list(itertools.combinations(range(count), 2))
    between = members + np.array(pairs, np.int64)
    access = np.stack([ranks, members + ranks % count], axis=1)
    round_trips = np.array([ROUND_TRIP_MS[one][other - one - 1] for one, other in pairs])
    ends = np.concatenate([access, between])
    edges = Edges(
        ends=ends,
        delay_ns=np.concatenate(
            [
                options.delay(ACCESS).draw_ns(generator_for(options.seed), members),
                np.rint(round_trips * NS_PER_MS / 2).astype(np.int64),
            ]
        ),
        bandwidth_bps=np.full(len(ends), options.bandwidth_bps(BANDWIDTH_BPS)),
    )
    return from_edges(edges, name=options.name, nodes=members + count, hosts=every_node_hosts(members))

"""Eight members in two regions, dealt as badly as can be: every link of the hypercube crosses between the regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubecast.protocol.overlays import hypercube
from tests.live.bad_network import BadNetwork

REGION = {0, 3, 5, 6}
"""Of eight ranks, those with an even number of ones in binary: all their neighbours in a hypercube have an odd one."""
LEAVER = 8
"""A ninth member, which leaves."""
MEASURED_S = 3.0
"""After this time every link has measured its round-trip time."""


def two_regions(network: BadNetwork, delay_s: float) -> None:
    """A delay between the regions, in each direction."""
    for link in network.between(REGION, set(range(9)) - REGION):
        link.delay_s = delay_s


def crossing(addresses: list[str], members: Sequence[Sequence[Any]]) -> int:
    """The links of a hypercube over these members that go from one region to the other."""
    places = [addresses.index(name) for name, _ in members]
    cube = hypercube(len(places))
    ends = [
        (places[rank], places[int(other)])
        for rank in range(len(places))
        for other in cube.neighbours[cube.offsets[rank] : cube.offsets[rank + 1]]
    ]
    return sum((one in REGION) != (other in REGION) for one, other in ends) // 2

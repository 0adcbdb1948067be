"""The shape of the logical hypercube (cube §3.1 and §3.3): degrees, diameter, and node-disjoint paths.

By Menger's theorem the number of node-disjoint paths between two members that are not neighbours is the smallest number
of other members whose crash separates them: a maximum flow in which at most one path passes through each member. The
minimum over all pairs is the vertex connectivity. A cut smaller than k + 1 cannot contain all of k + 1 members, so it
is enough to examine the pairs with one of the first k + 1 members, where k is the smallest degree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow, shortest_path

from cubecast.protocol.overlays import hypercube, hypercube_dimension


@dataclass(frozen=True, kw_only=True)
class OverlayShape:
    """What §3.3 promises of an incomplete hypercube."""

    dimension: int
    degree_min: int
    degree_max: int
    diameter: int
    disjoint_paths: int


def hypercube_shape(members: int) -> OverlayShape:
    """The shape of the hypercube over this many members, at least three."""
    overlay = hypercube(members)
    degrees = np.diff(overlay.offsets)
    links = csr_array((np.ones(len(overlay.neighbours), np.int32), overlay.neighbours, overlay.offsets))
    return OverlayShape(
        dimension=hypercube_dimension(members),
        degree_min=int(degrees.min()),
        degree_max=int(degrees.max()),
        diameter=int(shortest_path(links, unweighted=True).max()),
        disjoint_paths=_connectivity(links.toarray(), int(degrees.min())),
    )


def _connectivity(links: npt.NDArray[np.int32], degree_min: int) -> int:
    """The vertex connectivity; in a complete graph n − 1."""
    members = len(links)
    # Member v becomes two nodes, v (in) and members + v (out), joined by a link of capacity 1.
    inside = np.eye(members, dtype=np.int32)
    nothing = np.zeros_like(inside)
    flows = csr_array(np.block([[nothing, inside], [links, nothing]]))
    found = members - 1
    for source in range(min(degree_min + 1, members)):
        for sink in range(members):
            if sink != source and not links[source, sink]:
                found = min(found, int(maximum_flow(flows, members + source, sink).flow_value))
    return found

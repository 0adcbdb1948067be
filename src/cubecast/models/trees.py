"""The balanced tree of the structured protocols (guo §4.3): ranks breadth first, at most b children per node.

The children of rank v are those of b·v + 1 … b·v + b that exist, so every level except the last is full. The paper's
formulas are for complete trees; these functions work for any n.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.models.checks import require_whole

IntArray = NDArray[np.int64]


def require_tree(members: int, degree: int) -> None:
    """Validate the number of members and the branching factor of a tree."""
    require_whole("members", members, least=2)
    require_whole("degree", degree, least=1)


def parents(members: int, degree: int) -> IntArray:
    """Parent of every rank; the root's is −1."""
    require_tree(members, degree)
    parent: IntArray = (np.arange(members, dtype=np.int64) - 1) // degree
    return parent


def depths(members: int, degree: int) -> IntArray:
    """Depth of every rank; the last one is the height (p in guo §4.3)."""
    parent = parents(members, degree)
    depth = np.zeros(members, dtype=np.int64)
    for rank in range(1, members):
        depth[rank] = depth[parent[rank]] + 1
    return depth


def height(members: int, degree: int) -> int:
    """Height p of the tree: n = 1 + b + … + b^p when it is complete."""
    return int(depths(members, degree)[-1])


def train_steps(members: int, degree: int) -> int:
    """Steps of S_Train: START, the running minimum along siblings and up, INFO; b·p + 2 when the tree is complete.

    A member sends one step after the last of: START, its last child's ACK2, its elder sibling's ACK1 (guo Fig 4.12).
    """
    require_tree(members, degree)
    handed_up = np.ones(members, dtype=np.int64)  # the step at which a member's children are done; START is step 1
    for parent in range((members - 2) // degree, -1, -1):
        sent = 1
        for child in range(degree * parent + 1, min(degree * parent + degree, members - 1) + 1):
            sent = 1 + max(sent, int(handed_up[child]))
        handed_up[parent] = sent
    return int(handed_up[0]) + 1

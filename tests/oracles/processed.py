"""Messages that each member processes in a round: the exact counts of guo Table 4.1."""

from __future__ import annotations

import numpy as np

from cubecast.models import trees
from cubecast.models.complexity import GroupSize


def child_counts(members: int, degree: int) -> trees.IntArray:
    """Number of children of every rank."""
    counts: trees.IntArray = np.bincount(trees.parents(members, degree)[1:], minlength=members).astype(np.int64)
    return counts


def messages_processed(protocol: str, group: GroupSize) -> trees.IntArray:
    """Messages every rank sends plus receives in a round, exactly (Table 4.1; a multicast reaches its sender too)."""
    n = group.members
    if protocol == "coord":
        return np.array([n + 3] + [3] * (n - 1), dtype=np.int64)
    if protocol == "full_dist":
        return np.full(n, n + 1, dtype=np.int64)
    if protocol == "train":
        return np.full(n, 4, dtype=np.int64)
    assert protocol in {"s_coord", "s_train"}, f"{protocol} has no exact counts"
    children = child_counts(n, group.degree)
    ranks = np.arange(n)
    # All receive START and INFO; the root sends those two, every other member sends one ACK.
    processed = np.where(ranks == 0, 4, 3)
    if protocol == "s_coord":
        return processed + children
    is_younger = (ranks > 0) & ((ranks - 1) % group.degree > 0)
    return processed + (children > 0) + is_younger

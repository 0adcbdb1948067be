"""The traffic of a protocol between ranks, by which a placement of the ranks is judged.

A `Traffic` lists directed pairs; `weight[k]` messages go from `source[k]` to `target[k]` in a round of a stability
protocol, or for one multicast of a data protocol. If all pairs carry the same traffic, because every member sends to
every other, no placement is better than another: such protocols declare none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.protocol.overlays import Overlay


class Traffic(NamedTuple):
    """Directed pairs of ranks and their weights; see the module."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float64]


def pairs(source: NDArray[np.int64], target: NDArray[np.int64], weight: float = 1.0) -> Traffic:
    """The same weight on every pair."""
    return Traffic(np.asarray(source, np.int64), np.asarray(target, np.int64), np.full(len(source), weight))


def over_links(overlay: Overlay, weight: float = 1.0) -> Traffic:
    """Both directions of every link of an overlay."""
    ranks = np.arange(len(overlay.offsets) - 1)
    return pairs(np.repeat(ranks, np.diff(overlay.offsets)), overlay.neighbours.astype(np.int64), weight)


def to_all(root: int, members: int, weight: float = 1.0) -> Traffic:
    """Multicasts of one member."""
    others = np.delete(np.arange(members), root)
    return pairs(np.full(len(others), root), others, weight)


def up_tree(parents: NDArray[np.int64], weight: float = 1.0) -> Traffic:
    """Messages from every member except the root to its parent."""
    children = np.flatnonzero(parents >= 0)
    return pairs(children, parents[children], weight)


def together(*parts: Traffic) -> Traffic:
    """The combined traffic of several parts."""
    return Traffic(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

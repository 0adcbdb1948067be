"""Make a random graph connected: every smaller component gets an edge to the largest one.

The papers do not say what they do with a disconnected graph. A sparse random graph has one giant component and many
small ones, mostly single nodes. If the small components were joined to each other, whole chains of them would hang
behind one link, which every message to them crosses; the delay of a round would then measure the repair, not the
graph.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cubecast.networks.network import components


def joining_edges(generator: Generator, nodes: int, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """One edge from a random node of every smaller component to a random node of the largest (the first, if tied)."""
    component = components(nodes, drawn)
    sizes = np.bincount(component)
    largest = int(sizes.argmax())
    by_component = np.argsort(component, kind="stable")
    ends = np.cumsum(sizes)
    others = np.delete(np.arange(len(sizes)), largest)
    small = by_component[generator.integers((ends - sizes)[others], ends[others])]
    large = by_component[generator.integers(ends[largest] - sizes[largest], ends[largest], len(others))]
    return np.stack([large, small], axis=1).astype(np.int64)

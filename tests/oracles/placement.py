"""The cheapest placement by trying all."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from cubecast.protocol.traffic import Traffic


def cost_of(at: NDArray[np.int64], traffic: Traffic, distances: NDArray[np.float32]) -> float:
    """Σ messages · distance, pair by pair."""
    rows = zip(traffic.source, traffic.target, traffic.weight, strict=True)
    return sum(float(weight) * float(distances[at[source], at[target]]) for source, target, weight in rows)


def least_cost(traffic: Traffic, distances: NDArray[np.float32]) -> float:
    """The cost of the best of all n! placements."""
    members = range(len(distances))
    return min(cost_of(np.array(at), traffic, distances) for at in permutations(members))

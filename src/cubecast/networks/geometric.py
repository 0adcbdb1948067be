"""Waxman and locality graphs: random positions in a square, near nodes joined more often (GT-ITM, INFOCOM 1996).

| model    | probability of an edge between nodes at distance d, L the diagonal of the square |
|----------|----------------------------------------------------------------------------------|
| waxman   | alpha · exp(−d / (beta · L)) (Waxman 1988)                                        |
| locality | `near` where d ≤ radius · L, `far` beyond                                         |

With `degree` the probabilities are scaled so that the expected average degree is the given one: `alpha` is calculated
from the positions, or `near` and `far` are, with `near` = `ratio` times `far`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import Network, generator_for
from cubecast.networks.options import Options
from cubecast.networks.pair_graph import joined_pairs

Floats = NDArray[np.float64]
DIAGONAL = math.sqrt(2.0)
BETA = 0.2
RADIUS = 0.2
RATIO = 10.0
TOLERANCE = 1e-6
SCALE_MAX = 1e300  # where even the farthest pair is joined, if its shape is above 0 at all
BISECTIONS = 40


def waxman(options: Options) -> Network:
    beta = options.number("beta", BETA)
    if not 0 < beta < math.inf:
        raise LocalProtocolError(f"beta={options.values['beta']} in network {options.name}: give a number above 0")
    _give_one_of(options, "alpha", "waxman:alpha=0.1 or waxman:degree=5")
    return _scaled(options, lambda distance: np.exp(-distance / (beta * DIAGONAL)), options.probability("alpha", 1.0))


def locality(options: Options) -> Network:
    radius = options.probability("radius", RADIUS)
    _give_one_of(options, "near", "locality:near=0.1,far=0.01 or locality:degree=5")
    if options.has("degree"):
        ratio = options.number("ratio", RATIO)
        if not 1 <= ratio < math.inf:
            raise LocalProtocolError(
                f"ratio={options.values['ratio']} in network {options.name}: give 1 or more, as near edges are likelier"
            )
        near, far = 1.0, 1.0 / ratio
    else:
        near, far = options.probability("near", 0.0), options.probability("far", 0.0)
    return _scaled(options, lambda distance: np.where(distance <= radius * DIAGONAL, near, far), 1.0)


def _give_one_of(options: Options, key: str, example: str) -> None:
    if options.has(key) == options.has("degree"):
        raise LocalProtocolError(f"network {options.name}: give one of {key} and degree, as in {example}")


def _scaled(options: Options, shape: Callable[[Floats], Floats], scale: float) -> Network:
    """Draw edges with probability `scale · shape(distance)`; a given degree determines the scale."""
    generator = generator_for(options.seed)
    places = generator.random((options.members, 2))

    def shapes(node: int) -> Floats:
        return shape(np.hypot(*(places[node + 1 :] - places[node]).T))

    if options.has("degree"):
        scale = _scale_for(options.average_degree() * options.members / 2, shapes, options.members)
    return joined_pairs(options, generator, lambda node: scale * shapes(node))


def _scale_for(edges: float, shapes: Callable[[int], Floats], nodes: int) -> float:
    """The scale that gives this expected number of edges; found by bisection where a probability would exceed 1."""

    def expected(scale: float) -> float:
        return math.fsum(float(np.minimum(1.0, scale * shapes(node)).sum()) for node in range(nodes - 1))

    scale = edges / expected(1.0)
    if scale <= 1:
        return scale
    low, high = 1.0, scale
    while expected(high) < edges * (1 - TOLERANCE) and high < SCALE_MAX:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < edges else (low, middle)
    return high

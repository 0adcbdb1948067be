"""The shape of the hypercube against a slow oracle: all pairs, all sets of crashed members."""

from __future__ import annotations

import itertools

import pytest

from cubecast.models.overlay_shape import hypercube_shape
from cubecast.protocol.overlays import hypercube


def _neighbours(members: int) -> dict[int, set[int]]:
    overlay = hypercube(members)
    return {
        rank: {int(other) for other in overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]]}
        for rank in range(members)
    }


def _reached(links: dict[int, set[int]], start: int, crashed: set[int]) -> dict[int, int]:
    """The members that can be reached, with their distance."""
    distances = {start: 0}
    queue = [start]
    for rank in queue:
        for other in links[rank] - crashed - set(distances):
            distances[other] = distances[rank] + 1
            queue.append(other)
    return distances


def _smallest_cut(links: dict[int, set[int]]) -> int:
    for size in range(len(links) - 1):
        for crashed in map(set, itertools.combinations(links, size)):
            start = next(rank for rank in links if rank not in crashed)
            if len(_reached(links, start, crashed)) < len(links) - size:
                return size
    return len(links) - 1


@pytest.mark.parametrize("members", [3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17])
def test_the_shape_is_what_trying_everything_finds(members: int) -> None:
    shape, links = hypercube_shape(members), _neighbours(members)
    degrees = [len(own) for own in links.values()]
    assert (shape.degree_min, shape.degree_max) == (min(degrees), max(degrees))
    assert shape.diameter == max(max(_reached(links, rank, set()).values()) for rank in links)
    assert shape.disjoint_paths == _smallest_cut(links)

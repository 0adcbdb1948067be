"""Whom a member tells every tick how far it is: all in a small view, its neighbours on a hypercube in a large one.

The hypercube is over the ranks of the view, incomplete where their number is no power of two (causal §3.2): about
log2 n neighbours for each, and nobody further away than ⌈log2 n⌉ hops. What is told is merged on the way, so everybody
hears of everybody after so many ticks.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=16)
def _cube(members: int) -> tuple[tuple[int, ...], ...]:
    from cubecast.core.overlays import hypercube  # NumPy and Numba, which a small group does without

    cube = hypercube(members)
    bounds = zip(cube.offsets[:-1].tolist(), cube.offsets[1:].tolist(), strict=True)
    return tuple(tuple(cube.neighbours[begin:end].tolist()) for begin, end in bounds)


@lru_cache(maxsize=4096)
def neighbours(rank: int, members: int, cube_from: int) -> tuple[int, ...]:
    """The ranks that this one talks to; who is a neighbour of whom is mutual."""
    if members < max(2, cube_from):
        return tuple(other for other in range(members) if other != rank)
    return _cube(members)[rank]


def hops(members: int, cube_from: int) -> int:
    """Over how many others the word of a member comes at most, when all are up."""
    return 0 if members < max(2, cube_from) else (members - 1).bit_length() - 1

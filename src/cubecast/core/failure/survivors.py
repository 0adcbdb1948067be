"""Whom a member talks to when others have gone: its hypercube neighbours that are left, and the ranks next to it.

The hypercube holds together while fewer members than its smallest degree have gone (cube §3.3). Beyond that a member
may lose all its neighbours: no news would reach it, and rounds of stability would wait for ever. So once anybody has
gone, each member also takes the next rank that is left before it and after it, the last being next to the first.

Invariants: members with the same view agree on who is whose neighbour; whoever is left holds together, by that ring; no
neighbour of the hypercube that is left is given up, so that hardly any link is new.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from cubecast.core.overlays import Overlay, of_ranks

State = TypeVar("State")


def survivors(cube: Overlay, rank: int, members: Sequence[int]) -> Overlay:
    """The neighbours of `rank` among these members, itself one of them; `cube` has those of all ranks at the start."""
    own = of_ranks(cube, np.array([rank]))
    if len(members) == len(cube.offsets) - 1:
        return own
    ranks = sorted(members)
    place = ranks.index(rank)
    beside = {ranks[place - 1], ranks[(place + 1) % len(ranks)]}
    found = sorted((set(own.neighbours.tolist()) & set(ranks)) | beside - {rank})
    return Overlay(np.array([0, len(found)], np.int32), np.array(found, np.int32))


def with_neighbours(state: State, overlay: Overlay) -> State:
    """The state of a core of one member with these neighbours, if it has any; what it knows of those it keeps stays."""
    fields = getattr(state, "_fields", ())
    if "neighbours" not in fields:
        return state
    changes = {"offsets": overlay.offsets, "neighbours": overlay.neighbours}
    if "reached" in fields:
        known = dict(zip(state.neighbours.tolist(), state.reached.tolist(), strict=True))  # type: ignore[attr-defined]
        changes["reached"] = np.array([known.get(other, 0) for other in overlay.neighbours.tolist()], np.int32)
    return state._replace(**changes)  # type: ignore[attr-defined,no-any-return]

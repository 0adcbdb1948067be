"""A placement by dual recursive bisection (Pellegrini 1994): halve the places and the ranks, and each half again.

Places are halved by distance: two places far apart are chosen, and each place goes to the nearer of them. Ranks are
halved so that little traffic crosses: the better of two simple halvings (by rank; depth first along the traffic) is
refined by moving ranks between the halves (Kernighan and Lin 1970). The traffic with other ranks decides which half of
the ranks gets which half of the places; each of these ranks counts as if it were in the middle of its present part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import entry_point
from cubecast.protocol.pair_swaps import Partners

Indices = NDArray[np.int64]

PASSES_MAX = 8  # passes over the ranks in the refinement of one halving


def bisect(partners: Partners, cost: NDArray[np.float32]) -> Indices:
    """Return rank → place, given the cost of a message between each two places."""
    members = len(cost)
    at = np.zeros(members, np.int64)
    middle = np.full(members, _middle(np.arange(members), cost), np.int64)  # of each rank's part
    parts = [(np.arange(members), np.arange(members))]
    while parts:
        halves: list[tuple[Indices, Indices]] = []
        for ranks, places in parts:
            if len(ranks) == 1:
                at[ranks[0]] = places[0]
                continue
            halves += _halve(ranks, places, middle, partners, cost)
        parts = halves
    return at


def _halve(
    ranks: Indices, places: Indices, middle: Indices, partners: Partners, cost: NDArray[np.float32]
) -> list[tuple[Indices, Indices]]:
    """Split a part in two, and note for every rank the middle of its places."""
    near, far = _halve_places(places, cost)
    few, others = _halve_ranks(ranks, len(near), partners)
    middles = _middle(near, cost), _middle(far, cost)
    if len(near) == len(far):
        straight = _outside(few, middles[0], ranks, middle, partners, cost)
        straight += _outside(others, middles[1], ranks, middle, partners, cost)
        crossed = _outside(few, middles[1], ranks, middle, partners, cost)
        crossed += _outside(others, middles[0], ranks, middle, partners, cost)
        if crossed < straight:
            few, others = others, few
    middle[few], middle[others] = middles
    return [(few, near), (others, far)]


def _middle(places: Indices, cost: NDArray[np.float32]) -> int:
    """The place with the least total distance to all the others."""
    among = cost[np.ix_(places, places)]
    return int(places[np.argmin(among.sum(axis=0))])


def _halve_places(places: Indices, cost: NDArray[np.float32]) -> tuple[Indices, Indices]:
    """Split the places into those near one and those near the other of two places that are far apart."""
    one = places[np.argmax(cost[_middle(places, cost), places])]
    other = places[np.argmax(cost[one, places])]
    order = np.argsort(cost[one, places] - cost[other, places], kind="stable")
    half = len(places) // 2
    return np.sort(places[order[:half]]), np.sort(places[order[half:]])


def _halve_ranks(ranks: Indices, size: int, partners: Partners) -> tuple[Indices, Indices]:
    """Split off the first `size` ranks of an order, and refine; of two orders take that with less crossing traffic."""
    members = len(partners.offsets) - 1
    side = np.full(members, -1, np.int8)  # −1: not among these ranks
    gain, moved, trail = np.zeros(members), np.zeros(members, np.int8), np.zeros(members, np.int64)
    best: tuple[float, NDArray[np.int8]] | None = None
    for order in (ranks, _depth_first(ranks, partners)):
        side[order[:size]], side[order[size:]] = 0, 1
        crossing = float(_refine(side, ranks, gain, moved, trail, partners, PASSES_MAX))
        if best is None or crossing < best[0]:
            best = crossing, side[ranks].copy()
    assert best is not None
    return ranks[best[1] == 0], ranks[best[1] == 1]


def _depth_first(ranks: Indices, partners: Partners) -> Indices:
    """Order the ranks depth first along their traffic, so that neighbours in the list exchange much."""
    left = set(ranks.tolist())
    found: list[int] = []
    for first in ranks.tolist():
        waiting = [first]
        while waiting:
            rank = waiting.pop()
            if rank not in left:
                continue
            left.remove(rank)
            found.append(rank)
            row = partners.partner[partners.offsets[rank] : partners.offsets[rank + 1]]
            waiting += [one for one in row[::-1].tolist() if one in left]
    return np.array(found, np.int64)


@entry_point
def _refine(side, ranks, gain, moved, trail, partners, passes):
    """Kernighan and Lin: move the rank that gains most, from either side in turn; go back to the best state.

    Return the weight that crosses in the end.
    """
    for _ in range(passes):
        for rank in ranks:
            moved[rank] = 0
            gain[rank] = _gain(side, rank, partners)
        best = 0.0
        best_moves = 0
        total = 0.0
        moves = 0
        while moves + 2 <= ranks.shape[0]:
            for turn in range(2):
                chosen = np.int64(-1)
                for rank in ranks:
                    if moved[rank] == 0 and side[rank] == turn and (chosen < 0 or gain[rank] > gain[chosen]):
                        chosen = rank
                if chosen < 0:
                    break
                total += gain[chosen]
                _move(side, chosen, gain, partners)
                moved[chosen] = 1
                trail[moves] = chosen
                moves += 1
            if moves % 2 == 1 or chosen < 0:
                break
            if total > best + 1e-9:
                best = total
                best_moves = moves
        for place in range(moves - 1, best_moves - 1, -1):
            side[trail[place]] = 1 - side[trail[place]]
        if best_moves == 0:
            break
    crossing = 0.0
    for rank in ranks:
        for k in range(partners.offsets[rank], partners.offsets[rank + 1]):
            if side[partners.partner[k]] == 1 - side[rank]:
                crossing += partners.weight[k] / 2
    return crossing


@entry_point
def _gain(side, rank, partners):
    """How much less weight would cross if the rank moved to the other side."""
    gain = 0.0
    for k in range(partners.offsets[rank], partners.offsets[rank + 1]):
        other = side[partners.partner[k]]
        weight = partners.weight[k]
        if other == side[rank]:
            gain -= weight
        elif other == 1 - side[rank]:
            gain += weight
    return gain


@entry_point
def _move(side, rank, gain, partners):
    """Move a rank to the other side, and update the gains of its partners."""
    side[rank] = 1 - side[rank]
    gain[rank] = -gain[rank]
    for k in range(partners.offsets[rank], partners.offsets[rank + 1]):
        partner = partners.partner[k]
        if side[partner] >= 0:
            weight = 2.0 * partners.weight[k]
            gain[partner] += weight if side[partner] != side[rank] else -weight


def _outside(
    half: Indices, place: int, ranks: Indices, middle: Indices, partners: Partners, cost: NDArray[np.float32]
) -> float:
    """The cost, from this place, of the traffic between half of the ranks and all other ranks except `ranks`."""
    inside = np.zeros(len(partners.offsets) - 1, bool)
    inside[ranks] = True
    rows = [np.arange(partners.offsets[rank], partners.offsets[rank + 1]) for rank in half.tolist()]
    links = np.concatenate(rows) if rows else np.empty(0, np.int64)
    links = links[~inside[partners.partner[links]]]
    return float((partners.weight[links] * cost[place, middle[partners.partner[links]]]).sum())

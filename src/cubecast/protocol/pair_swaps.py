"""Search for a placement by swapping pairs of ranks: annealing, then descent.

The cost of a placement `at` (rank → place) is Σ weight · cost[at[one], at[other]] over the pairs of ranks with traffic:
the quadratic assignment problem. A swap changes only the terms of its two ranks, so it costs their degree and not the
size of the group. Annealing (Kirkpatrick, Gelatt and Vecchi 1983) begins at a temperature below the changes that random
swaps make, since the start is a good one, and cools geometrically; descent then ends in a placement that no swap
improves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import entry_point
from cubecast.protocol.random import below, new_stream, uniform
from cubecast.protocol.traffic import Traffic

HOTTEST, COLDEST = 0.3, 1e-3  # temperatures at the beginning and the end, in units of the mean change of a random swap
NEAR = 16  # places around a partner to which a rank may move
FAR_EVERY = 8  # every so many swaps are between any two ranks
SAMPLES = 1000  # random swaps that tell how large their changes are
LEAST_GAIN = 1e-6  # of the mean change: what a swap of the descent gains at least, above the rounding of sums


class Partners(NamedTuple):
    """The traffic of each rank with others, both directions together, as compressed rows."""

    offsets: NDArray[np.int64]
    partner: NDArray[np.int64]
    weight: NDArray[np.float64]


def partners_of(traffic: Traffic, members: int) -> Partners:
    """The partners of every rank, each once."""
    keys = np.concatenate([traffic.source * members + traffic.target, traffic.target * members + traffic.source])
    distinct, place = np.unique(keys, return_inverse=True)
    weight: NDArray[np.float64] = np.zeros(len(distinct))
    np.add.at(weight, place, np.tile(traffic.weight, 2))
    rank, partner = np.divmod(distinct, members)
    offsets = np.zeros(members + 1, np.int64)
    np.cumsum(np.bincount(rank, minlength=members), out=offsets[1:])
    return Partners(offsets, partner, weight)


def improve(
    at: NDArray[np.int64], partners: Partners, cost: NDArray[np.float32], *, swaps: int, seed: int
) -> NDArray[np.int64]:
    """Find a placement that no swap of two ranks improves, starting from `at`, with about `swaps` swaps.

    `cost` is symmetric. The result is never worse than `at`.
    """
    stream = new_stream(seed, "placement")
    change = float(_mean_change(at, partners, cost, stream, SAMPLES))
    if change == 0:
        return at
    found = at.copy()
    near = np.argsort(cost, axis=1, kind="stable")[:, 1 : 1 + NEAR]
    cooling = math.log(COLDEST / HOTTEST)
    _anneal(found, np.argsort(at), near.copy(), partners, cost, stream, swaps, HOTTEST * change, cooling)
    if total_cost(found, partners, cost) > total_cost(at, partners, cost):
        found = at.copy()
    _descend(found, np.ones(len(at), np.int8), partners, cost, LEAST_GAIN * change)
    return found


@entry_point
def total_cost(at, partners, cost):
    """The cost of all messages of a round."""
    total = 0.0
    for rank in range(at.shape[0]):
        for k in range(partners.offsets[rank], partners.offsets[rank + 1]):
            total += partners.weight[k] * cost[at[rank], at[partners.partner[k]]]
    return total / 2


@entry_point
def swap_change(at, partners, cost, one, other):
    """How much the cost grows when two ranks swap their places."""
    return _half_change(at, partners, cost, one, other) + _half_change(at, partners, cost, other, one)


@entry_point
def _half_change(at, partners, cost, rank, other):
    """The change of the terms of `rank` in the place of `other`; messages between the two cost the same."""
    here = at[rank]
    there = at[other]
    change = 0.0
    for k in range(partners.offsets[rank], partners.offsets[rank + 1]):
        partner = partners.partner[k]
        if partner != other:
            place = at[partner]
            change += partners.weight[k] * (cost[there, place] - cost[here, place])
    return change


@entry_point
def _mean_change(at, partners, cost, stream, samples):
    """The mean size of the changes that random swaps make."""
    total = 0.0
    for _ in range(samples):
        one = below(stream, at.shape[0])
        other = below(stream, at.shape[0])
        if one != other:
            total += abs(swap_change(at, partners, cost, one, other))
    return total / samples


@entry_point
def _swap(at, one, other):
    place = at[one]
    at[one] = at[other]
    at[other] = place


@entry_point
def _anneal(at, rank_at, near, partners, cost, stream, swaps, hottest, cooling):
    """Accept every swap that gains, and others with a decreasing probability."""
    members = at.shape[0]
    for swap in range(swaps):
        one = below(stream, members)
        other = _propose(at, rank_at, near, partners, stream, one)
        if one == other:
            continue
        change = swap_change(at, partners, cost, one, other)
        if change > 0:
            temperature = hottest * math.exp(cooling * swap / swaps)
            if uniform(stream) >= math.exp(-change / temperature):
                continue
        _swap(at, one, other)
        rank_at[at[one]] = one
        rank_at[at[other]] = other


@entry_point
def _propose(at, rank_at, near, partners, stream, rank):
    """Propose a rank to swap with: mostly one near a partner of `rank`, sometimes any."""
    first = partners.offsets[rank]
    degree = partners.offsets[rank + 1] - first
    if degree == 0 or below(stream, FAR_EVERY) == 0:
        return below(stream, at.shape[0])
    partner = partners.partner[first + below(stream, degree)]
    return rank_at[near[at[partner], below(stream, near.shape[1])]]


@entry_point
def _descend(at, fresh, partners, cost, gain):
    """Swap pairs that gain until no pair does.

    What a swap gains depends on the places of its two ranks and of their partners: only a rank for which one of these
    changed (`fresh`) is compared with all others again.
    """
    members = at.shape[0]
    left = members
    while left > 0:
        left = 0
        for one in range(members):
            if fresh[one] == 0:
                continue
            fresh[one] = 0
            for other in range(members):
                if other != one and swap_change(at, partners, cost, one, other) < -gain:
                    _swap(at, one, other)
                    _refresh(fresh, partners, one)
                    _refresh(fresh, partners, other)
        for one in range(members):
            left += fresh[one]


@entry_point
def _refresh(fresh, partners, rank):
    """Mark a rank that moved and its partners, so that they are compared again."""
    fresh[rank] = 1
    for k in range(partners.offsets[rank], partners.offsets[rank + 1]):
        fresh[partners.partner[k]] = 1

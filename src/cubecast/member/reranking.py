"""New ranks at a view change, so that members that exchange many messages are near each other (cube §5).

Drivers measure the round-trip times of their links. Before a change each member reports them to the coordinator, which
computes the cost Σ messages · round-trip time of the protocols' traffic (`Protocol.traffic`, stability and data with
equal weight) for the ranks as they would be, and searches for pairs of ranks to swap until no swap gains. The new
ranks are taken if they save at least the share `rerank_gain`: a member with a new rank has other neighbours, and needs
new links.

For two members without a link, the shortest path over measured links is used. The distance of a newcomer is unknown;
the average distance of two members is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cubecast.member.settings import Settings
from cubecast.protocol.context import Context
from cubecast.protocol.pair_swaps import improve, partners_of, total_cost
from cubecast.protocol.traffic import Traffic, together
from cubecast.protocols.membership.views import MemberId

MEMBERS_MAX = 256
"""Views of more members keep their ranks: the search would hold up the change for more than a few milliseconds."""

Measured = Mapping[MemberId, Mapping[MemberId, int]]


def ranked(members: Sequence[MemberId], measured: Measured, settings: Settings) -> Sequence[MemberId]:
    """These members in a better order, or as they are."""
    if not 2 < len(members) <= MEMBERS_MAX:
        return members
    traffic = _traffic(settings, len(members))
    cost = _costs(members, measured)
    if traffic is None or cost is None:
        return members
    partners = partners_of(traffic, len(members))
    now = np.arange(len(members))
    best = improve(now, partners, cost, swaps=0, seed=0)
    if total_cost(best, partners, cost) > (1 - settings.rerank_gain) * total_cost(now, partners, cost):
        return members
    return [members[place] for place in best.tolist()]


def _traffic(settings: Settings, members: int) -> Traffic | None:
    """Of the stability protocol and the data protocol together; None if neither says."""
    chosen = [
        (settings.stability_entry, settings.stability_parameters),
        (settings.data_for(members), settings.data_parameters),
    ]
    context = Context(members=members, senders=members, is_live=True)
    parts = []
    for entry, given in chosen:
        if entry.traffic is not None:
            parts.append(entry.traffic(context, entry.resolve(entry.make_parameters(dict(given)), context)))
    return together(*(one._replace(weight=one.weight / one.weight.sum()) for one in parts)) if parts else None


def _costs(members: Sequence[MemberId], measured: Measured) -> NDArray[np.float32] | None:
    """The round-trip time between each two members, the mean of both directions; None if nothing was measured."""
    size = len(members)
    known = np.full((size, size), np.inf)
    np.fill_diagonal(known, 0)
    for row, one in enumerate(members):
        found = measured.get(one, {})
        for column, other in enumerate(members):
            if found.get(other, 0) > 0:
                known[row, column] = found[other]
    both = (known + known.T) / 2
    near: NDArray[np.float64] = np.where(np.isfinite(both), both, np.minimum(known, known.T))
    for middle in range(size):  # Floyd and Warshall
        np.minimum(near, near[:, middle, None] + near[middle], out=near)
    reached = np.isfinite(near)
    np.fill_diagonal(reached, val=False)
    if not reached.any():
        return None
    near[~np.isfinite(near)] = near[reached].mean()
    return near.astype(np.float32)

"""Ranks that follow from measured round-trip times."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.member.reranking import MEMBERS_MAX, ranked
from cubecast.member.settings import Settings
from cubecast.protocol.overlays import hypercube
from cubecast.protocols.membership.views import MemberId

CUBE = Settings(stability="cube_full_dist", data="timestamp", rerank_gain=0.2)
NEAR_US, FAR_US = 300, 80_000


def _members(count: int) -> list[MemberId]:
    return [MemberId(f"127.0.0.1:{7000 + number}", 1) for number in range(count)]


def _two_regions(members: list[MemberId]) -> dict[MemberId, dict[MemberId, int]]:
    """Even and odd members are far apart."""
    return {
        one: {
            other: (NEAR_US if (row - column) % 2 == 0 else FAR_US) if one != other else 0
            for column, other in enumerate(members)
        }
        for row, one in enumerate(members)
    }


def _far_links(order: list[MemberId], members: list[MemberId]) -> int:
    cube = hypercube(len(order))
    place = {who: members.index(who) for who in order}
    return sum(
        (place[order[rank]] - place[order[int(other)]]) % 2
        for rank in range(len(order))
        for other in cube.neighbours[cube.offsets[rank] : cube.offsets[rank + 1]]
    )


def test_a_cube_over_two_regions_keeps_only_one_dimension_of_far_links() -> None:
    members = _members(8)
    shuffled = [members[place] for place in (0, 2, 1, 3, 5, 6, 7, 4)]
    order = list(ranked(shuffled, _two_regions(members), CUBE))
    assert sorted(order) == sorted(members)
    assert _far_links(order, members) == 8, "both directions of four links: no two halves of a cube have fewer"
    assert _far_links(shuffled, members) > 8


def test_ranks_stay_when_too_little_is_saved() -> None:
    members = _members(8)
    shuffled = [members[place] for place in (0, 2, 1, 3, 5, 6, 7, 4)]
    never = Settings(stability="cube_full_dist", data="timestamp", rerank_gain=0.99)
    assert list(ranked(shuffled, _two_regions(members), never)) == shuffled
    best = list(ranked(shuffled, _two_regions(members), CUBE))
    assert list(ranked(best, _two_regions(members), CUBE)) == best, "what is best is not changed again"


def test_what_no_link_measured_is_the_shortest_way_over_those_that_did() -> None:
    members = _members(8)
    everything = _two_regions(members)
    ring = {one: dict.fromkeys(members, 0) for one in members}
    for row, column in [(0, 2), (2, 4), (4, 6), (1, 3), (3, 5), (5, 7), (0, 1)]:
        ring[members[row]][members[column]] = everything[members[row]][members[column]]
    shuffled = [members[place] for place in (0, 2, 1, 3, 5, 6, 7, 4)]
    assert _far_links(list(ranked(shuffled, ring, CUBE)), members) == 8


def test_a_newcomer_of_whom_nothing_is_known_gets_a_rank() -> None:
    members = _members(9)
    known = _two_regions(members[:8])
    order = list(ranked(members, known, CUBE))
    assert sorted(order) == sorted(members)


@pytest.mark.parametrize("measured", [{}, {MemberId("127.0.0.1:7000", 1): {}}], ids=["nobody", "nothing"])
def test_without_measurements_ranks_stay(measured: dict[MemberId, dict[MemberId, int]]) -> None:
    members = _members(8)
    assert list(ranked(members, measured, CUBE)) == members


def test_protocols_that_talk_to_all_alike_leave_ranks_alone() -> None:
    members = _members(8)
    alike = Settings(stability="full_dist", data="timestamp", rerank_gain=0.01)
    assert list(ranked(members, _two_regions(members), alike)) == members


def test_large_views_keep_their_ranks() -> None:
    members = _members(MEMBERS_MAX + 1)
    assert ranked(members, _two_regions(members), CUBE) is members


@pytest.mark.parametrize("count", [3, 5, 8, 13])
def test_the_search_never_raises_the_cost(count: int) -> None:
    draw = np.random.default_rng(count)
    members = _members(count)
    times = {one: dict.fromkeys(members, 0) for one in members}
    for one, other in combinations(members, 2):
        times[one][other] = times[other][one] = int(draw.integers(1, 10_000))
    order = list(ranked(members, times, Settings(stability="cube_full_dist", data="timestamp", rerank_gain=0.001)))
    assert _cost(order, times) <= _cost(members, times)


def _cost(order: list[MemberId], times: dict[MemberId, dict[MemberId, int]]) -> int:
    cube = hypercube(len(order))
    return sum(
        times[order[rank]][order[int(other)]]
        for rank in range(len(order))
        for other in cube.neighbours[cube.offsets[rank] : cube.offsets[rank + 1]]
    )


@pytest.mark.parametrize("gain", [-0.1, 1, 1.5, "0.2", True, float("nan")])
def test_a_share_is_from_0_to_less_than_1(gain: object) -> None:
    with pytest.raises(LocalProtocolError, match="rerank_gain="):
        Settings(rerank_gain=gain)  # type: ignore[arg-type]

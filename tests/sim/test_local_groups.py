"""Local groups follow the branches of the network (guo §4.3.3, §5.4)."""

from __future__ import annotations

import numpy as np
import pytest

from cubecast.networks.network import Network
from cubecast.networks.routes import find_routes
from cubecast.networks.spec import build_network
from cubecast.sim.local_groups import local_groups
from tests.support.paths import path_links

SPECS = ["wan-tree", "wan-tree:nodes=400", "star", "chain", "random:degree=3", "random:p=0.2"]


def crossed_by(network: Network, groups: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    """For each link the groups whose local gossip crosses it, when it follows the tree of member 0."""
    routes = find_routes(network, by="hops")
    root = int(network.hosts[0])
    groups_on: list[set[int]] = [set() for _ in range(network.links)]
    for which, group in enumerate(groups):
        up = [set(path_links(routes, network, int(network.hosts[rank]), root)) for rank in group]
        # A link is on the way between two of the group if it is above some of them and not above all.
        for link in frozenset().union(*up) - up[0].intersection(*up[1:]):
            groups_on[link].add(which)
    return groups_on


@pytest.mark.parametrize("size", [5, 13, 40])
@pytest.mark.parametrize("spec", SPECS)
def test_every_rank_is_in_one_group_and_a_link_carries_one_group(spec: str, size: int) -> None:
    network = build_network(spec, members=121, seed=3)
    groups = local_groups(network, size, by="hops")
    assert sorted(rank for group in groups for rank in group) == list(range(121))
    assert 0 in groups[0]
    assert max(map(len, groups)) <= size
    assert len(groups) <= 2 * 121 / size + 1
    assert max(map(len, crossed_by(network, groups))) == 1


def test_equal_slices_straddle_branches() -> None:
    """What the test above would say of groups that do not follow the network."""
    network = build_network("wan-tree", members=121, seed=0)
    slices = tuple(tuple(range(first, min(first + 40, 121))) for first in range(0, 121, 40))
    assert max(map(len, crossed_by(network, slices))) > 1


def test_groups_of_forty_in_a_complete_tree_are_its_subtrees() -> None:
    """364 nodes: nine whole subtrees of 40, and the four nodes above them."""
    network = build_network("wan-tree", members=364, seed=0)
    groups = local_groups(network, 40, by="hops")
    assert groups[0] == (0, 1, 2, 3)
    assert [len(group) for group in groups[1:]] == [40] * 9
    for group in groups[1:]:
        top = group[0]
        assert set(group) == {top} | {rank for rank in range(364) if (rank - 1) // 3 in group and rank > top}


def test_without_links_groups_are_slices() -> None:
    network = build_network("flat", members=7, seed=0)
    assert local_groups(network, 3, by="hops") == ((0, 1, 2), (3, 4, 5), (6,))


def test_a_node_that_only_routes_makes_no_group() -> None:
    network = build_network("wan-tree:nodes=1000", members=50, seed=1)
    groups = local_groups(network, 5, by="hops")
    assert np.sort(np.concatenate(groups)).tolist() == list(range(50))
    assert min(map(len, groups)) > 0

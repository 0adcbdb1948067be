"""The graphs of GT-ITM, real topologies and cloud regions: what each kind is made of, and what is refused."""

from __future__ import annotations

import sys

import networkx as nx
import numpy as np
import pytest
import topohub

from cubecast.errors import LocalProtocolError
from cubecast.extras import MissingExtraError
from cubecast.networks.network import Network, generator_for
from cubecast.networks.regions import REGIONS, ROUND_TRIP_MS
from cubecast.networks.routes import find_routes
from cubecast.networks.spec import build_network, network_kinds
from tests.support.paths import path_links

KINDS = ["waxman:degree=5", "locality:degree=5", "transit-stub", "regions", "topohub:name=sndlib/germany50"]


def graph_of(network: Network) -> nx.Graph[int]:
    return nx.Graph(list(zip(network.link_from.tolist(), network.link_to.tolist(), strict=True)))


@pytest.mark.parametrize("spec", KINDS)
def test_a_seed_names_one_network(spec: str) -> None:
    one, again, other = (build_network(spec, members=70, seed=seed) for seed in (3, 3, 4))
    for field in ("link_from", "link_to", "delay_ns", "bandwidth_bps", "hosts"):
        assert np.array_equal(getattr(one, field), getattr(again, field))
    if spec != "regions":  # their delays are given, and every rank has its region
        assert not np.array_equal(one.link_to, other.link_to)


@pytest.mark.parametrize("by", ["hops", "delay"])
@pytest.mark.parametrize("spec", KINDS)
def test_routes_lead_to_a_thousand_members(spec: str, by: str) -> None:
    network = build_network(spec, members=1000, seed=1)
    assert network.members == 1000
    routes = find_routes(network, by="hops" if by == "hops" else "delay")
    lengths = nx.single_source_shortest_path_length(graph_of(network), int(network.hosts[0]))
    for rank in range(0, 1000, 37):
        links = path_links(routes, network, int(network.hosts[rank]), int(network.hosts[0]))
        assert len(links) == lengths[int(network.hosts[rank])] or (by == "delay" and len(links) >= lengths[rank] - 1)


@pytest.mark.parametrize("spec", KINDS)
@pytest.mark.parametrize("members", [2, 3, 5, 17])
def test_small_groups_are_connected(spec: str, members: int) -> None:
    spec = spec.replace("degree=5", "degree=1")
    assert build_network(spec, members=members, seed=2).members == members


@pytest.mark.parametrize("kind", ["waxman", "locality"])
def test_the_degree_is_that_asked_for_before_the_repair(kind: str) -> None:
    network = build_network(f"{kind}:degree=6", members=1200, seed=5)
    assert network.average_degree - 2 * network.added_edges / network.nodes == pytest.approx(6, rel=0.06)


@pytest.mark.parametrize("kind", ["waxman", "locality"])
def test_a_degree_that_joins_near_pairs_for_certain_is_reached(kind: str) -> None:
    network = build_network(f"{kind}:degree=50", members=100, seed=5)
    assert network.average_degree == pytest.approx(50, rel=0.05)
    assert build_network(f"{kind}:degree=99", members=100, seed=5).average_degree == pytest.approx(99, abs=0.1)


def distances(network: Network, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all pairs, and of those joined; the places are the first draws of the network's generator."""
    places = generator_for(seed).random((network.nodes, 2))
    one, other = np.triu_indices(network.nodes, 1)
    up = network.link_from < network.link_to
    ends = network.link_from[up], network.link_to[up]
    return (
        np.hypot(*(places[one] - places[other]).T),
        np.hypot(*(places[ends[0]] - places[ends[1]]).T),
    )


def test_waxman_joins_pairs_as_often_as_its_formula_says() -> None:
    network = build_network("waxman:alpha=0.3,beta=0.15", members=900, seed=6)
    pairs, joined = distances(network, 6)
    for low, high in ((0, 0.1), (0.2, 0.3), (0.5, 0.6)):
        inside = pairs[(pairs >= low) & (pairs < high)]
        expected = float((0.3 * np.exp(-inside / (0.15 * np.sqrt(2)))).sum())
        found = int(((joined >= low) & (joined < high)).sum())
        assert abs(found - expected) < 4 * np.sqrt(expected) + network.added_edges


def test_locality_joins_near_pairs_and_far_pairs_each_with_its_probability() -> None:
    network = build_network("locality:near=0.2,far=0.01,radius=0.15", members=700, seed=7)
    pairs, joined = distances(network, 7)
    radius = 0.15 * np.sqrt(2)
    for near, probability in ((True, 0.2), (False, 0.01)):
        expected = probability * ((pairs <= radius) == near).sum()
        assert abs(((joined <= radius) == near).sum() - expected) < 4 * np.sqrt(expected) + network.added_edges


def test_transit_stub_has_stub_domains_behind_single_links() -> None:
    """ts100 of GT-ITM: 4 transit nodes, each with 3 stub domains of 8."""
    network = build_network("transit-stub", members=100, seed=8)
    graph = graph_of(network)
    without_bridges = graph.copy()
    behind = []
    for a, b in [(int(one), int(other)) for one, other in zip(network.link_from, network.link_to, strict=True)]:
        if a < b:
            without_bridges.remove_edge(a, b)
            parts = sorted(map(len, nx.connected_components(without_bridges)))
            if len(parts) == 2:
                behind.append(parts[0])
            without_bridges.add_edge(a, b)
    assert behind.count(8) >= 12
    degrees = sorted(dict(graph.degree()).values())
    assert degrees[-4:] >= [4, 4, 4, 4]  # three stubs and the backbone


def test_transit_edges_have_a_delay_of_their_own() -> None:
    slow = build_network("transit-stub:transit=20ms", members=100, seed=8)
    assert set(slow.delay_ns[slow.delay_ns > 1_000_000].tolist()) == {20_000_000}
    assert 2 * 3 <= (slow.delay_ns == 20_000_000).sum() <= 2 * 6


def test_delays_of_a_real_network_follow_its_lengths() -> None:
    network = build_network("topohub:name=sndlib/germany50", members=50, seed=9)
    topology = topohub.get("sndlib/germany50")
    assert network.nodes == 50
    assert sorted(network.hosts.tolist()) == list(range(50))
    assert network.links == 2 * len(topology["edges"])
    edge = topology["edges"][0]
    link = np.flatnonzero((network.link_from == edge["source"]) & (network.link_to == edge["target"]))
    assert network.delay_ns[link].tolist() == [round(edge["dist"] * 4760)]


def test_more_members_than_sites_are_linked_to_them_in_turn() -> None:
    network = build_network("topohub:name=topozoo/Abilene", members=30, seed=10)
    assert network.nodes == 30
    assert sorted(network.hosts[:11].tolist()) == list(range(11))
    leaves = network.link_to[network.link_from >= 11]
    assert np.bincount(leaves, minlength=11).max() == 2
    assert len(leaves) == 19
    few = build_network("topohub:name=topozoo/Abilene", members=4, seed=10)
    assert (few.nodes, few.members) == (11, 4)


def test_regions_are_as_far_apart_as_the_table_says() -> None:
    network = build_network("regions", members=20, seed=0)
    routes = find_routes(network, by="hops")
    table = dict(zip(REGIONS, range(10), strict=True))
    frankfurt, london, tokyo = (table[name] for name in ("Frankfurt", "London", "Tokyo"))
    for one, other, round_trip_ms in ((frankfurt, london, 13.0), (frankfurt, tokyo, 233.0), (london, london + 10, 0.0)):
        links = path_links(routes, network, one, other)
        assert network.delay_ns[links].sum() == round((round_trip_ms / 2 + 1) * 1e6)


def test_the_table_of_regions_is_complete() -> None:
    assert [len(row) for row in ROUND_TRIP_MS] == list(range(9, 0, -1))
    assert min(map(min, ROUND_TRIP_MS)) > 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("waxman", "give one of alpha and degree"),
        ("waxman:alpha=0.1,degree=3", "give one of alpha and degree"),
        ("waxman:alpha=1.5", "a probability from 0 to 1"),
        ("waxman:degree=5,beta=0", "beta=0"),
        ("waxman:degree=40", "at most 39"),
        ("locality:degree=5,ratio=0.5", "ratio=0.5"),
        ("locality:near=2", "a probability from 0 to 1"),
        ("locality:degree=5,radius=3", "a share from 0 to 1"),
        ("locality:far=0.1", "give one of near and degree"),
        ("transit-stub:stubs=0", "1 or more stubs"),
        ("transit-stub:stub_size=x", "a whole number"),
        ("transit-stub:transit=fast", "give a delay such as 1ms"),
        ("topohub", "topohub has no such topology"),
        ("topohub:name=sndlib/atlantis", "topohub has no such topology"),
        ("topohub:name=../../secret", "topohub has no such topology"),
        ("regions:count=1", "give 2 to 10"),
        ("regions:count=11", "give 2 to 10"),
    ],
)
def test_what_cannot_be_built_is_refused(spec: str, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        build_network(spec, members=40, seed=0)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "topohub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'cubecast\[topologies\]'"):
        build_network("topohub:name=sndlib/germany50", members=10, seed=0)


def test_every_kind_is_listed_for_the_user() -> None:
    names = {spelling.split(":")[0].split("[")[0] for spelling, _ in network_kinds()}
    assert {"waxman", "locality", "transit-stub", "topohub", "regions"} <= names

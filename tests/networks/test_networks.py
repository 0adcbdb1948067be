"""Networks by name: what each kind is made of (cube §4, guo §5.1) and what is refused."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.networks.joining import joining_edges
from cubecast.networks.network import Network, components, generator_for
from cubecast.networks.options import parse_delay
from cubecast.networks.spec import build_network, network_kinds


def edges_of(network: Network) -> set[tuple[int, int]]:
    return {(a, b) for a, b in zip(network.link_from.tolist(), network.link_to.tolist(), strict=True) if a < b}


def same_arrays(one: Network, other: Network) -> bool:
    fields = ("link_from", "link_to", "delay_ns", "bandwidth_bps", "hosts")
    return all(np.array_equal(getattr(one, field), getattr(other, field)) for field in fields)


@pytest.mark.parametrize("spec", ["random:p=0.05", "random:degree=3", "wan-tree:nodes=300", "star:delay=0-1ms"])
def test_same_seed_same_network_and_another_seed_another(spec: str) -> None:
    first = build_network(spec, members=80, seed=7)
    assert same_arrays(first, build_network(spec, members=80, seed=7))
    assert not same_arrays(first, build_network(spec, members=80, seed=8))


def test_draws_of_a_seed_do_not_change() -> None:
    network = build_network("random:p=0.5", members=5, seed=1)
    assert edges_of(network) == {(0, 4), (1, 4), (2, 3), (2, 4)}
    assert network.delay_ns[network.link_from < network.link_to].tolist() == [427_443, 951_167, 539_040, 354_473]


def test_random_graph_has_the_edges_its_probability_promises() -> None:
    network = build_network("random:p=0.02", members=1000, seed=1)
    pairs = 1000 * 999 / 2
    deviation = (pairs * 0.02 * 0.98) ** 0.5
    assert abs(network.links / 2 - pairs * 0.02) < 4 * deviation
    assert network.added_edges == 0


@pytest.mark.parametrize("degree", [3, 5, 10])
def test_random_graph_by_degree_reaches_it_before_the_repair(degree: int) -> None:
    network = build_network(f"random:degree={degree}", members=1500, seed=2)
    drawn = network.average_degree - 2 * network.added_edges / network.nodes
    assert drawn == pytest.approx(degree, rel=0.05)


def test_repair_adds_one_edge_for_every_component_but_one() -> None:
    loose = build_network("random:degree=1", members=400, seed=3)
    assert loose.added_edges > 50
    assert build_network("random:p=0", members=50, seed=3).added_edges == 49
    assert build_network("random:p=1", members=50, seed=3).added_edges == 0


def test_repair_links_every_small_component_to_the_largest_one_and_to_no_other() -> None:
    """Otherwise nodes of the giant component reach a chain of small ones over a single link, and it queues."""
    generator = generator_for(1)
    drawn = np.array([[0, 1], [1, 2], [2, 3], [4, 5], [6, 7]])  # 8 and 9 are alone
    for _ in range(50):
        added = joining_edges(generator, 10, drawn)
        assert set(added[:, 0].tolist()) <= {0, 1, 2, 3}
        assert sorted(components(10, drawn)[added[:, 1]].tolist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(4))
def test_repair_of_a_sparse_graph_puts_few_nodes_behind_one_link(seed: int) -> None:
    """A chain of small components would be up to 40 nodes here."""
    network = build_network("random:degree=2.5", members=400, seed=seed)
    graph: nx.Graph[int] = nx.Graph(list(edges_of(network)))
    behind = []
    bridges: list[Any] = list(nx.bridges(graph))
    for a, b in bridges:
        graph.remove_edge(a, b)
        behind.append(len(min(nx.connected_components(graph), key=len)))
        graph.add_edge(a, b)
    assert network.added_edges > 20
    assert max(behind) <= 10


def test_random_graph_defaults_are_the_papers() -> None:
    network = build_network("random:p=0.05", members=500, seed=4)
    assert np.all(network.bandwidth_bps == 100e6)
    assert 0 <= network.delay_ns.min() < 5_000
    assert 995_000 < network.delay_ns.max() <= 1_000_000
    assert network.delay_ns.mean() == pytest.approx(500_000, rel=0.03)
    assert network.costs is None
    assert network.hosts.tolist() == list(range(500))


def test_options_set_delay_and_bandwidth() -> None:
    network = build_network("random:p=0.5,bandwidth=10e6,delay=2-3ms", members=30, seed=4)
    assert np.all(network.bandwidth_bps == 10e6)
    assert 2_000_000 <= network.delay_ns.min() <= network.delay_ns.max() <= 3_000_000


def test_delays_do_not_change_the_edges() -> None:
    plain = build_network("random:degree=2", members=100, seed=6)
    slow = build_network("random:degree=2,delay=1s", members=100, seed=6)
    assert edges_of(plain) == edges_of(slow)


def test_star_and_chain() -> None:
    assert edges_of(build_network("star", members=5, seed=0)) == {(0, 1), (0, 2), (0, 3), (0, 4)}
    chain = build_network("chain:delay=3us,bandwidth=1000", members=4, seed=0)
    assert edges_of(chain) == {(0, 1), (1, 2), (2, 3)}
    assert set(chain.delay_ns.tolist()) == {3_000}
    assert set(chain.bandwidth_bps.tolist()) == {1000.0}


def test_flat_network_has_a_delay_and_no_links() -> None:
    flat = build_network("flat:delay=0.5-1.5ms", members=100_000, seed=0)
    assert flat.links == 0
    assert flat.average_degree == 0
    assert flat.members == 100_000
    assert flat.one_hop == parse_delay("0.5-1.5ms")


def test_dense_wan_tree_is_the_tree_of_the_study() -> None:
    tree = build_network("wan-tree", members=14, seed=0)
    assert edges_of(tree) == {((node - 1) // 3, node) for node in range(1, 14)}
    assert set(tree.delay_ns.tolist()) == {5_000_000}
    assert set(tree.bandwidth_bps.tolist()) == {30e3}
    assert tree.hosts.tolist() == list(range(14))


def test_a_wan_tree_filled_from_the_left_has_one_large_subtree() -> None:
    assert _below_the_root("wan-tree", 200) == [119, 40, 40]


@pytest.mark.parametrize("members", [5, 14, 40, 41, 50, 121, 200, 364, 500])
def test_a_wan_tree_filled_evenly_has_subtrees_of_one_size(members: int) -> None:
    tree = build_network("wan-tree:fill=even", members=members, seed=0)
    sizes = _below_the_root("wan-tree:fill=even", members)
    assert sum(sizes) == members - 1
    assert max(sizes) - min(sizes) <= 1
    children = np.bincount(tree.link_from[tree.link_from < tree.link_to], minlength=members)
    assert children.max() <= 3
    assert _depth(tree, members - 1) == _depth(build_network("wan-tree", members=members, seed=0), members - 1)


def _depth(tree: Network, node: int) -> int:
    parent = {int(child): int(node) for node, child in zip(tree.link_from, tree.link_to, strict=True) if node < child}
    depth = 0
    while node > 0:
        node, depth = parent[node], depth + 1
    return depth


def _below_the_root(spec: str, members: int) -> list[int]:
    """Nodes in the subtree of each child of the root."""
    tree = build_network(spec, members=members, seed=0)
    top = {1: 1, 2: 2, 3: 3}
    for node, child in zip(tree.link_from.tolist(), tree.link_to.tolist(), strict=True):
        if 0 < node < child:
            top[child] = top[node]
    return [sum(1 for one in top.values() if one == first) for first in (1, 2, 3)]


def test_wan_node_costs_are_the_formulas_of_the_study() -> None:
    costs = build_network("wan-tree", members=4, seed=0).costs
    assert costs is not None
    assert costs.router_ns == 1_000_000
    for u in (32, 232, 1500):
        send_us = 338 + 47 * u / 400
        assert costs.send_ns + costs.send_ns_per_byte * u == pytest.approx(1000 * send_us)
        assert costs.receive_ns + costs.receive_ns_per_byte * u == pytest.approx(1000 * 1.1 * send_us)


def test_sparse_wan_tree_puts_members_on_random_nodes() -> None:
    tree = build_network("wan-tree:nodes=1000,bandwidth=300e3", members=50, seed=9)
    assert tree.nodes == 1000
    assert tree.members == 50
    assert np.all(np.diff(tree.hosts) > 0)
    assert tree.hosts.max() > 500
    assert tree.hosts[1:].min() > 0


@pytest.mark.parametrize("seed", range(5))
def test_rank_0_is_at_the_root_of_a_sparse_wan_tree(seed: int) -> None:
    """ "The coordinator in CoordP is located at the root of the network tree" (guo §5.4)."""
    assert build_network("wan-tree:nodes=1000", members=50, seed=seed).hosts[0] == 0


def test_ranks_of_a_sparse_wan_tree_may_be_in_random_order() -> None:
    tree = build_network("wan-tree:nodes=1000,order=random", members=50, seed=9)
    assert tree.hosts[0] == 0
    assert len(set(tree.hosts.tolist())) == 50
    assert np.any(np.diff(tree.hosts) < 0)
    ordered = build_network("wan-tree:nodes=1000", members=50, seed=9)
    assert sorted(tree.hosts.tolist()) == ordered.hosts.tolist()


def test_bandwidth_of_a_sparse_wan_tree() -> None:
    tree = build_network("wan-tree:nodes=1000,bandwidth=300e3", members=50, seed=9)
    assert set(tree.bandwidth_bps.tolist()) == {300e3}


@pytest.mark.parametrize(
    ("text", "low_ns", "spread_ns", "shape", "mean_ns"),
    [
        ("1ms", 1_000_000, 0, "uniform", 1_000_000),
        ("0-1ms", 0, 1_000_000, "uniform", 500_000),
        ("500us-2ms", 500_000, 1_500_000, "uniform", 1_250_000),
        ("1e-3s", 1_000_000, 0, "uniform", 1_000_000),
        ("exp:2ms", 0, 2_000_000, "exponential", 2_000_000),
        ("7ns", 7, 0, "uniform", 7),
    ],
)
def test_delay_spellings(text: str, low_ns: int, spread_ns: int, shape: str, mean_ns: float) -> None:
    delay = parse_delay(text)
    assert (delay.low_ns, delay.spread_ns, delay.shape, delay.mean_ns) == (low_ns, spread_ns, shape, mean_ns)
    assert delay.draw_ns(generator_for(1), 20_000).mean() == pytest.approx(mean_ns, rel=0.03)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("torus", "unknown network 'torus': choose one of random, waxman"),
        ("random", "one of p and degree"),
        ("random:p=0.1,degree=3", "one of p and degree"),
        ("random:p=1.2", "p=1.2"),
        ("random:p=-0.1", "p=-0.1"),
        ("random:p=nan", "p=nan"),
        ("random:p=many", "p=many"),
        ("random:degree=0", "degree=0"),
        ("random:degree=10", "at most 9 for 10 members"),
        ("random:q=1", "unknown option 'q=1' .* choose from p, degree, delay, bandwidth"),
        ("random:p", "p=VALUE"),
        ("random:p=0.1,p=0.2", "given twice"),
        ("random:p=0.1,", "unknown option ''"),
        ("random:p=0.1,bandwidth=0", "bandwidth=0"),
        ("random:p=0.1,bandwidth=inf", "bandwidth=inf"),
        ("star:delay=1", "delay=1: give a delay such as 1ms"),
        ("star:delay=-1ms", "delay=-1ms"),
        ("star:delay=2-1ms", "smaller delay first"),
        ("star:delay=1e300s", "under a year"),
        ("flat:bandwidth=3", "unknown option"),
        ("flat:delay=exp:", "delay=exp:"),
        ("wan-tree:nodes=9", "nodes=9 .* at least 10"),
        ("wan-tree:nodes=99999999999", "at most 32768"),
        ("wan-tree:fill=right", "fill=right in network wan-tree:fill=right: give left or even"),
        ("random:p=0.1\n", "unknown network"),
        ("wan-tree:nodes=1e3", "nodes=1e3 .* whole number"),
    ],
)
def test_bad_spelling_is_one_line_that_names_it(spec: str, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words) as caught:
        build_network(spec, members=10, seed=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("members", [-1, 0, 1])
def test_a_group_of_fewer_than_two_is_refused(members: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"{members} members"):
        build_network("star", members=members, seed=1)


def test_a_group_too_large_for_routes_is_sent_to_flat() -> None:
    with pytest.raises(LocalProtocolError, match=r"40000 members in network random:p=0.5: .* use flat"):
        build_network("random:p=0.5", members=40_000, seed=1)


def test_negative_seed_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="seed -3"):
        build_network("random:p=0.5", members=5, seed=-3)


def test_every_kind_is_listed_with_a_spelling_and_a_line() -> None:
    spellings = [spelling for spelling, _ in network_kinds()]
    assert [spelling.partition(":")[0].partition("[")[0] for spelling in spellings] == [
        "random",
        "waxman",
        "locality",
        "transit-stub",
        "topohub",
        "regions",
        "star",
        "chain",
        "flat",
        "wan-tree",
        "regular",
        "file",
    ]


def two_nodes(**changes: object) -> Network:
    fields: dict[str, object] = {
        "name": "two",
        "nodes": 2,
        "link_from": np.array([0, 1], np.int32),
        "link_to": np.array([1, 0], np.int32),
        "delay_ns": np.array([5, 5], np.int64),
        "bandwidth_bps": np.array([1.0, 1.0]),
        "hosts": np.array([0, 1], np.int32),
    }
    return Network(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"link_to": np.array([1, 0], np.int64)}, "link_to .* int32"),
        ({"delay_ns": np.array([5], np.int64)}, "1 entries for 2 links"),
        ({"delay_ns": np.array([5, 6], np.int64)}, "duplex"),
        ({"delay_ns": np.array([-5, -5], np.int64)}, "delay of 0 or more"),
        ({"bandwidth_bps": np.array([0.0, 0.0])}, "bandwidth above 0"),
        ({"bandwidth_bps": np.array([np.nan, np.nan])}, "bandwidth above 0"),
        ({"link_from": np.array([1, 0], np.int32), "link_to": np.array([0, 1], np.int32)}, "sort the links"),
        ({"link_to": np.array([0, 1], np.int32)}, "own node"),
        ({"link_to": np.array([1, 2], np.int32)}, "nodes 0 to 1"),
        ({"nodes": 3}, "falls into 2 parts"),
        ({"hosts": np.array([0, 0], np.int32)}, "node of its own"),
        ({"hosts": np.array([0, 2], np.int32)}, "node of its own"),
        ({"hosts": np.array([0], np.int32)}, "at least 2"),
        ({"one_hop": parse_delay("1ms")}, "links and a one-hop delay"),
    ],
)
def test_network_checks_its_invariants(changes: dict[str, object], words: str) -> None:
    assert two_nodes().members == 2
    with pytest.raises(LocalProtocolError, match=words):
        two_nodes(**changes)


def test_components_number_the_parts() -> None:
    assert components(5, np.array([[0, 1], [3, 4]])).tolist() == [0, 0, 1, 2, 2]

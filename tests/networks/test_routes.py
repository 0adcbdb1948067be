"""Shortest-path routes against slow searches that restate the rules."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import Network
from cubecast.networks.routes import NO_PORT, find_routes
from cubecast.networks.spec import build_network
from tests.support.paths import path_links

SPECS = [
    *(
        "random:p=0.1",
        "random:degree=2",
        "star",
        "chain",
        "wan-tree",
        "wan-tree:nodes=90",
        "wan-tree:fill=even",
        "random:p=1",
    ),
    *("waxman:degree=4", "locality:degree=4", "transit-stub", "regions", "topohub:name=sndlib/germany50"),
]


def as_graph(network: Network) -> nx.Graph[int]:
    graph: nx.Graph[int] = nx.Graph()
    for a, b, delay_ns in zip(network.link_from, network.link_to, network.delay_ns, strict=True):
        graph.add_edge(int(a), int(b), delay_ns=int(delay_ns))
    return graph


def plain_next_hops(network: Network, destination: int) -> dict[int, int]:
    """Breadth first from the destination, neighbours of v in the order v + 1, v + 2, …: which node found which."""
    graph = as_graph(network)
    next_hop = {destination: destination}
    waiting = deque([destination])
    while waiting:
        node = waiting.popleft()
        for neighbour in sorted(graph[node], key=lambda other: (other - node) % network.nodes):
            if neighbour not in next_hop:
                next_hop[neighbour] = node
                waiting.append(neighbour)
    return next_hop


@pytest.mark.parametrize("spec", SPECS)
def test_links_and_reverse_links(spec: str) -> None:
    network = build_network(spec, members=60, seed=1)
    routes = find_routes(network, by="hops")
    for node in range(network.nodes):
        assert np.all(network.link_from[routes.first_link[node] : routes.first_link[node + 1]] == node)
    assert routes.first_link[-1] == network.links
    assert np.array_equal(network.link_from[routes.reverse], network.link_to)
    assert np.array_equal(network.link_to[routes.reverse], network.link_from)


@pytest.mark.parametrize("spec", SPECS)
def test_routes_by_hops_are_the_plain_search_s(spec: str) -> None:
    network = build_network(spec, members=60, seed=2)
    routes = find_routes(network, by="hops")
    for destination in network.hosts.tolist():
        for node, hop in plain_next_hops(network, destination).items():
            if node != destination:
                link = routes.first_link[node] + int(routes.port[destination, node])
                assert network.link_to[link] == hop


@pytest.mark.parametrize("spec", SPECS)
def test_routes_by_delay_are_shortest(spec: str) -> None:
    network = build_network(spec, members=60, seed=3)
    routes = find_routes(network, by="delay")
    lengths = dict(nx.all_pairs_dijkstra_path_length(as_graph(network), weight="delay_ns"))
    for destination in network.hosts.tolist():
        for source in range(network.nodes):
            links = path_links(routes, network, source, destination)
            assert network.delay_ns[links].sum() == lengths[source][destination]


def test_routes_by_hops_are_shortest_in_a_larger_graph() -> None:
    network = build_network("random:degree=4", members=400, seed=4)
    routes = find_routes(network, by="hops")
    lengths = dict(nx.all_pairs_shortest_path_length(as_graph(network)))
    for destination in range(0, 400, 7):
        assert all(
            len(path_links(routes, network, source, destination)) == lengths[source][destination]
            for source in range(400)
        )


def test_links_without_delay_are_used(tmp_path: Path) -> None:
    path = tmp_path / "net.edges"
    path.write_text("0 1 0\n1 2 0\n0 2 1\n")
    network = build_network(f"file:{path}", members=3, seed=0)
    routes = find_routes(network, by="delay")
    assert network.link_to[path_links(routes, network, 0, 2)].tolist() == [1, 2]
    assert network.link_to[path_links(routes, network, 2, 0)].tolist() == [1, 0]


def test_only_hosts_are_destinations() -> None:
    network = build_network("wan-tree:nodes=90", members=10, seed=5)
    routes = find_routes(network, by="hops")
    hosts = set(network.hosts.tolist())
    for node in range(90):
        ports = routes.port[node]
        assert np.count_nonzero(ports == NO_PORT) == (1 if node in hosts else 90)
    router = next(node for node in range(90) if node not in hosts)
    with pytest.raises(AssertionError, match="no route"):
        path_links(routes, network, 0 if router else 1, router)


def test_ties_do_not_favour_low_numbers() -> None:
    network = build_network("random:p=0.1", members=300, seed=6)
    routes = find_routes(network, by="hops")
    nodes = np.arange(300)
    links = routes.first_link[nodes] + routes.port.astype(np.int64)
    next_hops = network.link_to[links[~np.eye(300, dtype=bool)]]
    carried = np.bincount(next_hops, minlength=300)
    assert carried[:100].sum() < 1.1 * carried[200:].sum()


def test_routes_are_the_same_every_time() -> None:
    network = build_network("random:p=0.1", members=300, seed=6)
    first, second = (find_routes(network, by="delay") for _ in range(2))
    assert np.array_equal(first.port, second.port)


def test_more_destinations_than_a_block() -> None:
    network = build_network("chain", members=600, seed=0)
    port = find_routes(network, by="hops").port
    toward_lower = port[np.tril_indices(600, -1)[::-1]]
    assert set(toward_lower.tolist()) == {0}


def test_networks_that_have_no_routes_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="needs no routes"):
        find_routes(build_network("flat", members=5, seed=0), by="hops")


def test_a_file_too_large_for_routes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.edges"
    path.write_text("".join(f"{node} {node + 1}\n" for node in range(40_000)))
    with pytest.raises(LocalProtocolError, match=r"40001 nodes .* use flat for larger groups"):
        find_routes(build_network(f"file:{path}", members=10, seed=0), by="hops")

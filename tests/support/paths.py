"""The path of a message through a network."""

from __future__ import annotations

from cubecast.networks.network import Network
from cubecast.networks.routes import NO_PORT, Routes


def path_links(routes: Routes, network: Network, source: int, destination: int) -> list[int]:
    """The links that a message takes from one node to another, in order."""
    links: list[int] = []
    node = source
    while node != destination:
        port = int(routes.port[destination, node])
        assert port != NO_PORT, f"no route from node {source} to node {destination}"
        assert len(links) < network.nodes, "the routes form a cycle"
        links.append(int(routes.first_link[node]) + port)
        node = int(network.link_to[links[-1]])
    return links

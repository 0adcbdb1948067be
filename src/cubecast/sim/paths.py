"""The routes through a network, computed once for all runs on it.

A study runs the same network hundreds of times; finding its routes takes longer than many of those runs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cubecast.networks.network import Network
from cubecast.networks.routes import Routes, find_routes, need_table
from cubecast.sim.tree_cover import mark_tree_cover


class _Paths(NamedTuple):
    routes: dict[str, Routes]
    cover: dict[str, NDArray[np.bool_]]


_FOUND: WeakKeyDictionary[Network, _Paths] = WeakKeyDictionary()


def routes_of(network: Network, *, by: Literal["hops", "delay"]) -> Routes:
    """The routes of a network; empty if every message makes one hop."""
    found = _FOUND.setdefault(network, _Paths({}, {})).routes
    if by not in found:
        found[by] = _no_routes(network) if network.one_hop is not None else find_routes(network, by=by)
    return found[by]


def share_routes(network: Network, placed: Network) -> None:
    """Reuse the routes of a network for the same network with its members in another order."""
    routes = _FOUND.setdefault(network, _Paths({}, {})).routes
    _FOUND[placed] = _Paths(routes, {})


def tree_cover(network: Network, *, by: Literal["hops", "delay"]) -> NDArray[np.bool_]:
    """For each member's multicast tree: does a node have a member at or below it?"""
    found = _FOUND.setdefault(network, _Paths({}, {})).cover
    if by not in found:
        need_table(network, "multicast = tree")
        routes = routes_of(network, by=by)
        found[by] = np.zeros((network.members, network.nodes), np.bool_)
        mark_tree_cover(found[by], network.hosts, network.link_to, routes.first_link, routes.port)
    return found[by]


def _no_routes(network: Network) -> Routes:
    empty = np.zeros(network.nodes + 1, np.int32)
    return Routes(first_link=empty, reverse=np.zeros(0, np.int32), port=np.zeros((1, 1), np.uint16))

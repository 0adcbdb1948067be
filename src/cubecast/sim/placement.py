"""Assign ranks to the members of the network so that ranks that exchange many messages are near each other (cube §5).

| placement | order of the members by rank                                                          |
|-----------|---------------------------------------------------------------------------------------|
| None      | as the network lists them                                                             |
| random    | in an order drawn from the seed                                                       |
| bisection | by recursive halving of the network and the protocol's traffic (`sim.bisection`)      |
| search    | annealed swaps of two ranks from there, to an order that no swap improves             |

Bisection and search lower the cost Σ messages · routed delay over the pairs that the protocol declares
(`Protocol.traffic`), with the delay of a message that carries an array: propagation, transmission and routers. A
protocol that declares no traffic sends to all members alike or follows the links of the network, and keeps the order of
the network.

A placement depends only on network, protocol, parameters and seed, and is made before the run begins; runs that have
these in common share it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import NODES_MAX, Network
from cubecast.protocol.mail import HEADER_BYTES, NUMBER_BYTES, ROUND_BYTES
from cubecast.protocol.pair_swaps import improve, partners_of, total_cost
from cubecast.protocol.random import below, new_stream
from cubecast.protocol.traffic import Traffic
from cubecast.sim.bisection import bisect
from cubecast.sim.distances import routed_delays
from cubecast.sim.network_facts import network_facts
from cubecast.sim.paths import routes_of, share_routes
from cubecast.sim.resolve_defaults import resolve_defaults, resolving_context
from cubecast.sim.scenario import Scenario

SWAPS_PER_MEMBER = 5000
MEMBERS_MAX = 8192
"""Computing the distances takes up to 20 bytes for each pair of members: 1.3 GiB at this size."""


class Placement(NamedTuple):
    """The positions of the ranks, and the resulting cost of the messages of a round."""

    at: NDArray[np.int64]
    """rank → the member of the network as it lists them."""
    cost_ms: float
    """Σ messages · routed delay; 0 for a protocol without traffic of its own."""


_FOUND: WeakKeyDictionary[Network, dict[tuple[Any, ...], Placement]] = WeakKeyDictionary()


def place(scenario: Scenario, network: Network) -> Network:
    """Return the network with its members in the order of the ranks."""
    if scenario.placement is None:
        return network
    at = find_placement(scenario, network).at
    placed = replace(network, hosts=network.hosts[at])
    share_routes(network, placed)
    return placed


def find_placement(scenario: Scenario, network: Network) -> Placement:
    """The order of the members that the scenario asks for."""
    if network.one_hop is not None:
        raise LocalProtocolError(
            f"placement = {scenario.placement} on network {network.name}: all its members are equally far apart, "
            "choose a network with links",
            setting="placement",
        )
    if network.members > MEMBERS_MAX and scenario.placement in ("bisection", "search"):
        raise LocalProtocolError(
            f"placement = {scenario.placement} of {network.members} members: it takes the distances of all pairs, "
            f"up to {MEMBERS_MAX} members",
            setting="placement",
        )
    traffic = declared_traffic(scenario, network)
    order = np.arange(network.members)
    if scenario.placement == "random":
        order = _shuffled(network.members, scenario.seed)
    if traffic is None or network.members > MEMBERS_MAX or network.nodes > NODES_MAX:
        return Placement(order, 0.0)
    found = _FOUND.setdefault(network, {})
    key = (
        scenario.placement,
        scenario.routing,
        scenario.sequence_count,
        scenario.seed,
        *(a.tobytes() for a in traffic),
    )
    if key not in found:
        found[key] = _placed(scenario.placement, order, traffic, _distances_ms(scenario, network), scenario.seed)
    return found[key]


def declared_traffic(scenario: Scenario, network: Network) -> Traffic | None:
    """The traffic between ranks that the scenario's protocol declares; None if it declares none."""
    declared = scenario.entry().traffic
    if declared is None:
        return None
    resolved = resolve_defaults(scenario, network)
    return declared(resolving_context(resolved, network_facts(resolved, network)), resolved.parameters)


def _distances_ms(scenario: Scenario, network: Network) -> NDArray[np.float32]:
    """Mean routed delay of both directions, whose routes of equal length may differ."""
    size = HEADER_BYTES + ROUND_BYTES + NUMBER_BYTES * scenario.sequence_count
    delay_ns = routed_delays(network, routes_of(network, by=scenario.routing), size)
    return ((delay_ns + delay_ns.T) / 2e6).astype(np.float32)


def _shuffled(members: int, seed: int) -> NDArray[np.int64]:
    order = np.arange(members)
    stream = new_stream(seed, "random placement")
    for place in range(members - 1, 0, -1):  # Fisher and Yates
        other = below(stream, place + 1)
        order[[place, other]] = order[[other, place]]
    return order


def _placed(
    how: Literal["random", "bisection", "search"] | None,
    at: NDArray[np.int64],
    traffic: Traffic,
    cost_ms: NDArray[np.float32],
    seed: int,
) -> Placement:
    partners = partners_of(traffic, len(at))
    if how in ("bisection", "search"):
        at = bisect(partners, cost_ms)
    if how == "search":
        at = improve(at, partners, cost_ms, swaps=SWAPS_PER_MEMBER * len(at), seed=seed)
    return Placement(at, float(total_cost(at, partners, cost_ms)))

"""What a scenario leaves open, the network decides: how multicasts travel, the logical tree, the time scales.

On a slow network a round takes seconds or minutes: at 30 kb/s every link near the root of the WAN tree carries n arrays
of 62 ms each. Messages repeated faster than that would only lengthen the queues they wait in, and a next round begun at
once would be counted with the first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from cubecast.networks.network import Network
from cubecast.protocol.mail import HEADER_BYTES, NUMBER_BYTES, ROUND_BYTES
from cubecast.protocols.catalogue import LOCAL_GROUP, protocol_named
from cubecast.sim.scenario import NS_PER_MS, REPEAT_NS, Scenario

DELTA_MS = 10.0
# In a tree of three subtrees, 2/9 of the messages between random members cross each of the root's links, each way.
BUSIEST_LINK_SHARE = 2 / 9
CROSSINGS = 8  # links on a long path, there and back
SCATTER_GAP_NS = 400_000  # a member: 0.02 s at n = 50, 0.20 s at n = 500 (guo §5.4.3)


def settled(scenario: Scenario, network: Network) -> Scenario:
    """The scenario with nothing left open."""
    wan = network.tree_children > 0
    round_ns = _round_ns(scenario, network)
    repeat_ns = max(REPEAT_NS, round_ns) if scenario.repeats else 0
    return replace(
        scenario,
        multicast=scenario.multicast or ("tree" if wan else "copies"),
        delta_ms=_given(scenario.delta_ms, round_ns / NS_PER_MS if wan else DELTA_MS),
        repeat_ms=_given(scenario.repeat_ms, repeat_ns / NS_PER_MS),
        tree_degree=scenario.tree_degree or network.tree_children or scenario.degree,
        shuffled=_shuffles(scenario, network) if scenario.shuffled is None else scenario.shuffled,
        step_s=_given(scenario.step_s, _step_ns(scenario, network) / 1e9) if scenario.gossips else scenario.step_s,
    )


def scatter_ns(scenario: Scenario) -> int:
    """The time over which n scattered multicasts have the paper's mean gap between them."""
    return SCATTER_GAP_NS * scenario.members**2 if scenario.scatter else 0


def _shuffles(scenario: Scenario, network: Network) -> bool:
    """guo §5.5: the logical trees of sparse groups are random; local groups go by location everywhere (§4.3.3)."""
    sparse = network.tree_children > 0 and network.nodes > network.members
    return sparse and protocol_named(scenario.protocol).name != "s_gossip"


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _round_ns(scenario: Scenario, network: Network) -> int:
    """About as long as the busiest link needs for the messages of a round."""
    size = HEADER_BYTES + ROUND_BYTES + NUMBER_BYTES * scenario.sequence_count
    messages = _messages(scenario) if network.tree_children else scenario.members
    return round(messages * _service_ns(network, size) + CROSSINGS * _crossing_ns(network, size))


def _messages(scenario: Scenario) -> float:
    """Messages of a round on a link at the root of the WAN tree, with what is asked for again after losses."""
    n = scenario.members
    depth = math.log2(2 * n)
    name = protocol_named(scenario.protocol).name
    if name == "cube_full_dist":
        return n * BUSIEST_LINK_SHARE * depth**2  # every member tells ⌈log2 n⌉ neighbours as many times
    if name == "full_dist":
        missing: float = 1 - (1 - scenario.loss) ** depth
        return n + 2 * n**2 * missing * BUSIEST_LINK_SHARE  # every row that is missing is asked for and sent again
    return n


def _step_ns(scenario: Scenario, network: Network) -> int:
    size = HEADER_BYTES + ROUND_BYTES + NUMBER_BYTES * scenario.sequence_count + (scenario.members + 7) // 8
    gossiping = scenario.members
    if protocol_named(scenario.protocol).name == "s_gossip" and not scenario.shuffled:
        # Local groups are apart; a link at the edge carries the gossip of about two.
        gossiping = min(gossiping, 2 * (scenario.group_size or LOCAL_GROUP))
    messages = BUSIEST_LINK_SHARE * gossiping * scenario.subset
    return round(max(messages * _service_ns(network, size), _crossing_ns(network, size), 1))


def _service_ns(network: Network, size: int) -> float:
    """How long a message keeps the slowest link, or a node, busy."""
    wire = 8e9 * size / float(network.bandwidth_bps.min()) if network.links else 0.0
    if network.costs is None:
        return wire
    node = network.costs.router_ns + network.costs.receive_ns + size * network.costs.receive_ns_per_byte
    return max(wire, node)


def longest_transfer_ns(network: Network, size: int, copies: int) -> int:
    """How long the slowest link needs for so many copies of a message, and the longest way for one."""
    return round(copies * _service_ns(network, size) + CROSSINGS * _crossing_ns(network, size))


def _crossing_ns(network: Network, size: int) -> float:
    if network.one_hop is not None:
        return float(network.one_hop.low_ns + network.one_hop.spread_ns)
    return 2 * _service_ns(network, size) + float(network.delay_ns.max())

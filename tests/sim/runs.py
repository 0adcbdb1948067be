"""Runs whose insides a test wants to see."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubecast.networks.network import Edges, Network, NodeCosts, every_node_hosts, from_edges
from cubecast.networks.spec import build_network
from cubecast.protocol import mail as mailbox
from cubecast.sim import kernel
from cubecast.sim.build import Simulation, build_simulation
from cubecast.sim.due import IDLE
from cubecast.sim.runner import runner
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.sim.world import NO_PACKET
from cubecast.trace.files import Trace


def run_to_end(scenario: Scenario, network: Network | None = None, budget: int = 1 << 20) -> tuple[int, Simulation]:
    """How the run ended, and its arrays."""
    simulation = build_simulation(scenario, network or network_of(scenario), tracing=False)
    run = runner(simulation)
    until_ns = round(scenario.until_ms * NS_PER_MS)
    status = kernel.PAUSED
    while status == kernel.PAUSED:
        status = run(until_ns, budget)
    return status, simulation


def traced(*, network: str | Network, **settings: Any) -> Trace:
    """The trace of a run."""
    if isinstance(network, str):
        scenario = Scenario(network=network, **settings)
        return trace_scenario(scenario, network_of(scenario))
    return trace_scenario(Scenario(network=network.name, **settings), network)


def network_of(scenario: Scenario) -> Network:
    """The network that a scenario spells."""
    return build_network(scenario.network, members=scenario.members, seed=scenario.seed)


def wired(*edges: tuple[int, int, int, float], members: int | None = None, costs: NodeCosts | None = None) -> Network:
    """A network from edges (from, to, delay in ns, bits a second); by default a member at every node."""
    ends = np.array([edge[:2] for edge in edges], np.int64)
    nodes = int(ends.max()) + 1
    drawn = Edges(
        ends=ends,
        delay_ns=np.array([edge[2] for edge in edges], np.int64),
        bandwidth_bps=np.array([edge[3] for edge in edges], np.float64),
    )
    hosts: NDArray[np.int32] = every_node_hosts(members or nodes)
    return from_edges(drawn, name="wired", nodes=nodes, hosts=hosts, costs=costs)


def leaks(simulation: Simulation) -> list[str]:
    """What a finished run did not give back, or gave back twice."""
    mail, world = simulation.mail, simulation.world
    scalars = world.scalars[0]
    free = mail.free[: int(mail.counts[mailbox.FREE])]
    packets: list[int] = []
    packet = int(scalars.packet_free)
    while packet != NO_PACKET and len(packets) <= int(scalars.packets_used):
        packets.append(packet)
        packet = int(world.packets[packet].next)
    found = {
        "messages free": (sorted(free.tolist()), list(range(1, int(mail.counts[mailbox.USED])))),
        "packets free": (sorted(packets), list(range(NO_PACKET + 1, int(scalars.packets_used)))),
        "in network": (int(scalars.in_network), 0),
        "links busy": (int((world.due < IDLE).sum()), 0),
    }
    return [f"{name}: {is_now}, not {wanted}" for name, (is_now, wanted) in found.items() if is_now != wanted]

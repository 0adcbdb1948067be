"""Groups beyond the tables of routes and the bitmaps of memberships."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError, SimulationError
from cubecast.networks import network as networks
from cubecast.networks.routes import find_routes
from cubecast.networks.spec import build_network
from cubecast.protocol.context import Context
from cubecast.protocols.broadcast import peers, plumtree, rasm
from cubecast.protocols.catalogue import protocol_named
from cubecast.sim import memory
from cubecast.sim.next_link import TO_NEIGHBOURS, next_link
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario, run_to_end, simulate
from cubecast.sim.world import SCALARS
from tests.support.paths import path_links

LARGE = networks.NODES_MAX + 8


class _World:
    """What `next_link` reads, of a network without a table."""

    def __init__(self, network: networks.Network, arity: int) -> None:
        self.first_link = np.searchsorted(network.link_from, np.arange(network.nodes + 1))
        self.links = np.zeros(network.links, [("to", np.int32)]).view(np.recarray)
        self.links.to = network.link_to
        self.scalars = np.zeros(1, SCALARS).view(np.recarray)
        self.scalars.arity = arity


@pytest.mark.parametrize("spec", ["star", "chain", "wan-tree", "wan-tree:nodes=50"])
def test_arithmetic_finds_the_links_of_the_table(spec: str) -> None:
    network = build_network(spec, members=23, seed=1)
    world, found = _World(network, network.arity), find_routes(network, by="hops")
    hop = getattr(next_link, "py_func", next_link)
    with pytest.MonkeyPatch.context() as patch:
        from cubecast.sim import next_link as module

        for name in ("_link_to_neighbour", "_port_in_tree"):
            function = getattr(module, name)
            patch.setattr(module, name, getattr(function, "py_func", function))
        for to in network.hosts.tolist():
            for node in range(network.nodes):
                if node != to:
                    assert hop(world, node, to) == path_links(found, network, node, to)[0]


def test_a_neighbour_is_reached_over_the_link_to_it() -> None:
    network = build_network("regular:degree=4", members=20, seed=1)
    world = _World(network, TO_NEIGHBOURS)
    with pytest.MonkeyPatch.context() as patch:
        from cubecast.sim import next_link as module

        patch.setattr(module, "_link_to_neighbour", getattr(module._link_to_neighbour, "py_func", None))
        hop = getattr(next_link, "py_func", next_link)
        for link in range(network.links):
            assert hop(world, int(network.link_from[link]), int(network.link_to[link])) == link
        far = next(node for node in range(1, 20) if node not in network.link_to[network.link_from == 0])
        assert hop(world, 0, far) == -1


def test_a_large_star_needs_no_table() -> None:
    """START, ACK and INFO take one hop between rank 0, the centre, and its children, and two elsewhere in the tree."""
    result = simulate("s_coord", members=LARGE, senders=1, network="star", tree_degree=100, seed=1)
    leaves = LARGE - 1
    assert result.messages == 3 * leaves
    assert result.hops == 3 * (100 + 2 * (leaves - 100))


def test_a_large_chain_needs_no_table() -> None:
    """Two trains along the chain, and each goes home over all of it."""
    result = simulate("train", members=LARGE, senders=1, network="chain:delay=1us", seed=1)
    assert result.messages == 2 * LARGE
    assert result.hops == 2 * 2 * (LARGE - 1)


def test_messages_to_neighbours_need_no_table() -> None:
    result = simulate(
        "plumtree", members=LARGE, senders=1, network="regular:degree=4,sampled=0", messages=2, rate=10, seed=1
    )
    assert result.delivered_share == 1.0


def test_a_message_beyond_the_neighbours_ends_the_run() -> None:
    with pytest.raises(SimulationError, match="s_coord sends beyond its neighbours"):
        simulate("s_coord", members=LARGE, senders=1, network="regular:degree=4,sampled=0", seed=1)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"network": "regular:degree=4", "routing": "delay"}, "routing = delay on network"),
        ({"network": "star", "multicast": "tree"}, "multicast = tree on network star"),
        ({"network": "random:degree=5"}, "for larger groups use flat, star, chain, wan-tree, regular"),
    ],
)
def test_what_takes_a_table_is_refused(settings: dict[str, str], error: str) -> None:
    with pytest.raises(LocalProtocolError, match=error):
        simulate("s_coord", members=LARGE, senders=1, **settings)  # type: ignore[arg-type]


def test_a_quadratic_state_is_refused_before_it_is_allocated() -> None:
    """A million members of CubeFullDist: a bitmap each, and one in each message, are 2 · 10¹² bits, 233 GiB."""
    with pytest.raises(LocalProtocolError) as caught:
        run_scenario(
            Scenario.of("cube_full_dist", members=1_000_000, network="flat"),
            build_network("flat", members=1_000_000, seed=0),
        )
    text = str(caught.value)
    found = re.match(r"cube_full_dist with 1000000 members would take (\d+) GiB", text)
    assert found is not None
    assert 233 <= int(found[1]) <= 270  # with the neighbours and the arrays
    assert "its state is quadratic" in text
    assert "s_coord" in text
    assert "full_dist" not in text.partition("choose fewer members")[2]


@pytest.mark.parametrize("name", ["s_coord", "train", "s_train", "cube_full_dist", "gossip"])
def test_the_estimate_is_what_a_group_takes(name: str) -> None:
    protocol = protocol_named(name)
    context = Context(members=1500, senders=20)
    parameters = protocol.resolve(protocol.parameters(), context)
    taken = memory._sampled_bytes(protocol, parameters, context, 1500)
    assert memory.state_bytes(protocol, parameters, context) == pytest.approx(taken, rel=0.1)


def test_a_group_that_fits_is_not_refused() -> None:
    context = Context(members=20_000, senders=50)
    scenario = Scenario.of("cube_full_dist", members=20_000, network="flat")
    memory.check_memory(scenario, context, available=1 << 30)
    with pytest.raises(LocalProtocolError, match="cube_full_dist with 20000 members would take"):
        memory.check_memory(scenario, context, available=1 << 20)


def test_a_hundred_thousand_members_share_one_membership() -> None:
    result = simulate("s_coord", members=100_000, network="flat", seed=1)
    assert result.messages == 3 * 99_999


@pytest.mark.parametrize("module", [plumtree, rasm], ids=lambda module: module.PROTOCOL.name)
def test_a_tree_remembers_no_more_messages_than_there_are(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many places as messages none is used twice, so nothing else changes."""
    settings = {"members": 30, "senders": 3, "messages": 5, "network": "regular:degree=4,loss=0.05", "seed": 3}
    short, simulation = run_to_end(Scenario.of(module.PROTOCOL.name, **settings), _network(settings))
    assert simulation.data.peers.seen.shape == (30, 3, 5)
    monkeypatch.setattr(module, "window_of", lambda _context: peers.WINDOW)
    long, simulation = run_to_end(Scenario.of(module.PROTOCOL.name, **settings), _network(settings))
    assert simulation.data.peers.seen.shape == (30, 3, peers.WINDOW)
    assert _without_times(short) == _without_times(long)


def _network(settings: dict[str, Any]) -> networks.Network:
    return build_network(settings["network"], members=settings["members"], seed=settings["seed"])


def _without_times(result: Result) -> dict[str, Any]:
    return {
        name: value
        for name, value in result.to_dict().items()
        if name not in ("wall_seconds", "packet_hops_per_second")
    }

"""Floors: no run of any protocol is below them, and simple shapes reach what can be computed by hand."""

from __future__ import annotations

import pytest

from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.lower_bounds import BOUNDED, lower_bounds
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario

MAIN = [one.name for one in list_protocols() if one.family in ("stability", "causal", "broadcast")]
HEADER_MS = 32 * 8 / 100e6 * 1e3


def _run(protocol: str, **settings: object) -> tuple[Result, dict[str, float]]:
    scenario = Scenario.of(protocol, seed=2, **settings)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    result = run_scenario(scenario, network)
    return result, lower_bounds(scenario, network, result)


@pytest.mark.parametrize("protocol", MAIN)
@pytest.mark.parametrize("network", ["random:degree=4", "flat:delay=1-2ms", "wan-tree"])
def test_no_protocol_is_below_a_floor(protocol: str, network: str) -> None:
    entry = next(one for one in list_protocols() if one.name == protocol)
    if network.startswith("flat") and entry.family in ("causal", "broadcast"):
        network = "star"
    data = {"messages": 2, "senders": 3} if entry.carries_data else {"rounds": 2}
    result, floors = _run(protocol, members=13, network=network, **data)
    assert floors
    for metric, floor in floors.items():
        assert metric in BOUNDED
        assert getattr(result, metric) >= floor * (1 - 1e-12), metric


def test_a_chain_has_its_length_as_diameter_and_half_of_it_as_radius() -> None:
    _, floors = _run("s_coord", members=9, network="chain:delay=1ms")
    assert floors["rtt_last_ms"] == pytest.approx(8 * (1 + HEADER_MS))
    assert floors["rtt_first_ms"] == pytest.approx(4 * (1 + HEADER_MS))


def test_a_tree_reaches_the_floor_of_a_multicast() -> None:
    result, floors = _run("tree", members=13, network="random:degree=4", messages=2, senders=3)
    assert result.data_messages == floors["data_messages"] == 2 * 3 * 12


def test_a_round_takes_two_messages_for_each_member_but_one() -> None:
    result, floors = _run("train", members=13, network="flat")
    assert floors["messages"] == 24
    assert result.messages == 26


def test_the_floor_of_delays_is_the_mean_over_the_senders() -> None:
    _, floors = _run("overlay", members=4, senders=1, messages=1, network="chain:delay=1ms")
    assert floors["delay_mean_ms"] == pytest.approx(2 * (1 + HEADER_MS))
    assert floors["delay_max_ms"] == pytest.approx(3 * (1 + HEADER_MS))


def test_a_group_that_changes_has_no_floor() -> None:
    assert _run("s_coord", members=9, network="star", crashes="3@1ms")[1] == {}

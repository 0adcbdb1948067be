"""Dissemination and cascade, simulated: every safeguard is needed, a quiet group is silent, seeds keep promises."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.networks.spec import build_network
from cubecast.sim.placement import declared_traffic
from cubecast.sim.resolve_defaults import resolve_defaults
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_to_end, simulate
from tests.sim.plain_python import output_of
from tests.sim.random_scenarios import random_scenario, run_seeds

PROTOCOLS = ("dissemination", "cascade")


@pytest.fixture(scope="module")
def noticed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    broken: dict[str, list[str]] = output_of("tests.sim.broken_aggregation", tmp_path_factory)
    return broken


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("removed", ["blind to views", "remembering", "without last input"])
def test_without_it_stability_is_premature(noticed: dict[str, list[str]], protocol: str, removed: str) -> None:
    assert "no premature stability" in noticed[f"{removed} {protocol}"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("removed", ["not restarting", "never asking", "never answering"])
def test_without_it_rounds_do_not_end(noticed: dict[str, list[str]], protocol: str, removed: str) -> None:
    assert noticed[f"{removed} {protocol}"] == ["every round ends"]


def test_without_asking_in_a_new_view_rounds_do_not_end(noticed: dict[str, list[str]]) -> None:
    """Cascade asks for all overdue inputs; dissemination, if nothing is lost, asks only in new views."""
    assert noticed["not asking after exclusions dissemination"] == ["every round ends"]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_scenarios_keep_every_promise(first: int) -> None:
    bad = [(scenario.command(), found) for _, scenario, found in run_seeds(range(first, first + 50), PROTOCOLS)]
    assert bad == []


def test_an_input_that_seems_to_take_no_time_is_not_asked_without_end() -> None:
    """Without a least patience a member asks tens of thousands of times before the first answer can come."""
    assert [found for _, _, found in run_seeds(range(3930, 3931), ["cascade"])] == []


def test_the_scenarios_draw_every_overlay() -> None:
    drawn = [random_scenario(seed, ["cascade"]).parameters for seed in range(100)]
    assert {one.overlay for one in drawn} == {"tree", "dissemination", "hypercube"}
    assert {one.linger for one in drawn} == {True, False}


QUIET: dict[str, Any] = {
    "members": 9,
    "network": "random:degree=3",
    "senders": 3,
    "messages": 4,
    "rate": 100,
    "delta_ms": 2.0,
    "seed": 1,
}


@pytest.mark.parametrize(
    ("protocol", "own"),
    [
        ("dissemination", {}),
        ("cascade", {"overlay": "tree"}),
        ("cascade", {"overlay": "dissemination"}),
        ("cascade", {"overlay": "hypercube"}),
    ],
)
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_quiet_group_sends_nothing(protocol: str, own: dict[str, Any], loss: float) -> None:
    """Whether the run goes on for two seconds or for four: the same messages were sent."""
    counts = {simulate(protocol, least_ms=least_ms, loss=loss, **QUIET, **own).messages for least_ms in (2000, 4000)}
    assert len(counts) == 1


def test_a_lone_message_is_stable_after_one_climb_and_descent() -> None:
    """The first wave finds nothing; the message needs one more, of a minimum up and a frontier down for each member."""
    alone = QUIET | {"senders": 1, "messages": 1, "delta_ms": 1.0}
    result = simulate("cascade", **alone)
    waves = result.messages / (2 * (QUIET["members"] - 1))
    assert waves == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("radix", [1, 0, -3, 65])
def test_a_radix_that_cannot_be_is_refused_in_one_line(protocol: str, radix: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"^radix = {radix} of {protocol}: choose from 2 to 64$"):
        Scenario.of(protocol, members=4, radix=radix)


def test_an_unknown_overlay_is_refused_in_one_line() -> None:
    wanted = "^overlay = 'ring' of cascade: choose tree or dissemination or hypercube$"
    with pytest.raises(LocalProtocolError, match=wanted):
        Scenario.of("cascade", members=4, overlay="ring")


@pytest.mark.parametrize("members", [2, 3, 8, 13, 16, 21])
@pytest.mark.parametrize(
    ("protocol", "parameters"),
    [
        ("dissemination", {"radix": 2}),
        ("dissemination", {"radix": 5}),
        ("cascade", {"overlay": "tree"}),
        ("cascade", {"overlay": "tree", "tree_degree": 3}),
        ("cascade", {"overlay": "dissemination", "radix": 4}),
        ("cascade", {"overlay": "hypercube"}),
    ],
)
def test_the_declared_traffic_is_from_every_member_to_its_outputs(
    members: int, protocol: str, parameters: dict[str, Any]
) -> None:
    scenario = Scenario.of(protocol, members=members, network="star", **parameters)
    network = build_network("star", members=members, seed=0)
    traffic = declared_traffic(scenario, network)
    assert traffic is not None
    _, simulation = run_to_end(resolve_defaults(scenario, network), network)
    links = simulation.control.links
    outputs = [(rank, int(links.outputs[rank, k])) for rank in range(members) for k in range(links.output_count[rank])]
    assert sorted(zip(traffic.source.tolist(), traffic.target.tolist(), strict=True)) == sorted(outputs)

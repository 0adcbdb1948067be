"""A few hundred of the random scenarios; `python -m tests.sim.random_scenarios` runs as many as one likes."""

from __future__ import annotations

import pytest

from tests.sim.random_scenarios import PROTOCOLS, random_scenario, run_seeds


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_scenarios_keep_every_promise(first: int) -> None:
    bad = [(scenario.command(), found) for _, scenario, found in run_seeds(range(first, first + 50))]
    assert bad == []


def test_a_seed_gives_one_scenario() -> None:
    assert random_scenario(7) == random_scenario(7)
    assert random_scenario(7) != random_scenario(8)


def test_the_scenarios_reach_everything_that_can_go_wrong() -> None:
    drawn = [random_scenario(seed) for seed in range(400)]
    assert {scenario.protocol for scenario in drawn} == set(PROTOCOLS)
    assert {scenario.network.partition(":")[0] for scenario in drawn} == {"random", "star", "chain", "flat", "wan-tree"}
    assert {scenario.multicast for scenario in drawn} >= {"copies", "tree"}
    for setting in ("loss", "duplicate", "reorder", "queue_limit", "messages", "crashes", "suspicions", "partitions"):
        share = sum(bool(getattr(scenario, setting)) for scenario in drawn) / len(drawn)
        assert 0.02 < share < 0.7, setting
    recoveries = [fault for scenario in drawn for fault in scenario.crashes if fault.until_ns >= 0]
    assert len(recoveries) > 20
    assert any(0 in fault.members for scenario in drawn for fault in scenario.crashes)
    assert max(scenario.members for scenario in drawn) > 30
    assert min(scenario.members for scenario in drawn) == 2

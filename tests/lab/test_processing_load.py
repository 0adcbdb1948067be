"""Messages that members process in a simulated round, against the formulas of guo Table 4.1."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.experiments import check_run, experiment_named, scenario_of
from cubecast.lab.processing_load import processed
from cubecast.models.complexity import GroupSize
from cubecast.networks.spec import build_network
from tests.oracles.processed import messages_processed

ROUND: dict[str, Any] = {"network": "wan-tree", "senders": 1, "members": 13, "seed": 0}


@pytest.mark.parametrize("members", [13, 17])
@pytest.mark.parametrize("protocol", ["coord", "full_dist", "train", "s_coord", "s_train"])
def test_every_member_processes_what_the_table_says(protocol: str, members: int) -> None:
    scenario = scenario_of({**ROUND, "protocol": protocol, "members": members})
    network = build_network(scenario.network, members=members, seed=0)
    formula = messages_processed(protocol, GroupSize(members=members, senders=1, degree=3))
    assert processed(scenario, network).tolist() == formula.tolist()


def test_root_inner_members_and_leaves_are_told_apart() -> None:
    found = experiment_named("processing_load").run({**ROUND, "protocol": "s_train"})
    assert found == {
        "processed_root": 5,
        "processed_inner_min": 4,
        "processed_inner_max": 5,
        "processed_leaf_min": 3,
        "processed_leaf_max": 4,
        "processed_max": 5,
        "processed_step_max": 5 / 8,
    }


def test_cube_full_dist_exchanges_one_message_with_each_neighbour_per_iteration() -> None:
    found = experiment_named("processing_load").run(
        {**ROUND, "protocol": "cube_full_dist", "members": 64, "network": "flat"}
    )
    assert found["processed_step_max"] == pytest.approx(2 * 6, rel=0.2)
    assert found["processed_max"] > 6 * 6


def test_only_one_round_without_data_can_be_counted() -> None:
    for wrong in ({"rounds": 2}, {"messages": 3}, {"protocol": "timestamp", "messages": 1}):
        with pytest.raises(LocalProtocolError, match="one round of a stability protocol"):
            check_run("processing_load", {**ROUND, "protocol": "coord", **wrong}, set())
    with pytest.raises(LocalProtocolError, match="messages that arrive"):
        check_run("processing_load", {**ROUND, "protocol": "coord", "loss": 0.1}, set())

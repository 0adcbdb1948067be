"""Gossip within a time-to-live (guo §4.2.4), simulated: nothing is called stable too early, and rounds end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate
from tests.sim.random_scenarios import complaints

SEEDS = 24


def _scoped(seed: int) -> Scenario:
    draw = random.Random(seed)
    settings: dict[str, Any] = {
        "members": draw.choice([5, 13, 20, 40]),
        "senders": draw.choice([1, 3, 5]),
        "network": draw.choice(["random:degree=3", "wan-tree:bandwidth=10e6", "chain", "star"]),
        "ending": draw.choice(["optimised", "piggyback"]),
        "ttl": draw.randint(1, 3),
        "loss": draw.choice([0.0, 0.1]),
        "rounds": draw.randint(1, 4),
        "step_s": 0.02,
        "seed": seed,
    }
    if draw.random() < 0.4:
        settings |= {"messages": draw.randint(1, 10), "rate": 100.0}
    return Scenario.of("gossip", **settings)


def test_random_groups_keep_every_promise() -> None:
    assert [f"seed {seed}: {complaint}" for seed in range(SEEDS) for complaint in complaints(_scoped(seed))] == []


def test_a_wider_scope_takes_fewer_steps_and_more_messages() -> None:
    near, far = (simulate("gossip", members=20, network="chain", step_s=0.05, ttl=ttl, seed=2) for ttl in (1, 3))
    assert near.steps is not None
    assert far.steps is not None
    assert far.steps < near.steps
    assert far.messages / far.steps > near.messages / near.steps


def test_hops_must_be_known() -> None:
    for network in ("flat", "wan-tree:nodes=100"):
        with pytest.raises(LocalProtocolError, match="every node of the network is a member"):
            simulate("gossip", members=20, network=network, ttl=2)

"""The whole stack under everything that can go wrong, with every checker on; see `random_stacks`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cubecast.sim.faults import Fault
from tests.sim.random_stacks import STACKS, Stack, complaints, failures, random_stack
from tests.support.scenarios import shared_scenario

SEEDS = 60
OFTEN = {Stack("coord", "nak"), Stack("coord", "hierarchical"), Stack("coord", "nak", "gossip")}
"""The others take long to compile."""


def _stacks() -> list[Any]:
    return [
        pytest.param(stack, id="-".join(stack), marks=() if stack in OFTEN else pytest.mark.slow) for stack in STACKS
    ]


@pytest.mark.parametrize("stack", _stacks())
def test_random_runs_keep_every_promise(stack: Stack) -> None:
    assert list(failures(0, SEEDS, (stack,))) == []


def test_a_run_in_which_a_crash_goes_unnoticed_is_found() -> None:
    """The check itself: a threshold that is never reached."""
    scenario = next(
        found
        for found in (random_stack(seed, (Stack("coord", "nak", "gossip"),)) for seed in range(100))
        if any(crash.until_ns < 0 and 0 not in crash.members for crash in found.crashes) and found.members > 4
    )
    hopeless = replace(scenario, detector_parameters=replace(scenario.detector_parameters, threshold=10_000))
    assert complaints(hopeless) != []


def test_a_member_that_is_alone_begins_no_rounds_without_end() -> None:
    """With a trigger at zero messages each of its rounds, which take no time, would begin the next one."""
    scenario = shared_scenario(
        protocol="coord",
        members=2,
        senders=1,
        network="star",
        seed=1,
        messages=10,
        rate=50,
        rounds=2,
        delta_ms=5,
        transport="nak",
        trigger="buffer",
        buffer_messages=3,
        crashes=(Fault(members=(1,), at_ns=40_000_000),),
        detect_ms=5,
    )
    assert complaints(scenario) == []

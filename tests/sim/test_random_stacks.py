"""The whole stack under everything that can go wrong, with every checker on; see `random_stacks`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sim.random_stacks import STACKS, Stack, complaints, failures, random_stack

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

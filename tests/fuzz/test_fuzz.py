"""Whole members over simulated sockets, disks and clocks keep every promise under all faults."""

from __future__ import annotations

import pytest

from cubecast.fuzz import histories
from cubecast.fuzz.histories import Outcome, run_history
from cubecast.protocols.catalogue import list_protocols

SEEDS = 120
STEP = 20


def _text(outcome: Outcome) -> str:
    return "\n".join([*outcome.violations[:5], outcome.replay])


@pytest.mark.parametrize("first", range(0, SEEDS, STEP))
def test_random_histories_keep_every_promise(first: int) -> None:
    for seed in range(first, first + STEP):
        outcome = run_history(seed)
        assert not outcome.violations, _text(outcome)


@pytest.mark.parametrize(
    "stability", [one.name for one in list_protocols("stability") if one.name not in histories.STABILITY]
)
def test_random_histories_with_a_protocol_that_is_not_drawn_keep_every_promise(stability: str) -> None:
    for seed in range(4000, 4020):
        outcome = run_history(seed, stability=stability)
        assert not outcome.violations, _text(outcome)


def test_without_faults_nobody_is_excluded_and_nothing_is_lost() -> None:
    for seed in range(1000, 1010):
        outcome = run_history(seed, faults=False)
        assert not outcome.violations, _text(outcome)
        assert not outcome.is_lost


def test_one_seed_gives_one_history() -> None:
    for seed in (3, 4, 11):
        assert run_history(seed).events == run_history(seed).events


def test_most_histories_end_with_a_group() -> None:
    lost = sum(run_history(seed).is_lost for seed in range(2000, 2020))
    assert lost < 10

"""A few dozen of the random gossip runs; `python -m tests.sim.random_gossip` runs as many as one likes."""

from __future__ import annotations

from tests.sim.random_gossip import LOSS, failures, random_gossip

COUNT = 60


def test_gossip_survives_loss_crashes_and_joins_with_both_endings() -> None:
    assert list(failures(0, COUNT)) == []


def test_the_runs_are_as_rough_as_promised() -> None:
    drawn = [random_gossip(seed) for seed in range(COUNT)]
    assert {one.parameters.ending for one in drawn} == {"optimised", "piggyback"}
    assert all(1 - (1 - one.loss) ** (2 if one.network == "star" else 1) >= LOSS - 1e-9 for one in drawn)
    for one in drawn:
        gone = sum(len(fault.members) for fault in (*one.crashes, *one.leaves))
        come = sum(len(fault.members) for fault in one.joins)
        assert gone == come == max(1, round(one.members / 10))

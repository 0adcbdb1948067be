"""Every repair of guo is needed: with it each run keeps every promise, without it some run does not."""

from __future__ import annotations

import pytest

from tests.sim.plain_python import output_of

PREMATURE, STUCK = "no premature stability", "the run ends"
WITHOUT = {
    "coord: a new coordinator": STUCK,
    "coord: not waited for": STUCK,
    "full_dist: a new leader": STUCK,
    "full_dist: not waited for": STUCK,
    "train: another route": STUCK,
    "train: a new trainmaster": STUCK,
    "s_coord: a crashed parent": PREMATURE,
    "s_coord: a crashed root": STUCK,
    "s_train: a crashed parent": PREMATURE,
    "s_train: a crashed sibling": STUCK,
    "s_train: a crashed root": STUCK,
    "gossip: not waited for": STUCK,
    "gossip: the last one left": STUCK,
    "s_gossip: other controllers": STUCK,
    "s_gossip: a group is gone": STUCK,
    "join: the late-join handler": PREMATURE,
    "join: up to date before it counts": "newcomers are up to date when they count",
    "join: s_train gives it a place": PREMATURE,
    "leave: reported to all": STUCK,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = output_of("tests.sim.broken_repairs", tmp_path_factory)
    return found


def test_every_repair_is_tried(found: dict[str, dict[str, list[str]]]) -> None:
    assert set(found) == set(WITHOUT)


@pytest.mark.parametrize("repair", WITHOUT)
def test_a_repair_keeps_the_promises_that_are_broken_without_it(
    found: dict[str, dict[str, list[str]]], repair: str
) -> None:
    assert found[repair]["with"] == []
    assert WITHOUT[repair] in found[repair]["without"]

"""Causal cores under an adversary that orders, delays and kills: no promise is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.causal_adversary import MOVES, NUMBERS, ROOM, Adversary, Move, broken_promise
from tests.property.tree_scenes import SCENES
from tests.sim.broken_overlays import register_broken_overlays
from tests.sim.broken_timestamps import register_broken_timestamps
from tests.sim.plain_python import output_of

PROTOCOLS = ["timestamp", "overlay", "tree", "star", "causal_plumtree", "causal_rasm"]
SCHEDULES = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, NUMBERS - 1)), max_size=80)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(members=st.integers(2, 9), senders=st.integers(1, 9), window=st.sampled_from([3, ROOM]), moves=SCHEDULES)
def test_every_schedule_keeps_every_promise(
    protocol: str, members: int, senders: int, window: int, moves: list[Move]
) -> None:
    Adversary(protocol, members=members, senders=min(senders, members), window=window).play(moves)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("window", [3, ROOM])
def test_long_random_schedules_keep_every_promise(protocol: str, window: int) -> None:
    assert {seed: violation for seed in range(20) if (violation := broken_promise(protocol, seed, window))} == {}


@pytest.mark.parametrize(
    ("protocol", "promise"),
    [("star_early_link", "before its causes"), ("star_early_link", "never delivers"), ("overlay_early_link", "gap")],
)
def test_a_broken_protocol_is_caught(protocol: str, promise: str) -> None:
    register_broken_overlays()
    assert any(promise in broken_promise(protocol, seed) for seed in range(100))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        ("silent", "never delivers"),
        ("gullible", "never delivers"),
        ("modest", "never delivers"),
        ("trusting", "never delivers"),
        ("hoarding", "freed"),
        ("hasty", "before its causes"),
    ],
)
def test_each_safeguard_of_timestamp_is_missed(broken: str, promise: str) -> None:
    register_broken_timestamps()
    violation = (broken_promise(f"{broken}_timestamp", seed) for seed in range(400))
    assert any(promise in one for one in violation)


def test_what_was_freed_since_a_link_was_asked_for_is_not_sent_over_it() -> None:
    """3 asks 0 for a link when 1 has crashed; before 0 learns of it, 3 gets the message through 2, and 0 frees it."""
    talk = Adversary("overlay", members=4, senders=1)
    talk.let_crash(1)
    for _ in range(3):
        talk.let_report(0)
    talk.let_publish(0)
    talk.deliver(0, 2)
    talk.deliver(2, 3)
    talk.let_settle(0)
    talk.deliver(3, 0)
    talk.let_everything_arrive()
    talk.judge_the_end()


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("protocol", ["causal_plumtree", "causal_rasm"])
def test_a_stamped_tree_mends_itself(protocol: str, scene: Callable[[str], None]) -> None:
    scene(protocol)


def test_every_safeguard_of_the_stamped_trees_is_needed(tmp_path_factory: pytest.TempPathFactory) -> None:
    found: dict[str, str] = output_of("tests.property.broken_trees", tmp_path_factory)
    assert found.pop("") == ""
    assert "before its causes" in found.pop("all causes are awaited")
    assert "freed" in found.pop("stable messages are not sent again")
    assert len(found) == 5
    assert all("never delivers" in violation for violation in found.values())

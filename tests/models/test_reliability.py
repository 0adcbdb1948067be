"""A member's estimates of its links: from heartbeats heard and missed to the paths that messages take."""

from __future__ import annotations

import pytest

from cubecast.models.reliability import (
    CHANGE_MIN,
    STEPS_MAX,
    STEPS_MIN,
    Heartbeats,
)


def test_a_link_is_judged_after_some_steps_and_only_when_it_is_another() -> None:
    heartbeats = Heartbeats(2)
    changed = [heartbeats.note(1, heard=step % 2 == 0) for step in range(2 * STEPS_MIN)]
    assert changed.index(True) == STEPS_MIN - 1
    assert sum(changed) == 1
    assert heartbeats.believed.tolist() == [0, pytest.approx(0.5, abs=0.05)]


def test_a_good_link_never_changes_its_estimate() -> None:
    heartbeats = Heartbeats(1)
    assert not any(heartbeats.note(0, heard=True) for _ in range(1000))


def test_a_member_that_has_not_started_is_not_held_against_its_link() -> None:
    heartbeats = Heartbeats(1)
    assert not any(heartbeats.note(0, heard=step >= 100) for step in range(200))


def test_what_is_long_ago_is_forgotten() -> None:
    heartbeats = Heartbeats(1)
    for step in range(STEPS_MAX):
        heartbeats.note(0, heard=step == 0)
    for _ in range(4 * STEPS_MAX):
        heartbeats.note(0, heard=True)
    assert heartbeats.believed[0] < 2 * CHANGE_MIN

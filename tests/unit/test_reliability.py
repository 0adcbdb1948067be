"""What a member believes of its links: from heartbeats heard and missed to the paths that messages take."""

from __future__ import annotations

import asyncio

import pytest

from cubecast.core.broadcast.reliability import CHANGE_MIN, STEPS_MAX, STEPS_MIN, Heartbeats
from tests.unit.test_live_pace import connected


def test_a_link_is_judged_after_some_steps_and_only_when_it_is_another() -> None:
    heartbeats = Heartbeats(2)
    told = [heartbeats.note(1, heard=step % 2 == 0) for step in range(2 * STEPS_MIN)]
    assert told.index(True) == STEPS_MIN - 1
    assert sum(told) == 1
    assert heartbeats.believed.tolist() == [0, pytest.approx(0.5, abs=0.05)]


def test_a_good_link_is_never_worth_a_word() -> None:
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


def test_rasm_asks_others_for_what_came_over_a_link_that_got_worse() -> None:
    """The tree of 3 reaches 1 over the link 1–3 until 1 misses every other heartbeat of 3."""

    async def run() -> None:
        source, out = connected(3, "rasm")
        member, pipes = connected(1, "rasm")
        source.traffic.publish(b"payload")
        member._arrived(3, out[1].frames()[0])
        assert [delivery.payload for delivery in member.traffic.queue] == [b"payload"]
        await asyncio.sleep(0)
        before = {rank: len(pipe.frames()) for rank, pipe in pipes.items()}
        for step in range(STEPS_MIN):
            member.traffic.note_heartbeat(3, heard=step % 2 == 0)
        await asyncio.sleep(0)
        assert {rank for rank, pipe in pipes.items() if len(pipe.frames()) > before[rank]} == {0, 5}

    asyncio.run(run())


def test_other_ways_do_not_judge_links() -> None:
    async def run() -> None:
        member, pipes = connected(1, "plumtree")
        for step in range(2 * STEPS_MIN):
            member.traffic.note_heartbeat(3, heard=step == 0)
        await asyncio.sleep(0)
        assert not any(pipe.written for pipe in pipes.values())

    asyncio.run(run())

"""Strokes hit at the moment they were drawn for, and nowhere else."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from cubecast.core.membership import MemberId, MembershipSettings
from cubecast.core.membership.messages import Accept, Data, Decide, Join, Prepare, Promise
from cubecast.core.membership.records import Adopted, Waiting
from cubecast.sim.churn.random_histories import run_history
from cubecast.sim.churn.strokes import ARRIVES, SENT, WRITTEN, Row, Stroke, Struck
from cubecast.sim.churn.world import MS, Weather

NOTHING: dict[str, Any] = {"nth": 1, "hits_source": True, "one": "", "message": "", "others": "", "for_ms": 0}


def a_world(*strokes: Stroke, members: int = 3, is_durable: bool = True) -> Struck:
    world = Struck(1, MembershipSettings(is_durable=is_durable), Weather(delay_ms=(1.0, 1.0)))
    world.rows = [Row(deque(strokes))]
    world.found(range(members))
    world.run_until(50 * MS)
    return world


def stroke(where: str, kind: type, **what: Any) -> Stroke:
    return Stroke(where=where, kind=kind, **{**NOTHING, **what})


def rows_of(world: Struck, event: str) -> list[tuple[int, int]]:
    """When, and whom it concerned."""
    return [(row.time_ns, row.who.name) for row in world.history if row.event == event]


def test_a_coordinator_is_cut_off_with_its_decision() -> None:
    world = a_world(stroke(SENT, Decide, one="alone"))
    world.join(5, [0])
    world.run_until(200 * MS)
    assert world.processes[MemberId(0, 1)].core.view.number == 2
    assert [world.processes[MemberId(name, 1)].core.view.number for name in (1, 2)] == [1, 1]
    assert len(rows_of(world, "stroke")) == 1


def test_the_nth_message_counts() -> None:
    world = a_world(stroke(ARRIVES, Promise, nth=2, one="stop", hits_source=False))
    world.join(5, [0])
    world.run_until(100 * MS)
    assert rows_of(world, "stop") == rows_of(world, "stroke")
    assert [name for _, name in rows_of(world, "stop")] == [0]


def test_a_stroke_counts_when_the_one_before_it_has_struck() -> None:
    first, second = stroke(SENT, Accept, one="mute"), stroke(SENT, Prepare, one="deaf")
    world = a_world(first, second)
    world.join(5, [0])
    world.run_until(1000 * MS)
    assert [str(row.data) for row in world.history if row.event == "stroke"] == [str(first), str(second)]
    assert [name for _, name in rows_of(world, "stroke")] == [0, 1]  # member 0 had asked for promises before


def test_what_is_held_back_comes_though_its_sender_is_mute(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(stroke(SENT, Data, one="mute", message="held"), stroke(SENT, Join))
    monkeypatch.setattr(world.random, "random", lambda: 0.0)  # until the next stroke, not for a while
    world.multicast(2)
    world.run_until(world.now_ns + 30 * MS)
    assert [world.processes[MemberId(name, 1)].log for name in (0, 1)] == [[], []]
    world.join(5, [0])
    world.run_until(world.now_ns + MS)
    assert [world.processes[MemberId(name, 1)].log for name in (0, 1)] == [[1], []]


def test_a_torn_record_was_never_written() -> None:
    world = a_world(stroke(WRITTEN, Waiting, message="lost"))
    world.processes[MemberId(1, 1)].core.is_blocked = True  # so that it waits
    world.multicast(1)
    assert rows_of(world, "multicast") == []
    assert not any(isinstance(record, Waiting) for record in world._disks[1])
    assert [name for _, name in rows_of(world, "stop")] == [1]


def test_a_record_is_written_before_its_writer_stops() -> None:
    world = a_world(stroke(WRITTEN, Adopted, one="stop"))
    world.join(5, [0])
    world.run_until(120 * MS)
    name = rows_of(world, "stop")[0][1]
    assert any(isinstance(record, Adopted) for record in world._disks[name])


def test_others_hear_no_message_of_a_kind_for_a_while() -> None:
    world = a_world(stroke(SENT, Decide, others="hear none", for_ms=100))
    world.join(5, [0])
    while not rows_of(world, "stroke"):
        world.run_until(world.now_ns + MS)
    world.run_until(world.now_ns + 95 * MS)
    assert world.processes[MemberId(1, 1)].core.view.number == 1
    world.run_until(world.now_ns + 100 * MS)
    assert world.processes[MemberId(1, 1)].core.view.number == 2


def test_without_a_disk_who_stops_comes_back_in_a_new_life() -> None:
    world = a_world(stroke(SENT, Data, one="stop"), members=4, is_durable=False)
    world.multicast(3)
    assert MemberId(3, 1) not in world.living.values()
    world.run_until(1500 * MS)
    assert world.living[3] == MemberId(3, 2)


def test_histories_of_odd_seeds_are_struck_and_replayed_by_their_seed() -> None:
    struck = [run_history(seed) for seed in range(1, 40, 2)]
    assert sum(any(row.event == "stroke" for row in world.history) for _, world in struck) > 10
    for outcome, world in struck[:5]:
        assert run_history(outcome.seed)[1].history == world.history
    assert not any(row.event == "stroke" for seed in range(0, 20, 2) for row in run_history(seed)[1].history)

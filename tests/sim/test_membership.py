"""Groups that change keep every promise; take one safeguard out, and a checker sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cubecast.core.membership import MemberId, MembershipSettings
from cubecast.core.membership.member import MEMBER
from cubecast.core.membership.messages import Progress
from cubecast.core.overlays import hypercube
from cubecast.sim.churn.promises import Judge
from cubecast.sim.churn.random_histories import run_history
from cubecast.sim.churn.world import MS, Weather, World
from tests.sim.broken_membership import BROKEN, caught
from tests.sim.interrupted_changes import (
    KINDS,
    POINTS,
    run_forgotten_proposal,
    run_holder_dies,
    run_interrupted,
    run_late_holder,
    run_lost_decision,
    run_old_ballot,
    run_restart_when_out,
    run_state_after_promise,
)

HISTORIES = 120


def broken_history(seed: int) -> tuple[str, ...]:
    return run_history(seed)[0].broken


def test_random_histories_keep_every_promise() -> None:
    for seed in range(HISTORIES):
        assert broken_history(seed) == (), f"replay: cubecast churn --seed {seed} --histories 1 --show"


@pytest.mark.parametrize("kind", KINDS)
def test_a_coordinator_may_be_interrupted_at_any_point(kind: str) -> None:
    for point in POINTS:
        for seed in range(2):
            assert run_interrupted(seed, kind, point) == (), f"{kind} at point {point}, seed {seed}"


def test_an_old_ballot_is_refused() -> None:
    assert run_old_ballot() == ()
    assert run_old_ballot(restarts=True) == ()


def test_an_accepted_proposal_outlives_a_restart() -> None:
    assert run_forgotten_proposal() == ()


def test_who_is_out_stays_out_after_a_restart() -> None:
    assert run_restart_when_out() == ()


def test_those_who_leave_tell_the_decision_again() -> None:
    assert run_lost_decision() == ()


def test_who_got_the_state_late_has_it_for_those_who_came_after() -> None:
    assert run_late_holder() == ()


def test_a_state_that_comes_after_the_promise_counts() -> None:
    assert run_state_after_promise() == ()


def test_the_state_comes_from_one_member_at_a_time() -> None:
    assert run_holder_dies() == ()


STORIES: dict[str, Callable[[int], tuple[str, ...]]] = {
    "an accepted proposal is not read back": run_forgotten_proposal,
    "a promise is forgotten": run_old_ballot,
    "a promise is not read back": partial(run_old_ballot, restarts=True),
    "the end is not read back": run_restart_when_out,
    "pieces of two snapshots are mixed": run_holder_dies,
    "the one who leaves is gone at once": run_lost_decision,
}
"""What shows that this is missing."""


@pytest.mark.parametrize("missing", STORIES)
def test_a_story_shows_what_it_is_about(missing: str) -> None:
    assert caught(missing, STORIES[missing], range(1)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("missing", BROKEN)
def test_a_missing_safeguard_is_caught(missing: str) -> None:
    assert caught(missing, broken_history, range(1000)) is not None


def settled(world: World) -> World:
    """Run until all is done, and judge it."""
    for _ in range(400):
        world.run_until(world.now_ns + world.settings.tick_ns)
        if world.is_settled():
            break
    judge = Judge()
    judge.read(world.history)
    assert judge.broken == []
    assert world.is_settled()
    judge.judge_end(world.history, [process.core.me for process in world.in_group()])
    assert judge.broken == []
    return world


def a_group(members: int, **settings: Any) -> World:
    world = World(1, MembershipSettings(**settings), Weather())
    world.found(range(members))
    world.run_until(50 * MS)
    return world


def views_of(world: World, name: int) -> list[tuple[int, ...]]:
    return [
        tuple(who.name for who in row.data.members)
        for row in world.history
        if row.event == "install" and row.who.name == name
    ]


def test_several_changes_are_one_view() -> None:
    world = a_group(5, batch_ns=200 * MS)
    world.crash(4)
    for name in (7, 8):
        world.join(name, [1])
    world.leave(3)
    settled(world)
    assert views_of(world, 0) == [(0, 1, 2, 3, 4), (0, 1, 2, 7, 8)]


def test_a_newcomer_begins_with_the_state_and_goes_on_with_the_tail() -> None:
    world = a_group(3, chunk_bytes=4)
    for _ in range(20):
        world.multicast(0)
    world.run_until(world.now_ns + 60 * MS)
    world.join(5, [2])
    for _ in range(40):
        world.multicast(1)
        world.run_until(world.now_ns + 5 * MS)
    settled(world)
    newcomer = world.processes[MemberId(5, 1)]
    assert sorted(newcomer.log) == list(range(1, 61))
    restored = next(row.data for row in world.history if row.event == "restore")
    assert 20 <= len(restored) < 60


def test_a_minority_blocks_keeps_what_it_has_and_comes_back() -> None:
    world = a_group(5)
    world.divide([[0, 1, 2], [3, 4]])
    world.run_until(world.now_ns + 500 * MS)
    world.multicast(3)
    world.multicast(1)
    world.run_until(world.now_ns + 200 * MS)
    blocked = {row.who.name for row in world.history if row.event == "blocked"}
    assert blocked == {3, 4}
    assert views_of(world, 0)[-1] == (0, 1, 2)
    assert views_of(world, 3) == [(0, 1, 2, 3, 4)]
    returned = world.history
    world.heal()
    settled(world)
    lost = [row.data[0] for row in returned if row.event == "excluded" and row.who.name == 3]
    assert lost == [(1,)]  # the message that nobody heard is handed back
    assert sorted(world.living) == [0, 1, 2, 3, 4]
    assert all(process.log == [2] for process in world.in_group())


def test_half_of_the_group_goes_on_if_the_first_rank_is_in_it() -> None:
    world = a_group(4)
    world.divide([[0, 1], [2, 3]])
    world.run_until(world.now_ns + 1000 * MS)
    assert views_of(world, 0)[-1] == (0, 1)
    assert {row.who.name for row in world.history if row.event == "blocked"} == {2, 3}


def test_one_bad_link_excludes_nobody() -> None:
    world = a_group(4)
    world.cut(2, 0)
    world.cut(0, 2)
    for _ in range(30):
        world.multicast(2)
        world.run_until(world.now_ns + 30 * MS)
    assert views_of(world, 0) == [(0, 1, 2, 3)]
    assert len(world.processes[MemberId(0, 1)].log) > 20  # others pass on what the bad link does not carry


def test_a_newcomer_that_dies_midway_harms_nobody() -> None:
    world = a_group(3, chunk_bytes=1)
    for _ in range(100):
        world.multicast(0)
    world.join(9, [0])
    newcomer = world.processes[MemberId(9, 1)].core
    while newcomer.phase != MEMBER:
        world.run_until(world.now_ns + MS)
    world.run_until(world.now_ns + 10 * MS)
    assert not newcomer.is_ready
    world.crash(9)
    world.multicast(1)
    settled(world)
    assert views_of(world, 0)[-1] == (0, 1, 2)
    assert not world.processes[MemberId(0, 1)].core._snapshots.kept


def test_who_comes_back_is_a_new_member() -> None:
    world = a_group(3)
    world.multicast(2)
    world.run_until(world.now_ns + 50 * MS)
    world.crash(2)
    world.join(2, [0])
    settled(world)
    assert world.processes[MemberId(0, 1)].core.view.members == (MemberId(0, 1), MemberId(1, 1), MemberId(2, 2))
    assert world.processes[MemberId(2, 2)].log == [1]


@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_a_whole_group_stops_and_goes_on_with_its_unstable_messages(has_checkpoints: bool) -> None:
    world = a_group(4, is_durable=True)
    for name in (0, 1, 2, 3) * 3:
        world.multicast(name)
    if has_checkpoints:
        for name in (0, 1, 2, 3):
            world.checkpoint(name)
    for name in (0, 1, 2, 3):
        world.multicast(name)
        world.stop(name)  # none of the others has heard its last message
    world.run_until(world.now_ns + 1000 * MS)
    for name in (3, 1, 0, 2):
        world.restart(name)
    settled(world)
    assert all(sorted(process.log) == list(range(1, 17)) for process in world.in_group())
    assert views_of(world, 0)[-1] == (0, 1, 2, 3)


def test_who_resumes_after_the_group_went_on_gets_its_messages_back() -> None:
    world = a_group(4, is_durable=True)
    world.divide([[0, 1, 2], [3]])
    world.multicast(3)
    world.stop(3)
    world.run_until(world.now_ns + 1000 * MS)
    assert views_of(world, 0)[-1] == (0, 1, 2)
    world.heal()
    world.restart(3)
    world.run_until(world.now_ns + 300 * MS)
    settled(world)
    assert [row.data[0] for row in world.history if row.event == "excluded"] == [(1,)]
    assert MemberId(3, 2) in world.processes[MemberId(0, 1)].core.view.members


def test_all_leave_and_the_last_one_closes_the_door() -> None:
    world = a_group(3)
    for name in (0, 1, 2):
        world.leave(name)
    world.run_until(world.now_ns + 3000 * MS)
    assert {row.who.name for row in world.history if row.event == "left"} == {0, 1, 2}


def test_messages_wait_while_the_view_changes_and_keep_their_order() -> None:
    world = a_group(4, batch_ns=0)
    world.crash(3)
    for _ in range(60):
        world.multicast(1)
        world.run_until(world.now_ns + 5 * MS)
    settled(world)
    assert world.processes[MemberId(0, 1)].log == list(range(1, 61))
    assert max(world.pauses_ns) > 0


def test_a_member_that_is_too_far_behind_is_excluded_when_told_so() -> None:
    def run(behind_max: int) -> World:
        world = a_group(4, behind_max=behind_max, suspect_ns=10_000 * MS)
        for name in (0, 1, 2):
            world.cut(name, 3)
        for _ in range(60):
            world.multicast(0)
            world.run_until(world.now_ns + 10 * MS)
        return world

    assert views_of(run(0), 0) == [(0, 1, 2, 3)]
    assert views_of(run(30), 0)[1] == (0, 1, 2)


def test_the_state_comes_in_pieces_with_progress() -> None:
    world = a_group(2, chunk_bytes=8)
    seen: list[Progress] = []
    tell = world._tell
    world._tell = lambda process, action: seen.append(action) if isinstance(action, Progress) else tell(process, action)  # type: ignore[method-assign]
    for _ in range(12):
        world.multicast(0)
    world.run_until(world.now_ns + 60 * MS)
    world.join(2, [0])
    settled(world)
    pieces = -(-len(json.dumps(list(range(1, 13)))) // 8)
    assert seen == [Progress(place, pieces) for place in range(1, pieces + 1)]


def test_a_large_group_talks_to_neighbours_alone_and_hears_of_everybody() -> None:
    world = a_group(40)
    before, began_ns = world.messages, world.now_ns
    world.run_until(began_ns + 20 * world.settings.tick_ns)
    assert world.messages - before <= 20 * 40 * 8
    world.multicast(17)
    world.join(50, [39])  # 39 is no neighbour of the coordinator
    world.leave(38)
    world.crash(21)
    settled(world)
    members = {who.name for who in world.processes[MemberId(0, 1)].core.view.members}
    assert members == {*range(40), 50} - {21, 38}
    assert not [row for row in world.history if row.event in ("blocked", "excluded")]


def test_few_links_of_the_overlay_change_with_a_view() -> None:
    """A hole is filled by a newcomer or by the last rank: at most two members get other neighbours for each change."""
    world = a_group(12)
    world.crash(3)
    settled(world)
    old, new = views_of(world, 0)[0], views_of(world, 0)[1]
    assert old.index(11) == 11
    assert new.index(11) == 3
    changed = links(old) ^ links(new)
    assert len(changed) < len(links(old)) / 2


def links(members: tuple[int, ...]) -> set[frozenset[int]]:
    overlay = hypercube(len(members))
    return {
        frozenset((members[rank], members[other]))
        for rank in range(len(members))
        for other in overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]]
    }

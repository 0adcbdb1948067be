"""Whole members over a simulated network: how they join, go from view to view, and leave."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Literal

import pytest

from cubecast.errors import ExcludedError, LocalProtocolError
from cubecast.member.data_core import read_records, record_form
from cubecast.member.effects import Delivery, Effects, SnapshotWanted, StateArrived, ViewChange
from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.membership.messages import Decide, Proposal
from cubecast.protocols.membership.views import MemberId, next_view
from cubecast.wire import frame
from cubecast.wire.frame import FrameReader
from cubecast.wire.membership import encode_message
from tests.member.network import (
    MS,
    NAMES,
    SETTINGS,
    Network,
    Process,
    agree_on_deliveries,
    excluded,
    failures,
)

A, B, C, D, E = NAMES[:5]


def numbered(word: str, count: int) -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(count)]


# Founding and joining.


@pytest.mark.parametrize("count", [2, 3, 5])
def test_founders_agree_on_the_same_first_view(count: int) -> None:
    network = Network()
    names = network.form(count)
    views = [network.app(name).views for name in names]
    assert all(seen == views[0] for seen in views)
    assert [who.name for who in views[0][0].members] == names
    assert views[0][0].number == 1


def test_a_majority_of_the_founders_is_enough_and_the_last_one_joins_later() -> None:
    network = Network()
    names = NAMES[:3]
    for name in (A, B):
        network.start(name, founders=names)
    network.run_until(lambda: network.in_one_view([A, B]))
    network.multicast(A, b"before")
    network.start(C, founders=names)
    network.settle(A, B, C)
    network.multicast(C, b"after")
    network.settle(A, B, C)
    assert network.app(C).payloads == [b"after"]
    assert network.app(A).payloads == [b"before", b"after"]


def test_too_few_founders_wait_and_name_the_missing_ones() -> None:
    network = Network()
    network.start(A, founders=NAMES[:3])
    network.multicast(A, b"too early")
    network.run(5000)
    assert network.member(A).phase == "forming"
    assert network.app(A).entries == []
    assert network.member(A).waiting_for() == f"waiting for {B} (connection refused), {C} (connection refused)"


def test_a_process_joins_a_group_of_one() -> None:
    network = Network()
    network.start(A)
    network.multicast(A, b"alone")
    network.start(B, contacts=[A])
    network.settle(A, B)
    network.multicast(B, b"together")
    network.settle(A, B)
    assert network.app(A).payloads == [b"alone", b"together"]
    assert network.app(B).payloads == [b"together"]


def test_several_processes_join_at_once() -> None:
    network = Network()
    network.start(A)
    for name in NAMES[1:5]:
        network.start(name, contacts=[A])
    network.settle(*NAMES[:5])
    assert network.member(A).view is not None
    assert len(network.app(A).views) <= 4, "changes that come together share a view"


def test_a_newcomer_under_load_gets_everything_from_its_first_view_on() -> None:
    network = Network()
    names = network.form(3)
    sent = []
    for turn in range(60):
        for name in names:
            sent += network.multicast(name, f"{name} {turn}".encode())
        if turn == 20:
            network.start(D, contacts=[A])
        network.run(2)
    network.settle(*NAMES[:4])
    assert all(outgoing.is_stable for outgoing in sent)
    first = network.app(D).deliveries[0].view
    expected = Counter(one.payload for one in network.app(A).deliveries if one.view >= first)
    assert Counter(network.app(D).payloads) == expected
    agree_on_deliveries(network, NAMES[:4])


@pytest.mark.parametrize("keep", ["all", 3])
def test_a_newcomer_gets_the_kept_history(keep: Literal["all"] | int) -> None:
    network = Network()
    settings = replace(SETTINGS, keep=keep)
    network.start(A, settings=settings)
    network.multicast(A, *numbered("old", 10))
    network.start(B, contacts=[A], settings=settings)
    network.settle(A, B)
    assert network.app(B).state == numbered("old", 10)[-3 if keep == 3 else 0 :]
    network.start(C, contacts=[B], settings=settings)
    network.settle(A, B, C)
    network.multicast(C, b"new")
    network.settle(A, B, C)
    assert network.app(C).state == [*numbered("old", 10)[-3 if keep == 3 else 0 :], b"new"]


def test_a_newcomer_gets_a_snapshot_of_many_pieces_while_others_multicast() -> None:
    network = Network()
    settings = replace(SETTINGS, piece_bytes=7)
    names = NAMES[:3]
    for name in names:
        network.start(name, founders=names, settings=settings, snapshots=True)
    network.run_until(lambda: network.in_one_view(names))
    network.multicast(A, *numbered("first", 50))
    network.settle(*names)
    network.start(D, contacts=[B], settings=settings, snapshots=True)
    for turn in range(20):
        network.multicast(C, f"meanwhile {turn}".encode())
        network.run(1)
    network.settle(*NAMES[:4])
    assert sorted(network.app(D).state) == sorted(network.app(A).state)
    assert len(network.app(D).heard("progress")) > 50


def test_the_state_is_fetched_from_another_member_when_its_holder_is_killed() -> None:
    network = Network()
    settings = replace(SETTINGS, piece_bytes=1)
    names = NAMES[:4]
    for name in names:
        network.start(name, founders=names, settings=settings, snapshots=True)
    network.run_until(lambda: network.in_one_view(names))
    network.multicast(B, bytes(600))
    network.settle(*names)
    network.start(E, contacts=[B], settings=settings, snapshots=True)
    network.run_until(lambda: len(network.app(E).heard("progress")) > 20)
    assert network.member(E).waiting_for().startswith(f"waiting for the state from {A}")
    network.kill(A)
    network.settle(B, C, D, E)
    assert network.app(E).state == network.app(B).state


def test_a_snapshot_that_fails_once_is_taken_from_another_member() -> None:
    network = Network()
    names = NAMES[:3]
    for name in names:
        network.start(name, founders=names, snapshots=True)
    network.run_until(lambda: network.in_one_view(names))
    network.multicast(B, b"state")
    network.settle(*names)
    failing = network.member(A)

    def fail(view: int, state: bytes, now_ns: int) -> None:
        failing.snapshot_failed(view, now_ns)

    failing.give_snapshot = fail  # type: ignore[method-assign]
    network.start(D, contacts=[B], snapshots=True)
    network.settle(*NAMES[:4])
    assert network.app(D).state == [b"state"]


# Messages.


@pytest.mark.parametrize("data", ["timestamp", "star", "tree", "overlay", "causal_plumtree", "causal_rasm"])
@pytest.mark.parametrize("count", [2, 5])
def test_every_data_protocol_delivers_in_causal_order_and_finds_messages_stable(data: str, count: int) -> None:
    network = Network(seed=count, jitter_ns=2 * MS)
    names = network.form(count, settings=replace(SETTINGS, data=data))
    sent = []
    for turn in range(10):
        for name in names:
            sent += network.multicast(name, *(f"{name} {turn} {number}".encode() for number in range(3)))
        network.run(1)
    network.settle(*names)
    assert all(outgoing.is_stable for outgoing in sent)
    assert all(len(network.app(name).payloads) == 30 * count for name in names)
    agree_on_deliveries(network, names)


def test_an_answer_is_never_delivered_before_the_question() -> None:
    for seed in range(10):
        network = Network(seed=seed, jitter_ns=5 * MS)
        names = network.form(4)
        network.multicast(A, b"question")
        network.run_until(lambda network=network: b"question" in network.app(B).payloads)  # type: ignore[misc]
        network.multicast(B, b"answer")
        network.settle(*names)
        assert all(network.app(name).payloads == [b"question", b"answer"] for name in names)


def test_stability_can_be_requested_at_once() -> None:
    network = Network()
    names = network.form(3, settings=replace(SETTINGS, round_every_s=10.0))
    (outgoing,) = network.multicast(A, b"hurry")
    network.call(A, lambda member: member.ask_stable(outgoing, network.now_ns))
    network.run(1000)
    assert outgoing.is_stable
    assert network.member(A).frontier[network.member(A).me] == 1
    assert all(name in names for name, _ in (who for who in network.member(A).frontier))


def test_sequence_numbers_continue_over_views() -> None:
    network = Network()
    network.form(3)
    network.multicast(A, b"one", b"two")
    network.settle(A, B, C)
    network.kill(C)
    network.settle(A, B)
    network.multicast(A, b"three")
    network.settle(A, B)
    found = [(delivery.sequence, delivery.view) for delivery in network.app(B).deliveries]
    assert found == [(1, 1), (2, 1), (3, 2)]


def test_a_slow_application_holds_back_the_senders_and_loses_nothing() -> None:
    network = Network()
    settings = replace(SETTINGS, backlog_bytes=2000, window_messages=50)
    names = network.form(3, settings=settings)
    network.app(C).is_slow = True
    waiting = numbered("a message of some length, so that the backlog fills", 400)
    for _ in range(300):
        while waiting and network.member(A).has_room:
            network.multicast(A, waiting.pop(0))
        network.run(10)
    assert waiting, "the sender was never held back"
    assert not network.member(A).has_room
    assert network.in_one_view(names), "a slow application is no reason to exclude"
    for _ in range(200):
        network.take_all(C)
        network.app(C).is_slow = True
        while waiting and network.member(A).has_room:
            network.multicast(A, waiting.pop(0))
        network.run(20)
    network.take_all(C)
    network.settle(*names)
    assert not waiting
    assert (
        network.app(C).payloads
        == network.app(A).payloads
        == numbered("a message of some length, so that the backlog fills", 400)
    )


def test_an_application_that_takes_nothing_holds_back_its_own_messages_too() -> None:
    """Else a member that multicasts more than it reads has the group to itself: the windows of the others are full."""
    network = Network()
    names = network.form(3, settings=replace(SETTINGS, backlog_bytes=2000))
    network.app(C).is_slow = True
    sent = numbered("a message of some length, so that the backlog fills", 300)
    for payload in sent:
        network.multicast(C, payload)
        network.run(1)
    network.run(500)
    assert 20 < len(network.app(A).payloads) < 80
    network.take_all(C)
    network.settle(*names)
    assert network.app(A).payloads == network.app(C).payloads == sent


def test_an_application_that_takes_nothing_until_its_own_message_is_stable_does_not_wait_forever() -> None:
    """The task that reads may be the one that waits: `async for ...: await (await group.multicast(...)).stable()`."""
    network = Network()
    names = network.form(3, settings=replace(SETTINGS, backlog_bytes=2000, window_messages=20))
    network.app(C).is_slow = True
    stack = network.member(C).stack
    assert stack is not None
    sent = numbered("a message of some length, so that the backlog fills", 60)
    for payload in sent:
        network.run_until(lambda: network.member(A).has_room or stack.is_parked)
        network.multicast(A, payload)
    network.run_until(lambda: stack.is_parked)
    (waiting,) = network.multicast(C, b"a reply")
    network.run_until(lambda: waiting.is_stable)
    network.take_all(C)
    network.settle(*names)
    assert [payload for payload in network.app(B).payloads if payload != b"a reply"] == sent


def test_a_member_that_leaves_sends_what_its_application_multicast_although_it_takes_nothing() -> None:
    network = Network()
    network.form(3, settings=replace(SETTINGS, backlog_bytes=2000))
    network.app(C).is_slow = True
    sent = numbered("a message of some length, so that the backlog fills", 100)
    network.multicast(C, *sent)
    network.run(100)
    network.leave(C)
    network.run_until(lambda: network.in_one_view([A, B]))
    network.settle(A, B)
    assert network.app(A).payloads == sent


def test_a_member_whose_application_takes_nothing_is_named_there_and_by_the_others() -> None:
    network = Network()
    names = network.form(3, settings=replace(SETTINGS, backlog_bytes=2000, window_messages=50, behind_messages=10))
    for turn in range(300):
        network.multicast(A, f"message {turn} of some length, so that the backlog fills".encode())
        network.run(10)
    for name in names:
        assert network.app(name).heard("slow") == network.app(name).heard("backlog") == []
    network.app(C).is_slow = True
    for _ in range(300):
        while network.member(A).has_room:
            network.multicast(A, b"a message of some length, so that the backlog fills")
        network.run(10)
    assert network.app(A).heard("slow") == network.app(B).heard("slow") == [network.member(C).me]
    assert network.app(C).heard("backlog") == [None]
    assert network.app(A).heard("backlog") == network.app(C).heard("slow") == []
    assert network.in_one_view(names)


def test_a_member_that_falls_silent_is_named_before_it_is_excluded() -> None:
    network = Network()
    network.form(3)
    gone = network.member(C).me
    network.kill(C)
    network.run_until(lambda: network.in_one_view([A, B]))
    assert gone in network.app(A).heard("suspected") + network.app(B).heard("suspected")


def test_data_of_a_view_that_is_not_installed_yet_is_held_and_delivered() -> None:
    """B learns of the new view late: what A sends in it arrives before the decision."""
    network = Network()
    network.form(3)
    network.multicast(A, b"old")
    network.settle(A, B, C)
    network.kill(C)
    network.run_until(lambda: len(network.app(A).views) == 2 or len(network.app(B).views) == 2)
    first = A if len(network.app(A).views) == 2 else B
    network.multicast(first, b"new")
    network.settle(A, B)
    assert network.app(A).payloads == network.app(B).payloads == [b"old", b"new"]


def test_a_connection_that_is_reset_under_load_loses_nothing() -> None:
    network = Network(seed=3)
    names = network.form(3)
    for turn in range(100):
        for name in names:
            if network.member(name).has_room:
                network.multicast(name, f"{name} {turn}".encode())
        if turn % 7 == 3:
            network.reset(names[turn % 3], names[(turn + 1) % 3])
        network.run(1)
    network.settle(*names)
    assert all(len(network.app(name).payloads) == 300 for name in names)
    assert [view.number for view in network.app(A).views] == [1], "a reset needs no new view"
    agree_on_deliveries(network, names)


# Crash and exclusion.


def test_the_others_continue_without_a_member_that_was_killed() -> None:
    network = Network()
    network.form(3)
    sent = network.multicast(C, *numbered("last", 5))
    network.run(0.1)
    network.kill(C)
    network.settle(A, B)
    assert network.app(A).payloads == network.app(B).payloads
    assert len(network.app(A).payloads) <= len(sent)


def test_members_that_fail_together_are_excluded_together() -> None:
    network = Network()
    names = network.form(7)
    network.kill(names[2], names[5])
    network.settle(*(name for name in names if name not in (names[2], names[5])))
    assert len(network.app(A).views) == 2


def test_the_coordinator_may_be_killed_at_any_moment_of_a_change() -> None:
    for wait_ns in range(0, 30 * MS, MS // 2):
        network = Network(seed=wait_ns)
        names = network.form(5)
        network.multicast(B, b"message")
        network.kill(E)
        network.run_until(lambda network=network: network.member(A).is_changing)  # type: ignore[misc]
        network.run(wait_ns / MS)
        network.kill(A)
        network.settle(B, C, D)
        assert all(network.app(name).payloads == [b"message"] for name in (B, C, D))
        assert names


def test_a_minority_blocks_and_rejoins_when_the_network_heals() -> None:
    network = Network()
    names = network.form(5)
    network.cut([D, E], [A, B, C])
    network.run_until(lambda: network.in_one_view([A, B, C]))
    network.run_until(lambda: network.member(D).is_blocked and network.member(E).is_blocked)
    waiting = network.multicast(D, b"from the minority")
    network.multicast(A, b"from the majority")
    network.run(2000)
    assert waiting[0] not in network.app(D).settled
    assert b"from the minority" not in network.app(E).payloads
    network.heal()
    network.settle(*names)
    assert Counter(network.app(A).payloads)[b"from the minority"] == 1
    assert waiting[0].is_stable, "it was never sent, so it is sent again"
    assert network.app(D).heard("blocked")[0] is True


def test_an_excluded_member_learns_of_it_although_its_connections_broke() -> None:
    """A paused process: the others exclude it, and its connections are reset before it learns why."""
    network = Network()
    network.form(3)
    network.cut([C], [A, B])
    network.run_until(lambda: network.in_one_view([A, B]))
    network.reset(A, C)
    network.reset(B, C)
    network.run(1000)
    network.heal()
    network.settle(A, B, C)
    assert len(excluded(network.app(C))) == 1
    me = network.member(C).me
    assert me.incarnation > network.app(C).views[0].members[2].incarnation


def test_a_member_that_may_not_rejoin_ends_with_an_error() -> None:
    network = Network()
    network.form(3, settings=replace(SETTINGS, rejoin=False))
    (lost,) = network.multicast(C, b"stable")
    network.settle(A, B, C)
    network.cut([C], [A, B])
    (lost,) = network.multicast(C, b"lost")
    network.run_until(lambda: network.in_one_view([A, B]))
    network.heal()
    network.run_until(lambda: network.member(C).phase == "out")
    assert isinstance(failures(network.app(C))[0], ExcludedError)
    assert isinstance(lost.failure, ExcludedError)
    with pytest.raises(LocalProtocolError, match="multicast after leave"):
        network.multicast(C, b"more")


@pytest.mark.parametrize("resend", ["certain", "always", "never"])
def test_what_was_pending_at_an_exclusion_is_sent_again_as_the_settings_say(resend: str) -> None:
    network = Network()
    network.form(3, settings=replace(SETTINGS, resend=resend))  # type: ignore[arg-type]
    network.cut([C], [A, B])
    (sent,) = network.multicast(C, b"sent")
    network.run_until(lambda: network.member(C).is_blocked)
    (waiting,) = network.multicast(C, b"waiting")
    network.run_until(lambda: network.in_one_view([A, B]))
    network.reset(A, C)  # C does not learn of the decision, so it cannot know what the others delivered
    network.reset(B, C)
    network.heal()
    network.settle(A, B, C)
    (notice,) = excluded(network.app(C))
    assert notice.returned == (b"sent", b"waiting")
    expected = {"certain": [b"waiting"], "always": [b"sent", b"waiting"], "never": []}[resend]
    assert network.app(A).payloads == network.app(B).payloads == expected
    assert waiting.is_stable == (resend != "never")
    assert sent.is_stable == (resend == "always")
    assert (sent.failure is None) == (resend == "always")


def test_messages_that_the_decision_excludes_are_sent_again() -> None:
    network = Network()
    network.form(3)
    network.cut([C], [A, B])
    sent = network.multicast(C, *numbered("sent", 3))
    network.run_until(lambda: network.in_one_view([A, B]))
    network.heal()
    network.settle(A, B, C)
    (notice,) = excluded(network.app(C))
    assert notice.certain
    assert network.app(A).payloads == numbered("sent", 3)
    assert network.app(C).settled == sent, "they stay the same messages"


def _exclude(member: Member) -> None:
    """The others decided to continue without this member, and without what it sent."""
    view = member._members.view
    stay = [who for who in view.members if who != member.me]
    cut = (0,) * len(view.members)
    member._on_decide(Decide(view.id, Proposal(next_view(view, stay, (), cut), cut)))


@pytest.mark.parametrize("quorum", ["majority", "any"])
def test_what_one_branch_decides_is_not_certain_for_all(quorum: str) -> None:
    """With the quorum `any` other members may have decided otherwise, and delivered what this branch did not."""
    network = Network()
    network.form(3, settings=replace(SETTINGS, quorum=quorum))  # type: ignore[arg-type]
    network.cut([C], [A, B])
    network.multicast(C, b"sent")
    network.call(C, _exclude)
    (notice,) = excluded(network.app(C))
    assert notice.returned == (b"sent",)
    assert notice.certain == (quorum == "majority")


def test_own_messages_are_not_sent_before_the_new_state_is_in_place() -> None:
    """After an exclusion the application has the discarded state until it reports that it restored the new one."""
    network = Network()
    names = network.form(3, snapshots=True)
    network.multicast(A, b"before")
    network.settle(*names)
    network.cut([C], [A, B])
    network.run_until(lambda: network.in_one_view([A, B]))
    network.multicast(A, b"meanwhile")
    network.app(C).restores_slowly = True
    network.heal()
    network.run_until(lambda: any(isinstance(entry, StateArrived) for entry in network.app(C).entries))
    network.multicast(C, b"too early")
    network.run(1000)
    assert b"too early" not in network.app(A).payloads
    network.call(C, lambda member: member.restored(network.now_ns))
    network.settle(*names)
    assert network.app(A).payloads == [b"before", b"meanwhile", b"too early"]
    assert network.app(C).state == network.app(A).state


def test_a_restore_that_answers_an_older_state_does_not_count_for_the_newer_one() -> None:
    network = Network()
    network.form(3, snapshots=True)
    network.app(C).restores_slowly = True
    for turn in range(2):
        network.cut([C], [A, B])
        network.run_until(lambda: network.in_one_view([A, B]))
        network.heal()
        network.run_until(
            lambda turn=turn: (  # type: ignore[misc]
                sum(isinstance(entry, StateArrived) for entry in network.app(C).entries) == turn + 1
            )
        )
    network.multicast(C, b"own")
    network.call(C, lambda member: member.restored(network.now_ns))
    network.run(1000)
    assert b"own" not in network.app(A).payloads, "the second state is not in place yet"
    network.call(C, lambda member: member.restored(network.now_ns))
    network.settle(A, B, C)
    assert network.app(A).payloads == [b"own"]


def test_a_member_that_holds_back_stability_is_excluded_if_the_settings_say_so() -> None:
    network = Network()
    settings = replace(SETTINGS, slow="exclude", behind_messages=50, backlog_bytes=500, rejoin=False)
    network.form(3, settings=settings)
    network.app(C).is_slow = True
    for payload in numbered("message of some length", 200):
        network.multicast(A, payload)
        network.run(0.1)
    network.run_until(lambda: network.in_one_view([A, B]))
    assert len(network.app(A).payloads) == 200


# Leaving.


def test_a_member_that_leaves_sends_everything_first() -> None:
    network = Network()
    network.form(3)
    sent = network.multicast(C, *numbered("last", 10))
    network.leave(C)
    network.run_until(lambda: network.member(C).phase == "out")
    network.settle(A, B)
    assert network.app(C).heard("left") == [None]
    assert network.app(A).payloads == numbered("last", 10)
    assert all(outgoing.is_stable for outgoing in sent)
    assert network.app(A).views[-1].left == (network.member(C).me,)
    with pytest.raises(LocalProtocolError, match="multicast after leave"):
        network.member(C).multicast(b"more", network.now_ns)


def test_all_members_leave_one_after_another_and_at_once() -> None:
    for pause_ms in (0, 1, 500):
        network = Network()
        for name in network.form(4):
            network.leave(name)
            network.run(pause_ms)
        network.run_until(lambda network=network: all(one.member.phase == "out" for one in network.processes.values()))  # type: ignore[misc]
        assert all(network.app(name).heard("left") == [None] for name in NAMES[:4])
        assert all(not excluded(network.app(name)) for name in NAMES[:4])


def test_a_member_that_left_may_join_again() -> None:
    network = Network()
    network.form(3)
    network.leave(C)
    network.run_until(lambda: network.member(C).phase == "out" and network.in_one_view([A, B]))
    network.kill(C)
    network.start(C, contacts=[A])
    network.settle(A, B, C)


def test_a_process_that_waits_to_join_leaves_at_once() -> None:
    network = Network()
    network.start(B, contacts=[A])
    network.leave(B)
    assert network.member(B).phase == "out"
    assert network.app(B).heard("left") == [None]


# Restart.


def test_a_member_restarts_from_its_journal_before_the_others_miss_it() -> None:
    network = Network()
    names = network.form(3, durable=True)
    network.multicast(C, *numbered("before", 3))
    network.settle(*names)
    me = network.member(C).me
    network.kill(C)
    network.run(100)
    network.start(C, durable=True)
    assert network.member(C).me == me, "it is the same incarnation"
    network.multicast(C, b"after")
    network.settle(*names)
    assert network.app(A).payloads == network.app(C).payloads == [*numbered("before", 3), b"after"]
    assert not excluded(network.app(C))
    assert not any(excluded(network.app(name)) for name in (A, B)), "the healthy members stay"


def test_a_member_restarts_from_its_journal_after_it_was_excluded() -> None:
    network = Network()
    names = network.form(3, durable=True, snapshots=True)
    network.multicast(A, b"before")
    network.settle(*names)
    network.kill(C)
    network.settle(A, B)
    network.multicast(A, b"meanwhile")
    network.start(C, durable=True, snapshots=True)
    network.settle(*names)
    network.multicast(C, b"after")
    network.settle(*names)
    assert network.app(C).state == network.app(A).state == [b"before", b"meanwhile", b"after"]
    assert len(excluded(network.app(C))) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_everybody_restarts_and_nothing_is_lost(count: int) -> None:
    network = Network()
    names = NAMES[:count]
    if count == 1:
        network.start(A, durable=True)
    else:
        network.form(count, durable=True)
    for name in names:
        network.multicast(name, *numbered(name, 4))
    network.run(1)
    network.kill(*names)
    network.run(1000)
    for name in names:
        network.start(name, durable=True)
    network.settle(*names)
    seen = [sorted(network.app(name).payloads) for name in names]
    assert all(payloads == seen[0] for payloads in seen)
    assert {payload for name in names for payload in numbered(name, 4)} == set(seen[0]), "all own messages were written"
    agree_on_deliveries(network, names)


def test_a_lone_founder_has_after_a_restart_what_it_called_stable() -> None:
    network = Network()
    network.start(A, durable=True)
    sent = network.multicast(A, *numbered("stable", 5))
    assert all(outgoing.is_stable for outgoing in sent)
    network.kill(A)
    network.start(A, durable=True)
    network.settle(A)
    assert network.app(A).payloads == numbered("stable", 5)
    network.multicast(A, b"next")
    network.settle(A)
    assert [delivery.sequence for delivery in network.app(A).deliveries] == [1, 2, 3, 4, 5, 6]


def test_a_message_that_waited_at_an_exclusion_is_delivered_once_however_often_its_sender_restarts() -> None:
    """Excluded with a waiting message, killed before it is back, restarted: the message must not be delivered twice."""
    for pause_ms in (0, 1, 2, 5, 10, 30, 100, 300):
        network = Network()
        names = network.form(3, durable=True)
        network.cut([C], [A, B])
        network.multicast(C, b"sent")
        network.run_until(lambda network=network: network.member(C).is_blocked)  # type: ignore[misc]
        network.multicast(C, b"waiting")
        network.run_until(lambda network=network: network.in_one_view([A, B]))  # type: ignore[misc]
        network.heal()
        network.run_until(lambda network=network: bool(excluded(network.app(C))))  # type: ignore[misc]
        network.run(pause_ms)
        for _ in range(2):
            network.kill(C)
            network.run(pause_ms)
            network.start(C, durable=True)
            network.run(pause_ms)
        network.settle(*names)
        assert Counter(network.app(A).payloads)[b"waiting"] == 1
        assert network.app(A).payloads == network.app(B).payloads


def test_a_message_that_waits_is_sent_after_a_restart() -> None:
    network = Network()
    network.form(3, durable=True)
    network.cut([A], [B, C])
    network.run_until(lambda: network.member(A).is_blocked)
    network.multicast(A, *numbered("waiting", 3))
    network.kill(A)
    network.heal()
    network.start(A, durable=True)
    network.settle(A, B, C)
    assert network.app(B).payloads == numbered("waiting", 3)


def test_a_member_that_was_leaving_is_in_the_group_again_after_a_restart() -> None:
    """A process that is started again wants to be a member."""
    network = Network()
    network.form(3, durable=True)
    network.cut([C], [A, B])
    network.leave(C)
    network.kill(C)
    network.heal()
    network.start(C, durable=True)
    network.settle(A, B, C)
    assert network.app(C).heard("left") == []


def test_what_a_founder_wanted_to_send_before_it_left_is_sent_when_it_is_started_again() -> None:
    network = Network()
    names = NAMES[:3]
    network.start(A, founders=names, durable=True)
    network.multicast(A, b"early")
    network.leave(A)
    network.kill(A)
    for name in names:
        network.start(name, founders=names, durable=True)
    network.settle(*names)
    assert network.app(B).payloads == [b"early"]


def test_a_founder_that_restarts_keeps_its_promise_however_often() -> None:
    """A lost promise could let two different first views be decided."""
    network = Network()
    names = NAMES[:3]
    for name in (A, B):
        network.start(name, founders=names, durable=True)
    network.run_until(lambda: network.member(B)._members.acceptor.is_frozen)
    promised = network.member(B)._members.acceptor.promised
    for _ in range(3):
        network.kill(B)
        network.start(B, founders=names, durable=True)
        assert network.member(B)._members.acceptor.promised == promised
    network.start(C, founders=names, durable=True)
    network.settle(A, B, C)
    assert {network.app(name).views[-1].group_id for name in names} == {network.app(A).views[0].group_id}


def test_a_process_that_restarts_with_an_empty_disk_joins_as_a_newcomer() -> None:
    network = Network()
    names = network.form(3, durable=True)
    network.multicast(C, b"old")
    network.settle(*names)
    network.kill(C)
    network.journals[C].clear()
    network.run(50)
    network.start(C, founders=names, durable=True)
    network.settle(*names)
    network.multicast(C, b"new")
    network.settle(*names)
    assert network.app(A).payloads == [b"old", b"new"]
    assert network.app(C).payloads == [b"new"]
    senders = {delivery.sender for delivery in network.app(A).deliveries}
    assert len(senders) == 2, "another incarnation sent it"


def test_a_fixed_group_survives_the_quick_restart_of_a_member_without_a_journal() -> None:
    """Rank 2 is killed and restarted after 0.5 s: the healthy ranks 0 and 1 must continue."""
    network = Network()
    names = network.form(3)
    network.kill(C)
    network.run(500)
    network.start(C, founders=names)
    network.settle(*names)
    assert not excluded(network.app(A))
    assert not excluded(network.app(B))


def test_a_checkpoint_replaces_the_journal_and_is_where_a_restart_begins() -> None:
    network = Network()
    settings = replace(SETTINGS, journal_bytes=1000)
    names = network.form(3, durable=True, snapshots=True, settings=settings)
    network.multicast(A, *numbered("before", 20))
    network.settle(*names)
    network.multicast(C, b"unstable")
    for name in names:
        process = network.processes[name]
        assert process.member.wants_checkpoint(sum(map(len, process.journal)))
        network.call(
            name,
            lambda member, process=process: member.checkpoint(  # type: ignore[misc]
                b"\n".join(process.application.state), network.now_ns
            ),
        )
        assert len(process.journal) == 1
    network.multicast(B, b"after")
    network.kill(*names)
    for name in names:
        network.start(name, durable=True, snapshots=True, settings=settings)
    network.settle(*names)
    assert all(sorted(network.app(name).state) == sorted(network.app(A).state) for name in names)
    assert set(network.app(A).state) == {*numbered("before", 20), b"unstable", b"after"}
    arrived = [entry for entry in network.app(C).entries if isinstance(entry, StateArrived)]
    assert [entry.is_checkpoint for entry in arrived] == [True]


def test_a_newcomer_that_is_killed_while_it_fetches_the_state_continues_from_its_journal() -> None:
    network = Network()
    settings = replace(SETTINGS, piece_bytes=1)
    names = network.form(3, settings=settings, snapshots=True)
    network.multicast(B, bytes(300))
    network.settle(*names)
    network.start(D, contacts=[B], settings=settings, snapshots=True, durable=True)
    network.run_until(lambda: len(network.app(D).heard("progress")) > 20)
    network.multicast(A, b"meanwhile")
    network.run(1)
    network.kill(D)
    network.start(D, settings=settings, snapshots=True, durable=True)
    network.settle(*NAMES[:4])
    assert network.app(D).state == network.app(A).state


# Effects.


def test_nothing_is_shown_that_the_journal_does_not_hold() -> None:
    """`persist` of an Effects holds every delivery of its entries, and every own message of its writes."""
    network = Network(seed=5, jitter_ns=MS)
    checked = Counter[str]()

    def check(process: Process, effects: Effects) -> None:
        written = b"".join([] if effects.replaces else process.journal) + b"".join(effects.persist)
        for entry in effects.entries:
            if isinstance(entry, Delivery):
                checked["entries"] += 1
                assert entry.record in written
        for record in own_records(process.member, effects):
            checked["writes"] += 1
            assert record in written

    network.on_effects = check
    names = network.form(3, durable=True)
    for turn in range(20):
        for name in names:
            network.multicast(name, f"{name} {turn}".encode())
        network.run(1)
    network.kill(C)
    network.settle(A, B)
    network.start(C, durable=True)
    network.settle(*names)
    assert checked["entries"] > 150
    assert checked["writes"] > 100


def own_records(member: Member, effects: Effects) -> list[bytes]:
    """The records of own messages in what is written to connections."""
    view = member.view
    found = []
    for _, buffers in effects.writes:
        for arrived in FrameReader(1 << 22).feed(b"".join(buffers)):
            if arrived.kind == frame.DATA and view is not None and arrived.view == view.tag:
                records = read_records(arrived.body, record_form(member.settings, len(view.members)))
                found += [record for key, record in zip(*records, strict=True) if view.members[key >> 32] == member.me]
    return found


def test_a_kill_between_writing_and_showing_is_like_a_kill_before_showing() -> None:
    """Records that were written and whose effects were not carried out are delivered after the restart, everywhere."""
    network = Network()
    names = network.form(3, durable=True)
    network.settle(*names)
    process = network.processes[C]
    process.member.multicast(b"written only", network.now_ns)
    process.journal.append(b"".join(process.member.take_effects().persist))
    network.kill(C)
    network.start(C, durable=True)
    network.settle(*names)
    assert all(network.app(name).payloads == [b"written only"] for name in names)


@pytest.mark.parametrize("takes_part", [True, False])
def test_an_exclusion_is_reported_once_also_after_a_kill_that_came_first(takes_part: bool) -> None:
    """Whether the member read the decision without it, or learned later that the others continued."""
    network = Network()
    settings = replace(SETTINGS, resend="never")
    names = network.form(3, durable=True, settings=settings)
    network.cut([C], [A, B])
    network.multicast(C, b"sent")
    network.run_until(lambda: network.member(C).is_blocked)
    network.multicast(C, b"waiting")

    def crash(process: Process, effects: Effects) -> None:
        if process is network.processes[C] and any(notice.what == "excluded" for notice in effects.notices):
            process.journal.append(b"".join(effects.replacement() or effects.persist))
            if effects.replaces:
                del process.journal[:-1]
            raise KilledError

    network.on_effects = crash
    with pytest.raises(KilledError):
        _be_excluded(network, takes_part)
    network.on_effects = None
    network.kill(C)
    network.start(C, durable=True, settings=settings)
    assert [notice.returned for notice in excluded(network.app(C))] == [(b"sent", b"waiting")]
    network.run(1)
    network.kill(C)
    network.start(C, durable=True, settings=settings)
    network.heal()
    network.settle(*names)
    assert not excluded(network.app(C)), "the exclusion was reported before"
    assert not network.app(A).payloads


def test_a_message_of_the_step_in_which_its_sender_is_excluded_survives_a_kill() -> None:
    """It was multicast and not yet in the journal when the decision without its sender came."""
    network = Network()
    names = network.form(3, durable=True)
    network.cut([C], [A, B])
    network.run_until(lambda: network.member(C).is_blocked)
    network.settle(A, B)
    process = network.processes[C]
    process.member.multicast(b"last", network.now_ns)
    _exclude(process.member)
    process.journal.append(b"".join(process.member.take_effects().persist))
    network.kill(C)
    network.heal()
    network.start(C, durable=True)
    network.settle(*names)
    assert network.app(A).payloads == [b"last"]


def _be_excluded(network: Network, takes_part: bool) -> None:
    if takes_part:
        network.call(C, _exclude)
    network.settle(A, B)
    network.heal()
    network.run(10_000)


class KilledError(Exception):
    """A process ends here."""


def test_entries_come_in_the_order_of_the_views() -> None:
    network = Network()
    names = network.form(3, snapshots=True)
    network.multicast(A, b"one")
    network.settle(*names)
    network.start(D, contacts=[A], snapshots=True)
    network.settle(*NAMES[:4])
    network.multicast(A, b"two")
    network.settle(*NAMES[:4])
    kinds = [type(entry) for entry in network.app(B).entries]
    assert kinds == [ViewChange, Delivery, SnapshotWanted, ViewChange, Delivery]
    kinds = [type(entry) for entry in network.app(D).entries]
    assert kinds == [StateArrived, ViewChange, Delivery]


def test_stability_is_reported_once() -> None:
    network = Network()
    names = network.form(3)
    sent = network.multicast(A, *numbered("message", 10))
    network.settle(*names)
    assert network.app(A).settled == sent


# Quorums.


def test_with_quorum_any_both_sides_of_a_partition_continue_and_become_one_again() -> None:
    network = Network()
    settings = replace(SETTINGS, quorum="any")
    names = network.form(5, settings=settings)
    network.multicast(A, b"together")
    network.settle(*names)
    network.cut([D, E], [A, B, C])
    network.run_until(lambda: network.in_one_view([A, B, C]) and network.in_one_view([D, E]))
    network.multicast(A, b"one side")
    network.multicast(D, b"other side")
    network.run(1000)
    assert network.app(B).payloads == [b"together", b"one side"]
    assert network.app(E).payloads == [b"together", b"other side"]
    network.heal()
    network.settle(*names)
    network.multicast(E, b"one again")
    network.settle(*names)
    assert all(network.app(name).payloads[-1] == b"one again" for name in names)
    assert any(not excluded(network.app(name)) for name in names), "one branch continues, the other one yields"


def test_with_quorum_any_two_halves_become_one_again() -> None:
    for seed in range(5):
        network = Network(seed=seed, jitter_ns=MS)
        settings = replace(SETTINGS, quorum="any")
        names = network.form(4, settings=settings)
        network.cut([A, C], [B, D])
        network.run_until(lambda network=network: network.in_one_view([A, C]) and network.in_one_view([B, D]))  # type: ignore[misc]
        network.run(500)
        network.heal()
        network.settle(*names)
        network.multicast(B, b"one again")
        network.settle(*names)
        assert network.app(A).payloads[-1] == network.app(D).payloads[-1] == b"one again"


@pytest.mark.parametrize("seed", [3, 7, 21, 96, 469, 912])
def test_with_quorum_any_branches_become_one_again_after_any_partitions(seed: int) -> None:
    """Seed 912: a member that yields to another branch must not be admitted by its own branch again and again."""
    chance = random.Random(seed)
    network = Network(seed=seed, jitter_ns=MS)
    count = chance.randint(2, 6)
    names = network.form(count, settings=replace(SETTINGS, quorum="any"), snapshots=chance.random() < 0.5)
    for turn in range(chance.randint(1, 3)):
        side = set(chance.sample(names, chance.randint(1, count - 1)))
        network.cut(side, set(names) - side)
        network.run(chance.choice([100, 300, 600, 1500, 3000]))
        for name in names:
            network.multicast(name, b"%d" % turn)
        network.run(chance.choice([0, 50, 500]))
        if chance.random() < 0.3:
            for one, other in itertools.product(sorted(side), sorted(set(names) - side)):
                network.reset(one, other)
        network.heal()
        network.run(chance.choice([0, 100, 1000]))
    network.settle(*names)
    network.multicast(names[0], b"end")
    network.settle(*names)
    assert all(network.app(name).payloads[-1] == b"end" for name in names)


def test_with_quorum_any_the_last_member_continues_alone() -> None:
    network = Network()
    network.form(3, settings=replace(SETTINGS, quorum="any"))
    network.kill(A, B)
    network.run_until(lambda: network.in_one_view([C]))
    (outgoing,) = network.multicast(C, b"alone")
    network.run(100)
    assert outgoing.is_stable


def test_an_operator_may_let_a_minority_continue() -> None:
    """The founder of a group of two is lost: without the override the other one blocks for ever."""
    network = Network()
    network.start(A)
    network.start(B, contacts=[A])
    network.settle(A, B)
    network.kill(A)
    (outgoing,) = network.multicast(B, b"waits")
    network.run(5000)
    assert network.member(B).is_blocked
    assert outgoing not in network.app(B).settled
    network.call(B, lambda member: member.force(network.now_ns))
    network.settle(B)
    assert outgoing.is_stable
    assert network.app(B).views[-1].members == (network.member(B).me,)


# Refusals.


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"window_messages": 17}, "window_messages=17"),
        ({"data": "star"}, "data=star"),
        ({"quorum": "any"}, "quorum=any"),
        ({"keep": "all"}, "keep=all"),
        ({"heartbeat_s": 0.06}, "heartbeat_s=0.06"),
    ],
)
def test_a_process_with_other_settings_waits_and_names_the_setting(change: dict[str, object], named: str) -> None:
    network = Network()
    names = network.form(3)
    network.start(D, contacts=names, settings=replace(SETTINGS, **change))  # type: ignore[arg-type]
    network.run(3000)
    assert network.member(D).phase == "joining"
    assert f"the settings differ: {named} at {D}" in network.member(D).waiting_for()
    network.settle(*names)
    assert [view.number for view in network.app(A).views] == [1], "the group is undisturbed"


def test_a_process_of_another_group_waits_and_says_so() -> None:
    network = Network()
    network.start(A)
    network.start(B, contacts=[A], group="other")
    network.run(1000)
    assert "is in group 'other'" in network.member(B).waiting_for()


def test_two_foundings_of_one_name_do_not_mix() -> None:
    network = Network()
    network.start(A, durable=True)
    network.start(B, contacts=[A], durable=True)
    network.settle(A, B)
    network.kill(A, B)
    network.journals[A].clear()
    network.run(1)
    network.start(A, durable=True)
    network.start(B, durable=True)
    network.run(2000)
    assert "founded apart" in str(network.app(B).heard("refused"))
    assert network.member(B).phase == "member"
    assert network.member(B).stack is None, "it waits for its own group"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda member: member.form([A], 0), "name at least one member besides"),
        (lambda member: member.join([A], 0), "name a member other than"),
        (lambda member: member.join([], 0), "name a member other than"),
        (lambda member: member.form([A, "nonsense"], 0), "address 'nonsense': write host:port"),
    ],
)
def test_names_that_cannot_be_used_are_refused(call: object, complaint: str) -> None:
    member = Member("g", A, SETTINGS, incarnation=1, session=1, is_durable=False, makes_snapshots=False)
    with pytest.raises(LocalProtocolError, match=complaint):
        call(member)  # type: ignore[operator]


def test_a_payload_that_is_too_large_is_refused_and_disturbs_nobody() -> None:
    network = Network()
    settings = replace(SETTINGS, payload_bytes_max=100)
    names = network.form(3, settings=settings)
    with pytest.raises(LocalProtocolError, match="payload of 101 bytes: the limit is payload_bytes_max=100"):
        network.multicast(A, bytes(101))
    network.multicast(A, bytes(100))
    network.settle(*names)
    assert network.app(B).payloads == [bytes(100)]


def say(network: Network, source: str, to: str, kind: int, view: int, body: bytes) -> None:
    """A member sends a frame that its protocols would not send."""

    def send(member: Member) -> None:
        link = member.links.links[to]
        link.send(kind, view, body)
        member.links.mark(link)

    network.call(source, send)


def down(network: Network, name: str) -> list[str]:
    """Why links of a member went down."""
    return [reason for _, state, reason in network.app(name).heard("link") if state == "down"]


def test_a_malformed_batch_that_would_be_parked_ends_the_connection_of_its_sender() -> None:
    network = Network()
    names = network.form(3, settings=replace(SETTINGS, backlog_bytes=100))
    network.app(A).is_slow = True
    for number in range(10):
        network.multicast(C, b"%d" % number * 50)
        network.run(1)
    view = network.app(A).views[-1]
    say(network, B, A, frame.DATA, view.tag, b"nonsense")
    network.run(1)
    assert any("data record" in reason for reason in down(network, A))
    network.take_all(A)
    network.settle(*names)
    assert len(network.app(A).payloads) == 10


def test_a_malformed_frame_of_the_next_view_ends_the_connection_of_its_sender() -> None:
    network = Network()
    network.form(3)
    view = network.app(A).views[-1]
    following = next_view(view, view.members[:2], [], (0, 0, 0))
    say(network, B, A, frame.DATA, following.tag, b"nonsense")
    network.run(1)
    assert down(network, A) == []
    network.kill(C)
    network.settle(A, B)
    assert any("data record" in reason for reason in down(network, A))
    network.multicast(B, b"after")
    network.settle(A, B)
    assert network.app(A).payloads == [b"after"]


def test_a_decision_that_does_not_fit_the_view_ends_the_connection_of_its_sender() -> None:
    network = Network()
    names = network.form(3)
    view = network.app(A).views[-1]
    bad = Decide(view.id, Proposal(next_view(view, view.members, [], (0, 0, 0)), (0, 0)))
    say(network, B, A, frame.MEMBERSHIP, view.tag, encode_message(bad))
    network.run(1)
    assert any("a Decide with 2 entries in a view of 3" in reason for reason in down(network, A))
    network.settle(*names)


def test_a_member_that_stops_closes_its_connections_and_settles_what_is_its_own() -> None:
    network = Network()
    network.form(3)
    network.cut([A], [B, C])
    (outgoing,) = network.multicast(A, b"unstable")
    network.call(A, lambda member: member.stop(network.now_ns))
    assert isinstance(outgoing.failure, LocalProtocolError)
    assert network.member(A).next_timer_ns is None
    assert not network.member(A).links.pipes


def test_settings_are_the_default_ones_everywhere() -> None:
    network = Network()
    names = network.form(2, settings=Settings())
    network.multicast(A, b"hello")
    network.settle(*names)
    assert network.app(B).deliveries[0].sender == MemberId(A, 1)


def test_a_multicast_with_the_time_of_its_turn_does_not_set_the_clock_back() -> None:
    """The rows of a trace are ordered by time: a message must not seem older than what was delivered before it."""
    network = Network()
    network.form(2)
    member = network.member(A)
    now_ns = member.now()
    member.multicast(b"of this turn", now_ns - 5_000_000)
    assert member.now() == now_ns

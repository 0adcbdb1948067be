"""Pieces of the membership core: quorums, ranks, vectors, snapshots, evidence, and what is refused."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.core.membership import Member, MemberId, MembershipSettings, View, fold, founding_view, has_quorum
from cubecast.core.membership.channel import Channel
from cubecast.core.membership.messages import (
    AskState,
    Deliver,
    Install,
    NoState,
    Persist,
    Restore,
    Sent,
    Stable,
    State,
    Status,
)
from cubecast.core.membership.neighbours import neighbours
from cubecast.core.membership.records import Life, Record
from cubecast.core.membership.rumours import Rumours
from cubecast.core.membership.transfer import Snapshots
from cubecast.core.membership.views import next_view
from cubecast.core.membership.watch import Watch
from cubecast.errors import LocalProtocolError

SETTINGS = MembershipSettings()


def people(*names: int) -> list[MemberId]:
    return [MemberId(name, 1) for name in names]


def status(**said: Any) -> Status:
    """What a member of a group of three says."""
    nothing = (0, 0, 0)
    said = {"round": 1, "counted": 0, "minimum": nothing, "stable": nothing, **said}
    rest: dict[str, Any] = {
        "joins": (),
        "slow": (),
        "leavers": (),
        "ready": 7,
        "asks": False,
        "suspects": (),
        "delivered": (),
    }
    return Status(view=1, beats=nothing, received=nothing, **rest, **said)


def founded(settings: MembershipSettings) -> Member:
    """The only member of its group."""
    view = founding_view(people(4))
    core = Member(view.members[0], settings)
    core.found(view, 0)
    return core


@pytest.mark.parametrize("members", range(1, 8))
def test_any_two_quorums_of_a_view_meet(members: int) -> None:
    view = founding_view(people(*range(members)))
    quorums = [
        set(some)
        for count in range(members + 1)
        for some in combinations(view.members, count)
        if has_quorum(view, some)
    ]
    assert set(view.members) in quorums
    assert all(one & other for one in quorums for other in quorums)


@given(members=st.integers(1, 16), data=st.data())
def test_who_stays_keeps_its_rank_where_there_is_room(members: int, data: st.DataObject) -> None:
    view = founding_view(people(*range(members)))
    stay = set(data.draw(st.lists(st.sampled_from(view.members), unique=True)))
    join = people(*range(100, 100 + data.draw(st.integers(0, 4))))
    after = next_view(view, stay, join)
    assert set(after.members) == stay | set(join)
    assert len(after.members) == len(stay) + len(join)
    moved = [who for who in stay if after.members.index(who) != view.members.index(who)]
    assert all(view.members.index(who) >= len(after.members) for who in moved)


def test_a_former_member_is_known_for_ever() -> None:
    view = founding_view(people(0, 1, 2))
    view = next_view(view, set(people(0, 1)), [])
    view = next_view(view, set(people(0, 1)), [MemberId(2, 2)])
    assert view.is_past(MemberId(2, 1))
    assert not view.is_past(MemberId(2, 2))
    assert not view.is_past(MemberId(2, 3))


def test_a_message_waits_for_what_its_sender_had_delivered() -> None:
    first, second, third = (Channel(1, rank, 3) for rank in range(3))
    question = first.multicast("question")
    second.take(question)
    assert [data.payload for data in second.deliverable()] == ["question"]
    answer = second.multicast("answer")
    third.take(answer)
    assert list(third.deliverable()) == []
    third.take(question)
    assert [data.payload for data in third.deliverable()] == ["question", "answer"]


def test_only_what_every_rank_delivered_is_stable_and_forgotten() -> None:
    channel = Channel(1, 0, 3)
    channel.multicast("a")
    channel.multicast("b")
    channel.settle_own((2, 0, 0))
    assert not channel.hear(status(counted=0b010, minimum=(2, 0, 0)), (2, 0, 0))
    assert channel.hear(status(counted=0b100, minimum=(1, 0, 0)), (2, 0, 0))
    assert channel.stable == (1, 0, 0)
    assert list(channel.store) == [(0, 2)]


def test_a_round_that_is_missed_is_made_up_for_by_what_others_found_stable() -> None:
    channel = Channel(1, 0, 3)
    channel.multicast("a")
    assert not channel.hear(status(round=4, counted=0b010, minimum=(1, 0, 0)), (1, 0, 0))
    assert (channel.rounds.number, channel.rounds.counted) == (4, 0b011)
    assert not channel.hear(status(round=3, counted=0b111, minimum=(1, 0, 0)), (1, 0, 0))
    assert channel.hear(status(round=3, stable=(1, 0, 0)), (1, 0, 0))
    assert channel.stable == (1, 0, 0)


@given(members=st.integers(2, 70), cube_from=st.sampled_from([2, 33]))
def test_neighbours_are_mutual(members: int, cube_from: int) -> None:
    near = [neighbours(rank, members, cube_from) for rank in range(members)]
    assert all(rank in near[other] for rank in range(members) for other in near[rank])
    assert all(rank not in near[rank] for rank in range(members))
    if members < cube_from:
        assert all(len(ranks) == members - 1 for ranks in near)


def test_a_rumour_grows_old_on_its_way_and_dies() -> None:
    who = MemberId(7, 1)
    one, other = Rumours(100, 10), Rumours(100, 10)
    one.see(who, 0)
    other.hear(one.lately(5), 5)
    assert other.lately(5) == ((who, 15),)
    for now_ns in range(5, 200, 5):  # each tells the other what it heard
        one.hear(other.lately(now_ns), now_ns)
        other.hear(one.lately(now_ns), now_ns)
    assert one.lately(200) == other.lately(200) == ()


def test_a_sign_of_life_comes_round_through_others() -> None:
    view = founding_view(people(0, 1, 2))
    watch = Watch(view.members[0], view, 0, SETTINGS)
    now_ns = 2 * SETTINGS.suspect_ns
    watch.hear_of((0, 1, 0), now_ns)
    assert watch.suspects(now_ns) == (view.members[2],)
    watch.hear_of((0, 1, 3), now_ns)
    assert watch.suspects(now_ns) == ()


def test_a_message_is_sent_again_when_it_is_missing_twice() -> None:
    channel = Channel(1, 0, 2)
    channel.multicast("a")
    assert channel.repairs(1, (0, 0), False) == []
    assert [data.payload for data in channel.repairs(1, (0, 0), False)] == ["a"]


def test_others_send_a_message_again_when_it_is_their_turn() -> None:
    sender, other = Channel(1, 0, 3), Channel(1, 1, 3)
    other.take(sender.multicast("a"))
    other.repairs(2, (0, 0, 0), False)
    assert other.repairs(2, (0, 0, 0), False) == []
    assert [data.payload for data in other.repairs(2, (0, 0, 0), True)] == ["a"]


def test_a_snapshot_is_cut_into_pieces_and_forgotten_when_it_was_fetched() -> None:
    snapshots = Snapshots(4)
    joined = tuple(people(7))
    snapshots.expect(View(2, (MemberId(0, 1), *joined), joined, ()))
    assert snapshots.answer(AskState(2, 0)) == NoState(2)
    snapshots.keep(2, b"0123456789")
    pieces = [snapshots.answer(AskState(2, piece)) for piece in range(3)]
    assert pieces == [State(2, 0, 3, b"0123"), State(2, 1, 3, b"4567"), State(2, 2, 3, b"89")]
    snapshots.is_served(MemberId(7, 1))
    assert not snapshots.kept
    snapshots.keep(2, b"too late")
    assert not snapshots.kept


def test_exclusion_needs_several_observers() -> None:
    view = founding_view(people(0, 1, 2, 3))
    me, *others, silent = view.members
    watch = Watch(me, view, 0, SETTINGS)
    now_ns = 2 * SETTINGS.suspect_ns
    for who in others:
        watch.hear(who, now_ns)
    assert watch.suspects(now_ns) == (silent,)
    assert watch.doomed(now_ns) == set()
    watch.said[others[0]] = (silent,)
    assert watch.doomed(now_ns) == {silent}


def test_a_sole_founder_delivers_its_own_messages_at_once() -> None:
    view = founding_view(people(4))
    core = Member(view.members[0], SETTINGS)
    assert core.found(view, 0) == [Install(view)]
    told = core.multicast("hello", 1)
    assert told[:2] == [Sent(1, 1, "hello"), Deliver(1, view.members[0], 1, "hello")]


def test_nothing_is_delivered_while_the_application_does_not_take_it() -> None:
    core = Member(MemberId(4, 1), SETTINGS)
    core.found(founding_view(people(4)), 0)
    core.takes = False
    assert core.multicast("hello", 1) == []
    core.takes = True
    assert Deliver(1, core.me, 1, "hello") in core.on_timer(2)


def test_what_a_call_has_to_write_comes_first_and_is_read_back() -> None:
    settings = MembershipSettings(is_durable=True)
    core = Member(MemberId(4, 1), settings)
    records: list[Record] = []
    for actions in (core.found(founding_view([core.me]), 0), core.multicast("a", 1), core.multicast("b", 2)):
        assert isinstance(actions[0], Persist)
        assert not any(isinstance(action, Persist) for action in actions[1:])
        records += actions[0].records
    told = Member(core.me, settings).resume(fold(records), 3)
    assert [action.payload for action in told if isinstance(action, Deliver)] == ["a", "b"]
    (written,) = core.checkpoint(b"a and b", 4)
    assert isinstance(written, Persist)
    told = Member(core.me, settings).resume(fold([*records, *written.records]), 5)
    assert told == [Restore(1, b"a and b"), Stable(1, (2,))]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: founding_view([]), "0 founders"),
        (lambda: founding_view([MemberId(1, 1), MemberId(1, 2)]), "a name of its own"),
        (lambda: Member(MemberId(9, 1), SETTINGS).found(founding_view(people(0)), 0), "must be one of them"),
        (lambda: Member(MemberId(9, 1), SETTINGS).join([], 0), "no contacts"),
        (lambda: Member(MemberId(9, 1), SETTINGS).multicast("x", 0), "multicast after leave"),
        (lambda: fold([]), "begin with Life or Whole"),
        (lambda: Member(MemberId(9, 1), SETTINGS).resume(fold([Life(MemberId(8, 1))]), 0), "another member's"),
        (lambda: Member(MemberId(9, 1), SETTINGS).checkpoint(b"", 0), "not in a group"),
        (lambda: founded(SETTINGS).checkpoint(b"", 0), "not durable"),
        (lambda: MembershipSettings(observers=0), "observers = 0"),
        (lambda: MembershipSettings(suspect_ns=10), "suspect_ns = 10"),
        (lambda: MembershipSettings(takeover_ns=5, patience_ns=9), "takeover_ns = 5"),
    ],
)
def test_what_cannot_be_is_refused(call: object, complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        call()  # type: ignore[operator]

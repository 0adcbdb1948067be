"""The application's state for newcomers: in pieces, requested several at a time, from one member at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cubecast.member.state_transfer import PIECES_AHEAD, STALLS_MAX, Fetch, Snapshots
from cubecast.protocols.membership.messages import AskState, NoState, Ready, State
from cubecast.protocols.membership.views import (
    MemberId,
    View,
    founding_view,
    next_view,
)
from tests.member.network import NAMES, Network

OLD = [MemberId(name, 1) for name in ("a", "b", "c")]
NEW = MemberId("n", 5)
STALL_NS = 100


def joined_view(*newcomers: MemberId) -> View:
    founders = founding_view(OLD)
    return next_view(founders, OLD, newcomers or (NEW,), (0, 0, 0))


def test_a_snapshot_is_cut_into_pieces_and_forgotten_when_it_was_fetched() -> None:
    snapshots, view = Snapshots(4), joined_view()
    snapshots.expect(view)
    assert snapshots.answer(AskState(view.id, 0, 16), NEW) == [NoState(view.id)]
    assert snapshots.keep(2, snapshots.cut_up(b"0123456789"))
    pieces = [State(view.id, place, 3, octets) for place, octets in enumerate((b"0123", b"4567", b"89"))]
    assert snapshots.answer(AskState(view.id, 0, 16), NEW) == pieces
    assert snapshots.answer(AskState(view.id, 1, 1), NEW) == pieces[1:2]
    assert snapshots.answer(AskState(view.id, 7, 9), NEW) == []
    snapshots.is_served(NEW)
    assert not snapshots.kept
    assert not snapshots.keep(2, (b"too late",))


def test_the_first_snapshot_counts_because_pieces_of_it_may_be_on_their_way() -> None:
    snapshots, view = Snapshots(4), joined_view()
    snapshots.expect(view)
    assert snapshots.keep(2, (b"first",))
    assert not snapshots.keep(2, (b"second",))
    assert snapshots.kept[2] == (b"first",)


def test_a_snapshot_is_kept_until_all_waiting_members_have_it_or_are_gone() -> None:
    other = MemberId("o", 1)
    snapshots, view = Snapshots(4), joined_view(NEW, other)
    snapshots.expect(view)
    snapshots.keep(2, (b"state",))
    snapshots.is_served(NEW)
    assert 2 in snapshots.kept
    snapshots.retain(OLD)
    assert not snapshots.kept
    assert not snapshots.needed_by


def test_an_empty_state_is_one_empty_piece() -> None:
    assert list(Snapshots(4).cut_up(b"")) == [b""]


@given(st.binary(max_size=300), st.integers(1, 7))
def test_a_state_is_cut_without_a_gap(state: bytes, size: int) -> None:
    pieces = Snapshots(size).cut_up(state)
    assert b"".join(pieces) == b"".join([pieces[place] for place in range(len(pieces))]) == state
    assert pieces[1:3] == list(pieces)[1:3]
    assert all(len(one) == size for one in pieces[:-1])


def test_no_more_pieces_are_given_at_a_time_than_a_newcomer_may_ask_for() -> None:
    snapshots, view = Snapshots(1), joined_view()
    snapshots.expect(view)
    snapshots.keep(2, snapshots.cut_up(bytes(100)))
    assert len(snapshots.answer(AskState(view.id, 0, 1 << 31), NEW)) == PIECES_AHEAD


@given(st.binary(max_size=300), st.integers(1, 7))
def test_a_state_is_transferred_piece_by_piece(state: bytes, size: int) -> None:
    snapshots, view = Snapshots(size), joined_view()
    snapshots.expect(view)
    snapshots.keep(2, snapshots.cut_up(state))
    fetch = Fetch(view, 0, STALL_NS)
    while not fetch.is_complete:
        asked = fetch.ask(view.members, 0)
        assert asked is not None
        assert asked[0] == OLD[0]
        assert asked[1] is not None, "nothing is under way and nothing is asked for"
        for answer in snapshots.answer(asked[1], NEW):
            assert isinstance(answer, State)
            assert fetch.take(answer, 0)
    assert b"".join(fetch.pieces) == state


def piece(view: View, place: int, of: int = 40) -> State:
    return State(view.id, place, of, bytes([place]))


def test_more_pieces_are_requested_before_all_have_arrived() -> None:
    view = joined_view()
    fetch = Fetch(view, 0, STALL_NS)
    assert fetch.ask(view.members, 0) == (OLD[0], AskState(view.id, 0, PIECES_AHEAD))
    assert fetch.ask(view.members, 0) == (OLD[0], None)
    for place in range(PIECES_AHEAD // 2):
        assert fetch.take(piece(view, place), 0)
    assert fetch.ask(view.members, 0) == (OLD[0], AskState(view.id, PIECES_AHEAD, PIECES_AHEAD))


def test_a_piece_that_is_not_the_next_one_or_of_another_state_is_dropped() -> None:
    view = joined_view()
    fetch = Fetch(view, 0, STALL_NS)
    fetch.ask(view.members, 0)
    assert not fetch.take(piece(view, 1), 0)
    assert fetch.take(piece(view, 0), 0)
    assert not fetch.take(piece(view, 0), 0)
    assert not fetch.take(piece(view, 1, of=39), 0)


def test_another_member_is_asked_from_the_first_piece_when_nothing_arrives() -> None:
    view = joined_view()
    fetch = Fetch(view, 0, STALL_NS)
    fetch.ask(view.members, 0)
    fetch.take(piece(view, 0), 50)
    assert fetch.ask(view.members, 50 + STALL_NS) == (OLD[0], None)
    assert fetch.ask(view.members, 51 + STALL_NS) == (OLD[1], AskState(view.id, 0, PIECES_AHEAD))
    assert fetch.pieces == []


def test_the_next_member_is_asked_when_the_first_is_gone_and_none_when_all_are() -> None:
    view = joined_view()
    fetch = Fetch(view, 0, STALL_NS)
    fetch.ask(view.members, 0)
    assert fetch.ask((OLD[2], NEW), 1) == (OLD[2], AskState(view.id, 0, PIECES_AHEAD))
    assert fetch.ask((NEW,), 2) is None


def test_after_a_reconnection_only_the_rest_is_requested_unless_the_process_restarted() -> None:
    view = joined_view()
    fetch = Fetch(view, 0, STALL_NS)
    fetch.link_up(OLD[0], 77, 0)
    fetch.ask(view.members, 0)
    for place in range(3):
        fetch.take(piece(view, place), 0)
    fetch.link_up(OLD[1], 99, 1)
    assert fetch.ask(view.members, 1) == (OLD[0], None), "the link to somebody else does not matter"
    fetch.link_up(OLD[0], 77, 1)
    assert fetch.ask(view.members, 1) == (OLD[0], AskState(view.id, 3, PIECES_AHEAD))
    fetch.link_up(OLD[0], 78, 2)
    assert fetch.ask(view.members, 2) == (OLD[0], AskState(view.id, 0, PIECES_AHEAD))
    assert fetch.pieces == []


def test_a_state_that_could_not_be_given_is_given_with_a_later_view() -> None:
    """The application's snapshot failed: newcomers that wait for it get the state with which a later view begins."""
    snapshots, first = Snapshots(4), joined_view()
    snapshots.expect(first)
    assert snapshots.fail(2)
    assert snapshots.answer(AskState(first.id, 0, 9), NEW) == [NoState(first.id)]
    second = next_view(first, first.members, (), (0, 0, 0, 0))
    snapshots.expect(second)
    assert snapshots.keep(3, (b"later", b"state"))
    answers = snapshots.answer(AskState(first.id, 0, 9), NEW)
    assert answers == [State(second.id, 0, 2, b"later"), State(second.id, 1, 2, b"state")]
    fetch = Fetch(first, 0, STALL_NS)
    for answer in answers:
        assert isinstance(answer, State)
        assert fetch.take(answer, 0)
    assert fetch.is_complete
    assert fetch.view == second.id
    assert not Snapshots(4).fail(2), "nobody needs it"


def test_after_a_restart_the_state_of_a_later_view_does_not_pass_for_that_of_an_earlier_one() -> None:
    first = joined_view()
    restarted = Snapshots(4)
    restarted.needed_by[3] = {NEW}
    restarted.kept[3] = restarted.cut_up(b"later")
    assert restarted.answer(AskState(first.id, 0, 9), NEW) == [NoState(first.id)]


def test_pieces_of_two_views_are_never_mixed() -> None:
    first = joined_view()
    second = next_view(first, first.members, (), (0, 0, 0, 0))
    fetch = Fetch(first, 0, STALL_NS)
    assert fetch.take(piece(first, 0), 0)
    assert not fetch.take(State(second.id, 1, 40, b"other"), 0)


def test_a_newcomer_gives_up_when_nobody_gives_the_state_for_long() -> None:
    view = joined_view()
    fetch = Fetch(view, 0, STALL_NS)
    for turn in range(STALLS_MAX):
        assert fetch.ask(view.members, turn * (STALL_NS + 1)) is not None
    assert fetch.ask(view.members, STALLS_MAX * (STALL_NS + 1)) is None


def test_a_newcomer_knows_that_the_member_which_gave_it_the_state_has_it() -> None:
    """Otherwise it would take itself for the last one that has it, and never leave as the coordinator."""
    network = Network(seed=1)
    first, second = NAMES[:2]
    network.start(first, snapshots=True)
    network.start(second, contacts=[first], snapshots=True)
    network.settle(first, second)
    holders = network.member(second)._members.have_state
    assert holders == set(network.member(second)._members.view.members)


def test_a_newcomer_that_got_the_state_in_an_earlier_view_is_known_to_have_it() -> None:
    """Its message may arrive after the next view is installed; otherwise the others could not leave."""
    network = Network(seed=1)
    first, second, third = NAMES[:3]
    network.start(first, snapshots=True)
    network.start(second, contacts=[first], snapshots=True)
    network.settle(first, second)
    earlier = network.member(first)._members.view
    network.start(third, contacts=[first], snapshots=True)
    network.settle(first, second, third)
    member = network.member(first)
    newcomer = network.member(second).me
    member._members.have_state.discard(newcomer)
    member._in_view(member.links.links[second], Ready(earlier.id))
    assert newcomer in member._members.have_state


def test_the_first_rank_of_a_view_learns_who_has_the_state() -> None:
    """After a restart it knows of itself only, and could never leave as the coordinator."""
    network = Network(seed=1)
    names = network.form(3, snapshots=True)
    first = network.member(names[0])
    first._members.have_state = {first.me}
    network.start(NAMES[3], contacts=[names[0]], snapshots=True)
    network.settle(*NAMES[:4])
    network.run(10)
    assert first._members.have_state == set(first._members.view.members)

"""Views: quorums, ranks that stay, counts of messages, and who is past."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError
from cubecast.protocols.membership import (
    MemberId,
    MembershipSettings,
    View,
    founding_view,
    has_quorum,
)
from cubecast.protocols.membership.views import ANY, DEPARTED_MAX, next_view


def people(*names: int, incarnation: int = 1) -> list[MemberId]:
    return [MemberId(f"p{name:04}", incarnation) for name in names]


def zeros(view: View) -> tuple[int, ...]:
    return (0,) * len(view.members)


@pytest.mark.parametrize("members", range(1, 8))
def test_any_two_quorums_of_a_view_meet(members: int) -> None:
    view = founding_view(people(*range(members)))
    quorums = [
        set(some)
        for count in range(members + 1)
        for some in combinations(view.members, count)
        if has_quorum(view.members, some)
    ]
    assert set(view.members) in quorums
    assert all(one & other for one in quorums for other in quorums)


def test_with_quorum_any_one_member_is_enough_and_nobody_is_not() -> None:
    view = founding_view(people(0, 1, 2))
    assert has_quorum(view.members, [view.members[2]], ANY)
    assert not has_quorum(view.members, [], ANY)
    assert not has_quorum(view.members, people(9), ANY), "a stranger does not count"


def test_half_of_an_even_view_is_enough_with_the_first_rank() -> None:
    first, second, third, fourth = people(0, 1, 2, 3)
    members = (first, second, third, fourth)
    assert has_quorum(members, {first, fourth})
    assert not has_quorum(members, {second, third})


@st.composite
def changes(draw: st.DrawFn) -> tuple[View, set[MemberId], list[MemberId], tuple[int, ...]]:
    """A view, who stays, who joins, and the cut."""
    members = draw(st.integers(1, 16))
    view = founding_view(people(*range(members)))
    view = view._replace(sent=tuple(draw(st.lists(st.integers(0, 99), min_size=members, max_size=members))))
    stay = set(draw(st.lists(st.sampled_from(view.members), unique=True)))
    join = people(*range(100, 100 + draw(st.integers(0 if stay else 1, 4))))
    cut = tuple(draw(st.lists(st.integers(0, 99), min_size=members, max_size=members)))
    return view, stay, join, cut


@given(changes())
def test_a_member_that_stays_keeps_its_rank_where_there_is_room(
    change: tuple[View, set[MemberId], list[MemberId], tuple[int, ...]],
) -> None:
    view, stay, join, cut = change
    after = next_view(view, stay, join, cut)
    assert set(after.members) == stay | set(join)
    assert len(after.members) == len(stay) + len(join)
    moved = [who for who in stay if after.members.index(who) != view.members.index(who)]
    assert all(view.members.index(who) >= len(after.members) for who in moved)
    assert set(after.joined) == set(join)


@given(changes())
def test_counts_of_messages_continue_and_newcomers_begin_at_zero(
    change: tuple[View, set[MemberId], list[MemberId], tuple[int, ...]],
) -> None:
    view, stay, join, cut = change
    after = next_view(view, stay, join, cut)
    for who, sent in zip(after.members, after.sent, strict=True):
        if who in stay:
            rank = view.members.index(who)
            assert sent == view.sent[rank] + cut[rank]
        else:
            assert sent == 0
    assert (after.number, after.group_id) == (view.number + 1, view.group_id)


@given(changes())
def test_a_departed_member_is_past_and_a_leave_differs_from_an_exclusion(
    change: tuple[View, set[MemberId], list[MemberId], tuple[int, ...]],
) -> None:
    view, stay, join, cut = change
    gone = [who for who in view.members if who not in stay]
    after = next_view(view, stay, join, cut, left=[*gone[:1], *sorted(stay)[:1]])
    assert after.left == tuple(gone[:1]), "one that wanted to leave and had to stay did not leave"
    assert all(after.is_past(who) for who in gone)
    assert not any(after.is_past(who) for who in after.members)
    assert not any(after.is_past(MemberId(who.name, who.incarnation + 1)) for who in gone)


def test_a_former_member_is_known_as_such_after_it_came_back() -> None:
    view = founding_view(people(0, 1, 2))
    view = next_view(view, set(people(0, 1)), [], zeros(view))
    (again,) = people(2, incarnation=2)
    view = next_view(view, set(people(0, 1)), [again], zeros(view))
    assert view.departed == ()
    assert view.is_past(people(2)[0])
    assert not view.is_past(again)
    assert not view.is_past(people(2, incarnation=3)[0])


def test_the_names_of_departed_members_are_bounded_and_older_ones_are_past_all_the_same() -> None:
    keeper = MemberId("keeper", 1)
    view = founding_view([keeper])
    for number in range(DEPARTED_MAX + 50):
        (guest,) = people(number, incarnation=1000 + number)
        view = next_view(view, [keeper], [guest], zeros(view))
        view = next_view(view, [keeper], [], zeros(view))
    assert len(view.departed) == DEPARTED_MAX
    assert view.departed[-1] == people(DEPARTED_MAX + 49, incarnation=1000 + DEPARTED_MAX + 49)[0], "the latest last"
    assert view.forgotten == 1049
    assert all(view.is_past(people(n, incarnation=1000 + n)[0]) for n in range(DEPARTED_MAX + 50))
    assert not view.is_past(people(0, incarnation=1050)[0]), "a later incarnation may join"
    assert not view.is_past(MemberId("stranger", 5000))


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=200, max_size=700), st.randoms())
@settings(deadline=None, max_examples=20)
def test_a_past_member_never_returns_in_the_same_incarnation(steps, chance) -> None:  # type: ignore[no-untyped-def]
    """Whatever is forgotten: an incarnation that was a member and is gone is past for ever."""
    keeper = MemberId("keeper", 1)
    view = founding_view([keeper])
    were: set[MemberId] = set()
    for clock, (name, stays) in enumerate(steps, 1):
        guest = MemberId(f"p{name:04}", clock)  # incarnations are times, so they grow over all names
        stay = {who for who in view.members if who == keeper or (stays and chance.random() < 0.9)}
        stay = {who for who in stay if who.name != guest.name}
        were |= set(view.members)
        view = next_view(view, stay, [guest], zeros(view))
    assert all(view.is_past(who) for who in were - set(view.members))
    assert len(view.departed) <= DEPARTED_MAX


def test_two_branches_of_one_view_have_different_tags() -> None:
    view = founding_view(people(0, 1, 2, 3))
    one = next_view(view, set(people(0, 1)), [], zeros(view))
    other = next_view(view, set(people(2, 3)), [], zeros(view))
    assert one.number == other.number
    assert one.tag != other.tag
    assert one.tag != next_view(view, set(people(0, 1)), [], (1, 0, 0, 0)).tag, "the cut is part of a view"


def test_two_foundings_of_one_name_differ() -> None:
    one, other = founding_view(people(0, 1), "g"), founding_view(people(0, 1, incarnation=2), "g")
    assert one.group_id != other.group_id
    assert one.group_id != founding_view(people(0, 1), "h").group_id
    assert one == founding_view(people(0, 1), "g")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: founding_view([]), "0 founders"),
        (lambda: founding_view([MemberId("a", 1), MemberId("a", 2)]), "a name of its own"),
        (lambda: MembershipSettings(observers=0), "observers = 0"),
        (lambda: MembershipSettings(suspect_ns=0), "suspect_ns = 0"),
        (lambda: MembershipSettings(takeover_ns=5, patience_ns=9), "takeover_ns = 5"),
        (lambda: MembershipSettings(quorum="two"), "quorum = 'two'"),
    ],
)
def test_what_cannot_be_is_refused(call: object, complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        call()  # type: ignore[operator]

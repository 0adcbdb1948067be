"""Membership messages as bytes, and what is refused on the way back."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.protocols.membership import MemberId, View, ViewId
from cubecast.protocols.membership import messages as m
from cubecast.protocols.membership.relative import Change, change_to
from cubecast.protocols.membership.views import next_view
from cubecast.wire.membership import KINDS, Elsewhere, decode_message, encode_message, require_fit
from tests.wire.frames import damage
from tests.wire.membership_messages import MESSAGES, draw_base, draw_message, draw_relative, draw_successor, draw_view

HERE = ViewId(1, 99)
MEMBER = MemberId("a:1", 1)
THREE = (0, 0, 0)


def view_of(members: int) -> View:
    return View(2, 5, 5, (MEMBER,) * members, (), (), (0,) * members)


def test_every_message_of_the_core_has_a_form() -> None:
    assert set(KINDS) == set(get_args(m.Message)) == set(MESSAGES)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(seed=st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=60)
def test_a_message_comes_back_as_it_was_written(kind: type, seed: int) -> None:
    message = MESSAGES[kind](random.Random(seed))
    read = decode_message(encode_message(message))
    assert read == message
    assert type(read) is kind


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=2000)
def test_a_damaged_message_is_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    octets = damage(chance, encode_message(draw_message(chance)))
    with contextlib.suppress(RemoteProtocolError):
        message = decode_message(octets)
        if not isinstance(message, Elsewhere):
            require_fit(message, 3)


# Proposals relative to a view.


@given(st.integers(0, 1 << 60), st.integers(1, 40))
@settings(deadline=None, max_examples=300)
def test_a_proposal_comes_back_from_a_change_of_the_view_that_both_sides_are_in(seed: int, members: int) -> None:
    chance = random.Random(seed)
    base = draw_base(chance, members)
    message = draw_relative(chance, base)
    octets = encode_message(message, base)
    assert decode_message(octets, base) == message
    assert decode_message(encode_message(message), base) == message, "a whole proposal needs no view"


def test_a_change_takes_as_much_as_changes() -> None:
    chance = random.Random(1)
    base = draw_base(chance, 1000)
    change = next_view(base, base.members[1:], [MEMBER], (7,) * 1000)
    message = m.Decide(base.id, m.Proposal(change, (7,) * 1000))
    assert len(encode_message(message)) > 20_000
    assert len(encode_message(message, base)) < 100


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=100)
def test_a_reader_in_another_view_learns_only_the_view_of_a_change(seed: int) -> None:
    chance = random.Random(seed)
    base, other = draw_base(chance, 5), draw_base(chance, 5)
    message = draw_relative(chance, base)
    octets = encode_message(message, base)
    for view in (other, None):
        assert decode_message(octets, view) == Elsewhere(type(message), base.id)


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=100)
def test_a_reader_whose_view_is_of_the_same_name_but_not_the_same_refuses_a_change(seed: int) -> None:
    chance = random.Random(seed)
    base = draw_base(chance, 6)
    message = m.Decide(base.id, draw_successor(chance, base))
    stranger = MemberId("10.9.9.9:7000", 1)
    octets = encode_message(message, base)
    for rank, who in enumerate(base.members):
        if who in message.proposal.view.members:
            members = (*base.members[:rank], stranger, *base.members[rank + 1 :])
            with pytest.raises(RemoteProtocolError, match="leads to another view"):
                decode_message(octets, base._replace(members=members))
    with pytest.raises(RemoteProtocolError, match="in a view of 5 members"):
        decode_message(octets, base._replace(members=base.members[:5], sent=base.sent[:5]))


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=200)
def test_what_does_not_follow_from_a_view_is_written_whole(seed: int) -> None:
    chance = random.Random(seed)
    base = draw_base(chance, 4)
    proposal = draw_successor(chance, base)
    founding = base._replace(number=0)
    for strange in (
        m.Proposal(draw_view(chance), proposal.cut),
        m.Proposal(proposal.view._replace(forgotten=99), proposal.cut),
        m.Proposal(proposal.view, ()),
    ):
        assert change_to(base, strange) is None
        message = m.Decide(base.id, strange)
        assert decode_message(encode_message(message, base)) == message
    assert change_to(founding, proposal) is None
    elsewhere = m.Decide(ViewId(base.number, base.tag ^ 1), proposal)
    assert decode_message(encode_message(elsewhere, base)) == elsewhere


@pytest.mark.parametrize(("removed", "left"), [((4,), ()), ((1, 1), ()), ((2, 1), ()), ((1,), (9,)), ((1,), (2, 1))])
def test_a_change_of_ranks_that_do_not_exist_is_refused(removed: tuple[int, ...], left: tuple[int, ...]) -> None:
    base = draw_base(random.Random(1), 4)
    change: Any = Change(0, removed, left, (), (0,) * 4)
    with pytest.raises(RemoteProtocolError, match="not in order, or beyond their end"):
        decode_message(encode_message(m.Decide(base.id, change)), base)


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=1000)
def test_a_damaged_change_is_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    base = draw_base(chance, 6)
    octets = damage(chance, encode_message(draw_relative(chance, base), base))
    with contextlib.suppress(RemoteProtocolError):
        message = decode_message(octets, base)
        if not isinstance(message, Elsewhere):
            require_fit(message, 6)


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 20))
@settings(deadline=None, max_examples=300)
def test_a_message_that_was_cut_or_lengthened_is_refused(seed: int, place: int) -> None:
    octets = encode_message(draw_message(random.Random(seed)))
    with pytest.raises(RemoteProtocolError):
        decode_message(octets[: place % len(octets)])
    with pytest.raises(RemoteProtocolError, match="follow the last field"):
        decode_message(octets + b"\0")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "kind none"),
        (b"\x63", "kind 99"),
        (encode_message(m.Gone(HERE))[:-1], "ends before its fields do"),
        (encode_message(m.Gone(HERE)) + b"\0", "1 bytes follow"),
        (encode_message(m.Join(HERE, MEMBER)).replace(b"a:1", b"a\x071"), "name"),
        (encode_message(m.Join(HERE, MEMBER)).replace(b"\x03a:1", b"\x00"), "name"),
        (encode_message(m.ChangeReport(HERE, 0, 0, (), False, False))[:-1] + b"\x02", "flag of value 2"),
        (encode_message(m.Prepare(HERE, (1, 0)))[:-4] + struct.pack("<i", -2), "ballot of rank -2"),
        (encode_message(m.State(HERE, 0, 1, b"abc"))[:-1], "ends before its fields do"),
    ],
)
def test_a_bad_message_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_message(body)


@pytest.mark.parametrize(
    "message",
    [
        m.Prepare(HERE, (1, 3)),
        m.Prepare(HERE, m.NO_BALLOT),
        m.Flush(HERE, (1, 0), THREE, (0, 0)),
        m.Flush(HERE, (1, 0), (0, 0), THREE),
        m.Flush(HERE, (1, 0), THREE, (0, 0, 3)),
        m.Flush(HERE, (1, 7), THREE, THREE),
        m.Pull(HERE, (1, 0), (0,), THREE),
        m.Pull(HERE, (1, 0), THREE, (0, 0, 0, 0)),
        m.Promise(HERE, (1, 0), (0,), m.NO_BALLOT, None, MEMBER, ready=True, leaves=False),
        m.Promise(HERE, (1, 0), THREE, (1, 0), m.Proposal(view_of(3), (0,)), MEMBER, ready=True, leaves=False),
        m.Accept(HERE, (1, 0), m.Proposal(view_of(3), ())),
        m.Accept(HERE, (1, 3), m.Proposal(view_of(3), THREE)),
        m.Decide(HERE, m.Proposal(view_of(3), (0, 0))),
        m.ChangeReport(HERE, 8, 0, (), leaves=False, renews=False),
        m.ChangeReport(HERE, 0, 1 << 900, (), leaves=False, renews=False),
    ],
)
def test_a_message_that_does_not_fit_the_view_is_refused(message: m.Message) -> None:
    with pytest.raises(RemoteProtocolError):
        require_fit(message, 3)


@pytest.mark.parametrize(
    "message",
    [
        m.Prepare(HERE, (1, 2)),
        m.Flush(HERE, (1, 0), THREE, (2, 1, 0)),
        m.Promise(HERE, (1, 0), THREE, (1, 0), m.Proposal(view_of(5), THREE), MEMBER, ready=True, leaves=False),
        m.Decide(HERE, m.Proposal(view_of(1), THREE)),
        m.ChangeReport(HERE, 7, 7, (), leaves=False, renews=False),
        m.Ready(HERE),
    ],
)
def test_a_message_that_fits_the_view_is_taken(message: m.Message) -> None:
    require_fit(message, 3)


@pytest.mark.parametrize(
    "message",
    [
        m.Join(HERE, MemberId("x" * 300, 1)),
        m.Join(HERE, MemberId("", 1)),
        m.AskState(HERE, -1, 1),
        m.Pull(HERE, (1, 0), (1 << 32,), ()),
        m.Gone(ViewId(1 << 63, 0)),
    ],
)
def test_what_does_not_fit_into_a_message_is_not_written(message: Any) -> None:
    with pytest.raises(LocalProtocolError):
        encode_message(message)

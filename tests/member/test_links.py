"""All connections of one member: which peers are accepted or refused and why, and which of two connections stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cubecast.member.effects import Effects
from cubecast.member.link import DeadLink, Link
from cubecast.member.links import (
    DUPLICATE,
    IDLE_NS,
    NS,
    RETRY_FIRST_NS,
    RETRY_MAX_NS,
    SECOND_DIALLER_NS,
    YOUNG_NS,
    Links,
)
from cubecast.member.settings import Settings
from cubecast.protocols.membership.messages import Join
from cubecast.protocols.membership.views import NO_VIEW, MemberId, ViewId
from cubecast.wire import frame, handshake
from cubecast.wire.frame import Frame, FrameReader, encode_frame
from cubecast.wire.handshake import HandshakeRefusal, Hello
from cubecast.wire.membership import encode_message

A, B = "10.0.0.1:7000", "10.0.0.2:7000"
TAG = 5


class Owner:
    """A member as its links see it."""

    # ruff: noqa: ARG002 (the signatures are those of `links.Owner`)

    def __init__(
        self, name: str, *, group: str = "g", incarnation: int = 1, session: int = 1, settings: Settings | None = None
    ) -> None:
        """Not in a view."""
        self.me = MemberId(name, incarnation)
        self.settings = settings or Settings()
        self.effects = Effects()
        self.group_id = 0
        self.past: dict[MemberId, int] = {}
        self.arrived: list[Frame] = []
        self.ups: list[MemberId] = []
        self.broken: list[MemberId] = []
        self.past_reports: list[int] = []
        self.links = Links(group, session, self)

    def position(self) -> tuple[int, ViewId, int]:
        """Where it is."""
        return self.group_id, NO_VIEW, 0

    def last_known(self, who: MemberId, said: Hello) -> int | None:
        """Is this incarnation past?"""
        return self.past.get(who)

    def frame_arrived(self, link: Link, arrived: Frame, now_ns: int) -> None:
        """Keep it."""
        self.arrived.append(arrived)

    def link_up(self, link: Link, said: Hello, now_ns: int) -> None:
        """Keep it."""
        self.ups.append(link.peer)

    def link_broken(self, peer: MemberId, now_ns: int) -> None:
        """Keep it."""
        self.broken.append(peer)

    def refused_as_past(self, by: str, last_incarnation: int) -> None:
        """Keep it."""
        assert by == B
        self.past_reports.append(last_incarnation)

    def take(self) -> Effects:
        """What the driver is to do."""
        self.links.flush()
        effects, self.effects = self.effects, Effects()
        return effects

    def dials(self, now_ns: int) -> list[str]:
        """Whom to dial at that time."""
        self.links.on_timer(now_ns)
        return self.take().dials

    def noticed(self, effects: Effects, what: str) -> list[Any]:
        """The values of notices of one kind."""
        return [notice.value for notice in effects.notices if notice.what == what]


class Wire:
    """One connection between two owners; bytes pass when `pass_bytes` is called."""

    def __init__(
        self,
        dialler: Owner,
        listener: Owner,
        number: int = 1,
        *,
        now_ns: int = 0,
        dialled: str = "",
        certificate: tuple[str, ...] | None = None,
    ) -> None:
        """Open."""
        self.dialler, self.listener, self.number = dialler, listener, number
        self.reasons: dict[str, str] = {}
        listener.links.connection_made(number, "", certificate, "1.2.3.4:5678", now_ns)
        dialler.links.connection_made(number, dialled or listener.me.name, None, "address", now_ns)

    def pass_bytes(self, now_ns: int = 0) -> None:
        """Until nothing is in transit. Effects of other connections are put back."""
        is_moving = True
        while is_moving:
            is_moving = False
            for one, other in ((self.dialler, self.listener), (self.listener, self.dialler)):
                effects = one.take()
                for number, buffers in effects.writes:
                    if number == self.number:
                        is_moving = True
                        other.links.data_received(number, b"".join(buffers), now_ns)
                for close in effects.closes:
                    if close.connection == self.number:
                        self.reasons[one.me.name] = close.reason
                        other.links.connection_lost(self.number, "closed", now_ns)
                one.effects.notices += effects.notices

    def reason(self, one: Owner) -> str:
        """Why that end closed the connection."""
        return self.reasons.get(one.me.name, "")


def hello(owner: Owner, to: str, **change: Any) -> Hello:
    """The HELLO of an owner, with some fields changed."""
    return msgspec.structs.replace(owner.links._hello(to), **change)


def greet(listener: Owner, said: Hello, *, certificate: tuple[str, ...] | None = None, number: int = 1) -> Effects:
    """A stranger dials and sends this."""
    listener.links.connection_made(number, "", certificate, "1.2.3.4:5678", 0)
    listener.links.data_received(number, encode_frame(frame.HELLO, 0, 0, handshake.encode(said)), 0)
    return listener.take()


def answers(effects: Effects, number: int = 1) -> list[Frame]:
    """The frames in what is written to a connection."""
    data = b"".join(b"".join(buffers) for to, buffers in effects.writes if to == number)
    return list(FrameReader(1 << 20).feed(data))


def refusal(effects: Effects, number: int = 1) -> HandshakeRefusal:
    """The one frame that is written, which refuses."""
    (answer,) = answers(effects, number)
    assert answer.kind == frame.REFUSE
    assert [close.connection for close in effects.closes] == [number]
    return handshake.decode(HandshakeRefusal, answer.body)


def linked(**other: Any) -> tuple[Owner, Owner, Wire]:
    """Two owners with a link."""
    one, two = Owner(A, session=11), Owner(B, session=22, **other)
    wire = Wire(one, two)
    wire.pass_bytes()
    return one, two, wire


# Greeting.


def test_two_members_greet_and_have_a_link() -> None:
    one, two, _ = linked()
    assert one.ups == [two.me]
    assert two.ups == [one.me]
    assert one.links.links[B].is_up
    assert two.links.links[A].is_up
    assert one.noticed(one.effects, "link") == [(B, "up", "")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "other"}, "10.0.0.1:7000 is in group 'other', 10.0.0.2:7000 in 'g'"),
        ({"towards": "localhost:7000"}, "10.0.0.1:7000 dialled localhost:7000, but that member is 10.0.0.2:7000: use"),
        ({"name": B, "towards": B}, "two processes use the name 10.0.0.2:7000: give each"),
        ({"group_id": 7}, "founded apart: stop one of the two"),
        ({"oldest": 2, "newest": 3}, "10.0.0.1:7000 speaks wire versions 2 to 3, 10.0.0.2:7000 1 to 1"),
        ({"oldest": 0, "newest": 0}, "10.0.0.1:7000 speaks wire versions 0 to 0, 10.0.0.2:7000 1 to 1"),
    ],
)
def test_a_process_that_is_not_of_this_group_is_refused_with_one_line(change: dict[str, Any], reason: str) -> None:
    stranger, member = Owner(A), Owner(B)
    member.group_id = 9
    effects = greet(member, hello(stranger, B, **change))
    said = refusal(effects)
    assert reason in said.reason
    assert "\n" not in said.reason
    assert not said.is_past
    assert member.noticed(effects, "refused") == [("1.2.3.4:5678", said.reason)]
    assert member.links.refused == 1
    assert member.ups == []


@pytest.mark.parametrize("change", [{"oldest": 1, "newest": 2}, {"oldest": 0, "newest": 1}])
def test_a_peer_that_speaks_a_neighbouring_version_too_interoperates(change: dict[str, int]) -> None:
    peer, member = Owner(A), Owner(B)
    effects = greet(member, hello(peer, B, **change))
    assert [answer.kind for answer in answers(effects)] == [frame.WELCOME]
    assert all(answer.number == 0 for answer in answers(effects))
    assert member.ups == [peer.me]


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    peer, member = Owner(A), Owner(B)
    body = msgspec.msgpack.encode(msgspec.structs.asdict(hello(peer, B)) | {"colour": "green", "newest": 2})
    member.links.connection_made(1, "", None, "address", 0)
    member.links.data_received(1, encode_frame(frame.HELLO, 0, 0, body), 0)
    assert member.ups == [peer.me]


@pytest.mark.parametrize("setting", sorted(Settings().agreed()))
def test_each_setting_that_differs_is_named_with_both_values(setting: str) -> None:
    peer, member = Owner(A), Owner(B)
    theirs = peer.settings.agreed()
    value = "other" if isinstance(theirs[setting], str) else theirs[setting] + 1
    said = refusal(greet(member, hello(peer, B, settings=theirs | {setting: value})))
    ours = member.settings.agreed()[setting]
    assert said.reason == f"the settings differ: {setting}={value} at {A}, {ours} at {B}"


def test_a_setting_that_one_side_does_not_know_is_named() -> None:
    peer, member = Owner(A), Owner(B)
    said = refusal(greet(member, hello(peer, B, settings=peer.settings.agreed() | {"newer": 3})))
    assert said.reason == f"the settings differ: newer=3 at {A}, unknown at {B}"


def test_the_dialler_hears_why_it_is_refused_and_keeps_the_reason() -> None:
    one, two = Owner(A), Owner(B, settings=replace(Settings(), window_bytes=9 << 20))
    one.links.need({B}, 0)
    wire = Wire(one, two)
    wire.pass_bytes()
    assert f"the settings differ: window_bytes=8388608 at {A}, 9437184 at {B}" in wire.reason(two)
    assert one.links.failures[B].startswith("it refused: the settings differ: window_bytes")
    assert one.ups == two.ups == []


def test_the_dialler_refuses_too() -> None:
    """The peer that was dialled may be the one that is wrong."""
    one = Owner(A)
    other = Owner(B, settings=replace(Settings(), window_bytes=9 << 20))
    one.links.connection_made(1, B, None, B, 0)
    welcome = encode_frame(frame.WELCOME, 0, 0, handshake.encode(hello(other, A)))
    one.links.data_received(1, welcome, 0)
    assert "the settings differ" in one.links.failures[B]
    assert one.ups == []


def test_a_process_that_answers_under_another_name_is_refused() -> None:
    one, other = Owner(A), Owner("10.0.0.3:7000")
    one.links.connection_made(1, B, None, B, 0)
    one.links.data_received(1, encode_frame(frame.WELCOME, 0, 0, handshake.encode(hello(other, A))), 0)
    assert one.links.failures[B] == "it says it is 10.0.0.3:7000, not 10.0.0.2:7000"


# Certificates.


@pytest.mark.parametrize("certificate", [(), (B,), ("10.0.0.3:7000", B)])
def test_a_name_that_the_certificate_does_not_hold_is_refused(certificate: tuple[str, ...]) -> None:
    peer, member = Owner(A), Owner(B)
    said = refusal(greet(member, hello(peer, B), certificate=certificate))
    assert said.reason.startswith(f"its certificate is for {', '.join(certificate) or 'nobody'}, not for {A}")


def test_a_certificate_of_several_names_is_enough() -> None:
    peer, member = Owner(A), Owner(B)
    greet(member, hello(peer, B), certificate=("10.0.0.3:7000", A))
    assert member.ups == [peer.me]


def test_the_certificate_is_compared_before_an_exclusion_is_reported() -> None:
    peer, member = Owner(A), Owner(B)
    member.past[peer.me] = 4
    assert not refusal(greet(member, hello(peer, B), certificate=(B,))).is_past


@pytest.mark.parametrize("is_duplicate", [False, True])
def test_only_a_refusal_marked_as_duplicate_is_no_failure(is_duplicate: bool) -> None:
    one = Owner(A)
    body = handshake.encode(HandshakeRefusal(reason=DUPLICATE, is_duplicate=is_duplicate))
    one.links.connection_made(1, B, None, B, 0)
    one.links.data_received(1, encode_frame(frame.REFUSE, 0, 0, body), 0)
    assert (B in one.links.failures) is not is_duplicate


@pytest.mark.parametrize("kind", [frame.REFUSE, frame.WELCOME])
def test_nothing_is_believed_of_a_process_whose_certificate_is_another_ones(kind: int) -> None:
    """A refusal could end a healthy member."""
    one = Owner(A)
    body = (
        handshake.encode(HandshakeRefusal(reason="excluded", is_past=True, incarnation=9))
        if kind == frame.REFUSE
        else handshake.encode(hello(Owner(B), A))
    )
    one.links.connection_made(1, B, ("10.0.0.3:7000",), B, 0)
    one.links.data_received(1, encode_frame(kind, 0, 0, body), 0)
    assert one.past_reports == []
    assert one.ups == []
    assert "its certificate is for 10.0.0.3:7000, not for 10.0.0.2:7000" in one.links.failures[B]


# Incarnations.


def test_a_past_incarnation_learns_the_last_one_that_is_known() -> None:
    one, two = Owner(A, incarnation=3), Owner(B)
    two.past[one.me] = 8
    wire = Wire(one, two)
    wire.pass_bytes()
    assert wire.reason(two) == f"this incarnation of {A} is no longer in the group"
    assert one.past_reports == [8]
    assert two.ups == []


def test_a_later_incarnation_replaces_an_earlier_one() -> None:
    _, two, _ = linked()
    again = Owner(A, incarnation=2, session=12)
    wire = Wire(again, two, 2)
    wire.pass_bytes()
    assert two.links.links[A].peer == again.me
    assert two.links.links[A].is_up
    assert set(two.links.pipes) == {2}
    assert again.ups == [two.me]
    assert two.broken == [], "another incarnation is another member"


def test_an_earlier_incarnation_does_not_come_back() -> None:
    _, two, _ = linked(incarnation=1)
    again = Owner(A, incarnation=2, session=12)
    Wire(again, two, 2).pass_bytes()
    late = Owner(A, incarnation=1, session=11)
    wire = Wire(late, two, 3)
    wire.pass_bytes()
    assert wire.reason(two) == f"a later incarnation of {A} is known"
    assert two.links.links[A].peer == again.me


def test_a_handshake_of_an_ended_process_does_not_replace_the_session_of_its_successor() -> None:
    """Both continue one incarnation from a journal; the handshake of the first arrives after that of the second."""
    before, two, after = Owner(A, session=11), Owner(B, session=22), Owner(A, session=12)
    two.links.connection_made(1, A, None, A, 0)
    two.take()
    late_answer = encode_frame(frame.WELCOME, 0, 0, handshake.encode(hello(before, B, received=0)))
    Wire(after, two, 2).pass_bytes()
    link = two.links.links[A]
    for body in (b"1", b"2"):
        link.send(frame.MEMBERSHIP, TAG, body)
    two.links.mark(link)
    Wire.pass_bytes(_wire(after, two, 2))
    after.links.confirm()
    Wire.pass_bytes(_wire(after, two, 2))
    assert link.acknowledged == 2
    two.links.data_received(1, late_answer, 5 * NS)
    assert two.links.failures[A] == f"a later session of {A} is known"
    assert link.pipe is two.links.pipes[2], "the connection to the living process stays"
    assert (link.session, link.acknowledged) == (12, 2)
    two.take()
    assert refusal(greet(two, hello(before, B), number=3), number=3).session == 12


@pytest.mark.parametrize("dials", [True, False])
def test_a_process_whose_clock_was_set_back_exceeds_its_earlier_session(dials: bool) -> None:
    two, again = Owner(B, session=22), Owner(A, session=400)
    Wire(Owner(A, session=500), two, 1).pass_bytes()
    two.links.connection_lost(1, "reset", NS)
    dialler, listener = (again, two) if dials else (two, again)
    if dials:
        refused = Wire(again, two, 2, now_ns=2 * NS)
        refused.pass_bytes(2 * NS)
        assert refused.reason(two) == f"a later session of {A} is known"
    Wire(dialler, listener, 3, now_ns=3 * NS).pass_bytes(3 * NS)
    assert two.links.links[A].session > 500
    assert two.links.links[A].is_up
    assert again.ups == [two.me]


def test_two_processes_that_exceed_the_same_session_are_told_apart() -> None:
    """Each learns the session of their predecessor; a member that knows both must not mix up their frames."""
    sessions = []
    for session in (400, 401):
        member, again = Owner(B, session=22), Owner(A, session=session)
        Wire(Owner(A, session=500), member, 1).pass_bytes()
        member.links.connection_lost(1, "reset", NS)
        Wire(member, again, 2, now_ns=2 * NS).pass_bytes(2 * NS)
        sessions.append(member.links.links[A].session)
    assert sessions[0] != sessions[1]


def test_a_connection_that_ends_young_is_replaced_after_a_pause() -> None:
    one, _, _ = linked()
    one.links.needed = {B}
    one.links.connection_lost(1, "reset", 1)
    assert one.dials(2) == []
    assert one.dials(RETRY_FIRST_NS + 1) == [B]


def test_a_connection_that_ends_later_is_replaced_at_once() -> None:
    one, _, _ = linked()
    one.links.needed = {B}
    one.links.connection_lost(1, "reset", NS)
    assert one.dials(NS) == [B]


def test_the_link_to_an_earlier_incarnation_than_the_known_one_is_dead() -> None:
    _, two, _ = linked()
    assert isinstance(two.links.open(MemberId(A, 0), 0), DeadLink)
    assert two.links.open(MemberId(A, 1), 0) is two.links.links[A]
    later = two.links.open(MemberId(A, 5), 0)
    assert later.peer == MemberId(A, 5)
    assert not later.is_up
    assert 1 not in two.links.pipes, "the connection of the earlier one ends"


# Reconnection.


def membership_frame(number: int) -> bytes:
    return encode_frame(frame.MEMBERSHIP, number, TAG, b"message %d" % number)


def test_a_link_continues_after_a_break_without_a_gap() -> None:
    one, two, wire = linked()
    link = one.links.links[B]
    for body in (b"1", b"2"):
        link.send(frame.MEMBERSHIP, TAG, body)
    one.links.mark(link)
    wire.pass_bytes()
    link.send(frame.MEMBERSHIP, TAG, b"3")  # written, and lost with the connection
    one.links.mark(link)
    one.take()
    for owner in (one, two):
        owner.links.connection_lost(1, "reset", 0)
    link.send(frame.MEMBERSHIP, TAG, b"4")
    Wire(two, one, 2, now_ns=5 * NS).pass_bytes(5 * NS)
    assert [arrived.body for arrived in two.arrived] == [b"1", b"2", b"3", b"4"]
    assert one.broken == two.broken == []
    assert link.connections == 2


def test_a_process_that_restarted_breaks_the_view_only_if_it_forgot_frames_of_it() -> None:
    for had_frames in (False, True):
        one, two, wire = linked()
        link = one.links.links[B]
        link.begin_view(TAG)
        if had_frames:
            link.send(frame.CONTROL, TAG, b"of this view")
            one.links.mark(link)
            wire.pass_bytes()
            two.links.links[A].confirm()
            two.links.mark(two.links.links[A])
            wire.pass_bytes()
        one.links.connection_lost(1, "reset", 0)
        restarted = Owner(B, session=33)
        Wire(restarted, one, 2, now_ns=5 * NS).pass_bytes(5 * NS)
        assert one.broken == ([restarted.me] if had_frames else [])
        link.send(frame.MEMBERSHIP, TAG, b"next")
        one.links.mark(link)
        Wire.pass_bytes(_wire(restarted, one, 2), 5 * NS)
        assert [arrived.body for arrived in restarted.arrived] == [b"next"]


def _wire(dialler: Owner, listener: Owner, number: int) -> Wire:
    """A connection that exists."""
    wire = Wire.__new__(Wire)
    wire.dialler, wire.listener, wire.number, wire.reasons = dialler, listener, number, {}
    return wire


def test_a_frame_beyond_the_next_one_ends_the_connection_and_a_repeated_one_is_dropped() -> None:
    _, two, _ = linked()
    two.links.needed = {A}
    two.links.data_received(1, membership_frame(1) + membership_frame(1), 0)
    assert len(two.arrived) == 1
    two.links.data_received(1, membership_frame(3), 0)
    effects = two.take()
    assert [close.reason for close in effects.closes] == ["it sent frame 3 after frame 1: a gap"]
    assert (A, "down", "it sent frame 3 after frame 1: a gap") in two.noticed(effects, "link")
    assert not two.links.links[A].is_up
    assert two.dials(RETRY_FIRST_NS) == [A], "a link that is needed is dialled again"


def test_an_acknowledgement_beyond_what_was_sent_ends_the_connection() -> None:
    _, two, _ = linked()
    two.links.data_received(1, encode_frame(frame.ACK, 0, 0, handshake.encode(handshake.Acknowledgement(7))), 0)
    assert [close.reason for close in two.take().closes] == ["it acknowledges frame 7; 0 were sent"]


@pytest.mark.parametrize("kind", [frame.HELLO, frame.WELCOME, frame.REFUSE])
def test_a_greeting_after_the_handshake_ends_the_connection(kind: int) -> None:
    _, two, _ = linked()
    two.links.data_received(1, encode_frame(kind, 0, 0, b""), 0)
    assert "after the handshake" in two.take().closes[0].reason


def test_whoever_does_not_begin_with_a_greeting_is_closed() -> None:
    member = Owner(B)
    for number, octets in enumerate((b"GET / HTTP/1.1\r\n\r\n", membership_frame(1), bytes(100))):
        member.links.connection_made(number, "", None, "1.2.3.4:5", 0)
        member.links.data_received(number, octets + bytes(24), 0)
        assert [close.connection for close in member.take().closes] == [number]
    assert member.links.pipes == {}


def test_a_long_frame_is_refused_before_the_handshake_and_taken_after_it() -> None:
    one, two, _ = linked()
    body = encode_message(Join(NO_VIEW, MemberId(A, 1))) + bytes(1 << 20)
    two.links.data_received(1, encode_frame(frame.MEMBERSHIP, 1, TAG, body), 0)
    assert len(two.arrived) == 1
    two.links.connection_made(2, "", None, "1.2.3.4:5", 0)
    two.links.data_received(2, encode_frame(frame.HELLO, 0, 0, body), 0)
    assert "the limit is" in two.take().closes[0].reason
    assert one.ups


# Simultaneous dials.


@pytest.mark.parametrize("first", ["lower", "higher"])
def test_of_two_connections_dialled_at_once_that_of_the_lower_name_stays(first: str) -> None:
    one, two = Owner(A, session=1), Owner(B, session=2)
    by_lower, by_higher = Wire(one, two, 1), Wire(two, one, 2)
    wires = {1: by_lower, 2: by_higher}
    order = [1, 2] if first == "lower" else [2, 1]
    under_way: list[tuple[int, Owner, bytes]] = []

    def collect() -> None:
        for owner in (one, two):
            effects = owner.take()
            for number, buffers in sorted(effects.writes, key=lambda write: order.index(write[0])):
                wire = wires[number]
                to = wire.listener if owner is wire.dialler else wire.dialler
                under_way.append((number, to, b"".join(buffers)))

    collect()
    while under_way:
        number, to, data = under_way.pop(0)
        to.links.data_received(number, data, 0)
        collect()
    assert set(one.links.pipes) == set(two.links.pipes) == {1}
    assert one.links.links[B].pipe is one.links.pipes[1]
    assert two.links.links[A].pipe is two.links.pipes[1]
    assert one.links.failures == two.links.failures == {}
    assert one.broken == two.broken == []


def test_a_connection_made_later_replaces_one_that_may_be_broken() -> None:
    """The other side redials because its end broke; this end has not noticed."""
    one, two, _ = linked()
    two.links.connection_lost(1, "reset", 0)
    wire = Wire(two, one, 2, now_ns=YOUNG_NS)
    wire.pass_bytes(YOUNG_NS)
    assert one.links.links[B].pipe is one.links.pipes[2]
    assert set(one.links.pipes) == {2}


# Dialling.


def test_the_lower_name_dials_at_once_and_the_higher_one_after_a_while() -> None:
    one, two = Owner(A), Owner(B)
    one.links.need({A, B}, 0)
    two.links.need({A, B}, 0)
    assert one.dials(0) == [B]
    assert two.dials(0) == []
    assert two.links.next_timer_ns() == SECOND_DIALLER_NS
    assert two.dials(SECOND_DIALLER_NS) == [A]


def test_a_name_that_does_not_answer_is_dialled_again_after_growing_pauses() -> None:
    one = Owner(A)
    one.links.need({B}, 0)
    now_ns, pauses = 0, []
    for _ in range(10):
        assert one.dials(now_ns) == [B]
        assert one.dials(now_ns) == [], "one attempt at a time"
        one.links.dial_failed(B, "no route", now_ns)
        due_ns = one.links.next_timer_ns()
        assert due_ns is not None
        pauses.append(due_ns - now_ns)
        now_ns = due_ns
    assert pauses[0] == RETRY_FIRST_NS
    assert pauses == sorted(pauses)
    assert pauses[-1] == RETRY_MAX_NS
    assert one.links.failures[B] == "no route"


def test_a_name_that_a_new_view_needs_is_dialled_without_the_pauses_of_earlier_failures() -> None:
    one = Owner(A)
    now_ns = 0
    one.links.reach(B, now_ns)
    for _ in range(10):
        assert one.dials(now_ns) == [B]
        one.links.dial_failed(B, "no route", now_ns)
        now_ns = one.links.next_timer_ns() or 0
        one.links.reach(B, now_ns)
    assert one.dials(now_ns) == [B]
    one.links.dial_failed(B, "no route", now_ns)
    assert one.dials(now_ns + 1) == []
    one.links.need({B}, now_ns + 1)
    assert one.dials(now_ns + 1) == [B]


def test_a_name_that_is_reached_for_once_is_not_dialled_for_ever() -> None:
    one = Owner(A)
    assert one.links.reach(B, 0) is None
    assert one.dials(0) == [B]
    one.links.dial_failed(B, "no route", 0)
    assert one.dials(IDLE_NS // 2) == [B]
    one.links.dial_failed(B, "no route", IDLE_NS // 2)
    assert one.dials(2 * IDLE_NS) == []
    assert one.links.next_timer_ns() is None


def test_a_message_is_dropped_while_there_is_no_link_and_the_name_is_dialled() -> None:
    one = Owner(B)
    assert not one.links.send_message(A, Join(NO_VIEW, one.me), 0)
    assert one.dials(0) == [A], "at once, although the lower name would dial first"


def test_a_handshake_that_takes_too_long_ends() -> None:
    member = Owner(B)
    member.links.connection_made(1, "", None, "1.2.3.4:5", 0)
    limit_ns = round(member.settings.handshake_timeout_s * NS)
    member.links.on_timer(limit_ns)
    assert 1 in member.links.pipes
    member.links.on_timer(limit_ns + 1)
    assert [close.reason for close in member.take().closes] == ["it did not greet in time"]


def test_a_link_that_nobody_needs_is_closed_after_a_while() -> None:
    one, two, _ = linked()
    one.links.need({B}, 0)
    for owner in (one, two):
        owner.links.on_timer(IDLE_NS + 1)
    assert one.links.links[B].is_up
    assert [close.reason for close in two.take().closes] == ["nobody needs it"]


def test_a_connection_that_ends_before_the_handshake_says_what_may_be_wrong() -> None:
    one = Owner(A)
    one.links.need({B}, 0)
    assert one.dials(0) == [B]
    one.links.connection_made(1, B, None, B, 0)
    one.links.connection_lost(1, "reset", 0)
    assert one.links.failures[B] == "reset; it ended before the handshake (does the other side use TLS?)"
    assert one.dials(0) == []
    assert one.dials(RETRY_FIRST_NS) == [B]

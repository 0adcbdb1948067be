"""One link: frames in order and without a gap over successive connections, and what restarts lose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import RemoteProtocolError
from cubecast.member.link import ACK_BYTES, BATCH_BYTES, RECORDS_BATCH, DeadLink, Link, Pipe
from cubecast.protocols.membership.views import MemberId
from cubecast.wire import frame, handshake
from cubecast.wire.frame import Frame, FrameReader

PEER = MemberId("b:1", 1)
TAG = 77


def new_pipe(number: int = 1) -> Pipe:
    return Pipe(number, "", None, "somewhere", 0)


def written(pipe: Pipe) -> list[Frame]:
    """What was written since the last call."""
    data, pipe.out = b"".join(pipe.out), []
    return list(FrameReader(1 << 24).feed(data))


def connected(session: int = 5) -> tuple[Link, Pipe]:
    link, pipe = Link(PEER, session), new_pipe()
    link.begin_view(TAG)
    assert link.resume(pipe, received=0, session=session, dialled_by="a:1")
    return link, pipe


def test_only_the_last_loose_frame_of_a_kind_waits_for_a_full_connection() -> None:
    link, pipe = connected()
    pipe.is_paused = True
    link.add_records([b"record"], 6)
    for step in range(5):
        link.send_loose(frame.FAILURE, TAG, b"gossip %d" % step)
    link.flush()
    assert written(pipe) == []
    pipe.is_paused = False
    assert link.wants_flush
    link.flush()
    assert written(pipe) == [Frame(frame.FAILURE, 0, TAG, b"gossip 4"), Frame(frame.DATA, 1, TAG, b"record")]


def test_records_gather_while_the_connection_is_down_and_leave_in_one_frame() -> None:
    link = Link(PEER, 5)
    link.begin_view(TAG)
    for number in range(10):
        link.add_records([b"%d" % number], 1)
    link.flush()
    pipe = new_pipe()
    link.resume(pipe, received=0, session=5, dialled_by="a:1")
    link.flush()
    assert written(pipe) == [Frame(frame.DATA, 1, TAG, b"0123456789")]


def test_many_records_leave_in_batches_of_bounded_size_and_in_order() -> None:
    link, pipe = connected()
    records = [b"%08d" % number * 40 for number in range(3 * RECORDS_BATCH)]
    large = [bytes(BATCH_BYTES - 10), b"after it"]
    link.add_records([*records, *large], sum(map(len, [*records, *large])))
    while link.wants_flush:
        link.flush()
    frames = written(pipe)
    assert b"".join(one.body for one in frames) == b"".join([*records, *large])
    assert [one.number for one in frames] == list(range(1, len(frames) + 1))
    assert max(len(one.body) for one in frames) <= BATCH_BYTES
    assert link.waiting_bytes == sum(len(one.body) + frame.HEADER_BYTES for one in frames)


def test_a_new_connection_carries_what_the_old_one_did_not_bring() -> None:
    link, first = connected()
    for body in (b"one", b"two", b"three"):
        link.send(frame.CONTROL, TAG, body)
    assert link.detach(first)
    assert not link.detach(first)
    link.send(frame.CONTROL, TAG, b"four")
    second = new_pipe(2)
    assert link.resume(second, received=1, session=5, dialled_by="a:1")
    assert [(one.number, one.body) for one in written(second)] == [(2, b"two"), (3, b"three"), (4, b"four")]
    assert link.connections == 2


def test_an_acknowledged_frame_is_not_sent_again_though_the_peer_reports_an_older_number() -> None:
    """It may have sent HELLO before it read the last frames of the connection that broke."""
    link, pipe = connected()
    link.send(frame.CONTROL, TAG, b"one")
    link.send(frame.CONTROL, TAG, b"two")
    link.acknowledge(1)
    link.detach(pipe)
    second = new_pipe(2)
    assert link.resume(second, received=0, session=5, dialled_by="a:1")
    assert [one.number for one in written(second)] == [2]


def test_what_is_claimed_beyond_what_was_sent_is_an_error() -> None:
    link, pipe = connected()
    link.send(frame.CONTROL, TAG, b"one")
    with pytest.raises(RemoteProtocolError, match="acknowledges frame 2; 1 were sent"):
        link.acknowledge(2)
    link.detach(pipe)
    with pytest.raises(RemoteProtocolError, match="claims frame 9 of this link; 1 were sent"):
        link.resume(new_pipe(2), received=9, session=5, dialled_by="a:1")


@pytest.mark.parametrize("received", [1, 2, 41])
def test_what_waits_for_the_first_connection_follows_what_an_earlier_run_sent(received: int) -> None:
    link, pipe = Link(PEER, 0), new_pipe()
    link.begin_view(TAG)
    link.send(frame.CONTROL, TAG, b"one")
    link.send(frame.CONTROL, TAG, b"two")
    assert link.resume(pipe, received=received, session=5, dialled_by="a:1")
    assert [(one.number, bytes(one.body)) for one in written(pipe)] == [(received + 1, b"one"), (received + 2, b"two")]


def test_a_process_that_restarted_numbers_its_frames_from_what_the_other_side_received() -> None:
    link = Link(PEER, 5)
    pipe = new_pipe()
    assert link.resume(pipe, received=41, session=5, dialled_by="a:1")
    link.send(frame.MEMBERSHIP, TAG, b"hello again")
    assert [one.number for one in written(pipe)] == [42]


def test_frames_for_a_process_that_restarted_are_numbered_anew() -> None:
    """Nothing of the present view was acknowledged: nothing is lost for good."""
    link, pipe = connected()
    link.send(frame.MEMBERSHIP, 1, b"of the view before")
    link.acknowledge(1)
    link.begin_view(TAG + 1)
    link.send(frame.CONTROL, TAG + 1, b"of this view")
    link.detach(pipe)
    second = new_pipe(2)
    assert link.resume(second, received=0, session=6, dialled_by="a:1")
    assert [(one.number, one.body) for one in written(second)] == [(1, b"of this view")]
    link.send(frame.CONTROL, TAG + 1, b"next")
    assert [one.number for one in written(second)] == [2]
    link.acknowledge(2)
    assert link.waiting_bytes == 0


def test_frames_of_the_view_that_a_restarted_process_had_and_forgot_are_lost_for_good() -> None:
    link, pipe = connected()
    link.send(frame.CONTROL, TAG, b"one")
    link.acknowledge(1)
    link.detach(pipe)
    assert not link.resume(new_pipe(2), received=0, session=6, dialled_by="a:1"), "only a new view mends that"


def test_when_data_of_a_view_was_lost_no_more_of_it_follows_before_the_next_view() -> None:
    """A process that restarted would take the later messages for the first ones."""
    link, pipe = connected()
    for text in (b"first", b"second"):
        link.add_records([text], len(text))
        link.flush()
    link.send(frame.MEMBERSHIP, TAG, b"agreement")
    link.acknowledge(1)
    link.detach(pipe)
    link.add_records([b"third"], 5)
    second = new_pipe(2)
    assert not link.resume(second, received=0, session=6, dialled_by="a:1")
    link.add_records([b"fourth"], 6)
    link.flush()
    assert [(one.number, one.body) for one in written(second)] == [(1, b"agreement")]
    link.begin_view(TAG + 1)
    link.add_records([b"of the next view"], 16)
    link.flush()
    assert [(one.number, one.body) for one in written(second)] == [(2, b"of the next view")]
    link.acknowledge(2)
    assert link.waiting_bytes == 0


def test_records_of_an_earlier_view_are_dropped_and_numbered_frames_are_not() -> None:
    link = Link(PEER, 5)
    link.begin_view(TAG)
    link.add_records([b"old record"], 10)
    link.send(frame.CONTROL, TAG, b"old control")
    link.send_loose(frame.FAILURE, TAG, b"old gossip")
    link.begin_view(TAG + 1)
    link.begin_view(TAG + 1)
    link.add_records([b"new record"], 10)
    pipe = new_pipe()
    link.resume(pipe, received=0, session=5, dialled_by="a:1")
    link.flush()
    assert [one.body for one in written(pipe)] == [b"old control", b"new record"]


def test_a_repeated_frame_is_not_taken_twice_and_a_gap_is_an_error() -> None:
    link, _ = connected()
    assert link.accept(Frame(frame.CONTROL, 1, TAG, b""))
    assert not link.accept(Frame(frame.CONTROL, 1, TAG, b""))
    assert link.accept(Frame(frame.CONTROL, 2, TAG, b""))
    with pytest.raises(RemoteProtocolError, match="frame 4 after frame 2: a gap"):
        link.accept(Frame(frame.CONTROL, 4, TAG, b""))


def test_frames_are_acknowledged_after_many_bytes_or_on_request() -> None:
    link, pipe = connected()
    link.confirm()
    assert written(pipe) == [], "nothing came"
    link.accept(Frame(frame.CONTROL, 1, TAG, b"small"))
    assert written(pipe) == []
    link.confirm()
    (ack,) = written(pipe)
    assert handshake.decode(handshake.Acknowledgement, ack.body).received == 1
    link.accept(Frame(frame.DATA, 2, TAG, bytes(ACK_BYTES)))
    (ack,) = written(pipe)
    assert handshake.decode(handshake.Acknowledgement, ack.body).received == 2


def test_a_dead_link_drops_everything() -> None:
    link = DeadLink(PEER, 0)
    link.add_records([b"x"], 1)
    link.send(frame.CONTROL, TAG, b"x")
    link.send_loose(frame.FAILURE, TAG, b"x")
    assert (link.waiting_bytes, link.sent, link.is_up) == (0, 0, False)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("arrive"), st.integers(1, 5)),
        st.tuples(st.just("confirm"), st.just(0)),
        st.tuples(st.just("break"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(deadline=None)
def test_frames_arrive_once_and_in_order_however_connections_break(steps: list[tuple[str, int]]) -> None:
    """Two ends; a break loses any suffix of the bytes in transit, in both directions."""
    one, other = Link(MemberId("b:1", 1), 8), Link(MemberId("a:1", 1), 9)
    one_pipe, other_pipe = new_pipe(), new_pipe()
    under_way: list[Frame] = []
    acks: list[Frame] = []
    sent = 0
    arrived: list[bytes] = []

    def connect() -> None:
        nonlocal one_pipe, other_pipe
        one_pipe, other_pipe = new_pipe(), new_pipe()
        one.resume(one_pipe, received=other.received, session=8, dialled_by="a:1")
        other.resume(other_pipe, received=one.received, session=9, dialled_by="a:1")

    def arrive(count: int) -> None:
        for _ in range(min(count, len(under_way))):
            taken = under_way.pop(0)
            if other.accept(taken):
                arrived.append(taken.body)

    connect()
    for step, count in [*steps, ("break", 0), ("arrive", 1000)]:
        if step == "send":
            for _ in range(count):
                sent += 1
                one.send(frame.CONTROL, TAG, b"%d" % sent)
        elif step == "arrive":
            arrive(count)
        elif step == "confirm":
            other.confirm()
        else:
            arrive(count)
            under_way.clear()
            acks.clear()
            one.detach(one_pipe)
            other.detach(other_pipe)
            connect()
        under_way += written(one_pipe)
        for ack in written(other_pipe):
            one.acknowledge(handshake.decode(handshake.Acknowledgement, ack.body).received)
    assert arrived == [b"%d" % number for number in range(1, sent + 1)]

"""The history that is kept for newcomers: as bytes, cut anywhere, read back one by one."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import RemoteProtocolError
from cubecast.member.effects import Delivery
from cubecast.member.history import CHUNK_BYTES, History, decode_history
from cubecast.protocols.membership.views import MemberId
from cubecast.wire.data import encode_record

SENDERS = [MemberId(f"10.0.0.{number}:7000", number << 40) for number in range(5)]
DELIVERIES = st.lists(
    st.builds(
        lambda sender, view, sequence, payload: Delivery(
            SENDERS[sender], view, sequence, encode_record(0, sender, 1, payload)
        ),
        st.integers(0, 4),
        st.integers(1, 1 << 40),
        st.integers(1, 1 << 40),
        st.binary(max_size=50),
    ),
    max_size=30,
)


def as_history(deliveries: list[Delivery]) -> list[Delivery]:
    return [Delivery(one.sender, one.view, one.sequence, one.record, True) for one in deliveries]


def cut_at(octets: bytes, borders: list[int]) -> list[bytes]:
    """The same bytes in pieces with these borders."""
    places = sorted({0, len(octets), *(border % (len(octets) + 1) for border in borders)})
    return [octets[begin:end] for begin, end in itertools.pairwise(places)]


@given(DELIVERIES, st.lists(st.integers(0, 1 << 20), max_size=20))
@settings(deadline=None)
def test_a_history_comes_back_however_it_is_cut(deliveries: list[Delivery], borders: list[int]) -> None:
    history = History("all")
    history.add(deliveries)
    pieces = cut_at(b"".join(history.pieces()), borders)
    assert list(decode_history(pieces)) == as_history(deliveries)


@given(DELIVERIES, DELIVERIES, st.lists(st.integers(0, 1 << 20), max_size=5), st.sampled_from(["all", 7]))
@settings(deadline=None)
def test_a_history_continues_that_of_another_member(
    before: list[Delivery], after: list[Delivery], borders: list[int], keep: str | int
) -> None:
    first, second = History(keep), History(keep)
    first.add(before)
    second.load(cut_at(b"".join(first.pieces()), borders))
    second.add(after)
    kept = as_history([*before, *after])
    assert as_history(list(decode_history(second.pieces()))) == (kept if keep == "all" else kept[-7:])


@given(DELIVERIES.filter(bool), st.integers(1, 1 << 20))
@settings(deadline=None)
def test_a_history_that_was_cut_short_is_refused_or_ends_earlier(deliveries: list[Delivery], place: int) -> None:
    history = History("all")
    history.add(deliveries)
    octets = b"".join(history.pieces())
    reading = decode_history([octets[: place % len(octets)]])
    read = []
    with contextlib.suppress(RemoteProtocolError):
        for delivery in reading:
            read.append(delivery)
    assert len(read) < len(deliveries)
    assert read == as_history(deliveries)[: len(read)]


@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(deadline=None, max_examples=500)
def test_any_bytes_are_a_history_or_refused(pieces: list[bytes]) -> None:
    with contextlib.suppress(RemoteProtocolError):
        list(decode_history(pieces))


def test_a_hundred_thousand_messages_are_kept_in_pieces_and_read_one_by_one() -> None:
    history = History("all")
    deliveries = [
        Delivery(SENDERS[number % 5], 1, number // 5 + 1, encode_record(0, number % 5, 1, b"x" * (number % 90)))
        for number in range(100_000)
    ]
    for at in range(0, len(deliveries), 1000):
        history.add(deliveries[at : at + 1000])
    pieces = history.pieces()
    assert max(map(len, pieces)) < 2 * CHUNK_BYTES
    reading = decode_history(pieces)
    assert list(itertools.islice(reading, 10)) == as_history(deliveries[:10])
    assert sum(1 for _ in reading) == 99_990
    assert history.pieces() == pieces, "reading changes nothing"


@pytest.mark.parametrize("keep", [1, 700, 5000])
def test_the_last_messages_are_kept_across_chunks_and_the_rest_is_forgotten(keep: int) -> None:
    history, second = History(keep), History(keep)
    deliveries = [
        Delivery(SENDERS[number % 5], 1, number // 5 + 1, encode_record(0, number % 5, 1, b"x" * 200))
        for number in range(20_000)
    ]
    history.add(deliveries[:15_000])
    second.load(history.pieces())
    second.add(deliveries[15_000:])
    pieces = second.pieces()
    assert as_history(list(decode_history(pieces))) == as_history(deliveries[-keep:])
    assert second.pieces() == pieces
    assert sum(map(len, pieces)) < 300 * keep + 1000


def test_no_history_is_kept_with_keep_none_or_zero() -> None:
    for keep in ("none", 0):
        history = History(keep)
        history.add([Delivery(SENDERS[0], 1, 1, b"")])
        assert not history.is_kept
        assert history.pieces() == ()


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        (b"\x07", "unknown kind 7"),
        (b"\x01" + bytes(24), "unknown sender 0"),
        (b"\x00\x05\x00", "3 bytes are left"),
    ],
)
def test_a_bad_history_is_refused(octets: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        list(decode_history([octets]))

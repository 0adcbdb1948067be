"""Bytes to records and back, and what is refused on the way."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import RemoteProtocolError
from cubecast.wire import control, data, frame
from cubecast.wire.control import Control
from cubecast.wire.frame import FrameReader
from tests.wire.frames import BODY_MAX, Decoder, damage, damage_body, honest_frame

FORM = data.Form(members=8, stamp_numbers=0, own_numbers=8, payload_bytes_max=200)
RECORDS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(1, (1 << 31) - 1), st.binary(max_size=200)), min_size=0, max_size=50
)


@given(RECORDS)
@settings(deadline=None)
def test_a_batch_comes_back_as_it_was_written(records: list[tuple[int, int, bytes]]) -> None:
    body = b"".join(data.encode_record(0, *record) for record in records)
    table = data.new_table()
    count = data.decode_batch(body, table, FORM)
    read = [(int(row[1]), int(row[2]), data.payload_of(body[row[3] : row[6]])) for row in table[:count]]
    assert read == records


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.integers(0, 1 << 30))
@settings(deadline=None)
def test_frames_are_the_same_however_the_bytes_are_cut(cuts: list[int], seed: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(honest_frame(chance) for _ in range(10))
    whole = list(FrameReader(BODY_MAX).feed(stream))
    reader = FrameReader(BODY_MAX)
    found, at = [], 0
    for cut in [*cuts, len(stream)]:
        found += list(reader.feed(stream[at : at + cut]))
        at += cut
    assert found == whole
    assert len(whole) == 10


@given(
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=5, max_size=5),
    st.integers(0, (1 << 64) - 1),
    st.integers(-1, 1 << 40),
)
@settings(deadline=None)
def test_a_control_message_comes_back_as_it_was_written(numbers: list[int], word: int, round_number: int) -> None:
    message = Control(3, round_number, 2, 9, -1, 7, np.array(numbers, np.int32), np.array([word], np.uint64))
    read = control.decode_control(control.encode_control(message), numbers=5, words=1)
    assert read[:6] == message[:6]
    assert read.numbers.tolist() == numbers
    assert read.bits.tolist() == [word]


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=2000)
def test_damaged_frames_are_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    Decoder().feed(damage(chance, honest_frame(chance)))


def test_honest_frames_are_never_refused() -> None:
    chance = random.Random(1)
    decoder = Decoder()
    assert all(decoder.feed(honest_frame(chance)) for _ in range(2000))
    assert decoder.bodies == 2000


def _header(length: int, version: int, kind: int, spare: int, number: int) -> bytes:
    return struct.pack("<IBBHQQ", length, version, kind, spare, number, 77)


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (_header(1, 2, frame.ACK, 0, 0), "version 2"),
        (_header(1, 1, 99, 0, 0), "kind 99"),
        (_header(1, 1, frame.ACK, 7, 0), "spare 7"),
        (_header(BODY_MAX + 1, 1, frame.DATA, 0, 1), "limit is 4096"),
        (_header(1, 1, frame.DATA, 0, 0), "frame number 0"),
        (_header(1, 1, frame.ACK, 0, 5), "frame number 5"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "version"),
    ],
)
def test_a_bad_header_is_refused_before_its_body_comes(octets: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        list(FrameReader(BODY_MAX).feed(octets))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (data.encode_record(0, 0, 1, b"abc")[:-1], "beyond its frame"),
        (b"\0" * 15, "beyond its frame"),
        (data.encode_record(0, 8, 1, b""), "sender"),
        (data.encode_record(0, -1, 1, b""), "sequence"),
        (data.encode_record(0, 0, 1 << 31, b""), "sequence"),
        (data.encode_record(0, 0, 1, bytes(201)), "above the limit"),
        (data.encode_record(0, 0, 1, b"", bytes(12)), "count of numbers"),
        (data.encode_record(0, 0, 1, b"", bytes(32)), "count of numbers"),
        (data.encode_record(1, -1, 0, b"", bytes(28)), "count of numbers"),
        (data.encode_record(16, 0, 1, b""), "kind"),
        (data.encode_record(0, 0, 1, b"") * (data.RECORDS_MAX + 1), "more than"),
    ],
)
def test_a_bad_batch_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        data.decode_batch(body, data.new_table(), FORM)


def test_a_message_without_its_stamp_is_refused() -> None:
    form = FORM._replace(stamp_numbers=8)
    stamped = data.encode_record(0, 0, 1, b"abc", bytes(range(32)))
    own = data.encode_record(1, -1, 0, b"", bytes(32)) + data.encode_record(2, 5, 0, b"")
    assert data.decode_batch(stamped + own, data.new_table(), form) == 3
    with pytest.raises(RemoteProtocolError, match="count of numbers"):
        data.decode_batch(data.encode_record(0, 0, 1, b"abc"), data.new_table(), form)


def test_another_last_number_leaves_the_rest_of_a_record_as_it_was() -> None:
    other = data.with_last_number(data.encode_record(0, 3, 7, b"abc", bytes(8)), bytes(range(8)))
    assert other == data.encode_record(0, 3, 7, b"abc", bytes(4) + bytes(range(4, 8)))
    assert data.payload_of(other) == b"abc"


def test_a_control_message_of_another_size_is_refused() -> None:
    message = control.encode_control(Control(0, 1, 1, 0, -1, 0, np.zeros(4, np.int32), np.zeros(1, np.uint64)))
    with pytest.raises(RemoteProtocolError, match="bytes"):
        control.decode_control(message, numbers=5, words=1)


@pytest.mark.parametrize("field", ["field_1", "field_2"])
def test_a_control_message_with_a_field_out_of_range_is_refused(field: str) -> None:
    message = Control(0, 1, (1 << 31) - 1, (1 << 31) - 1, -1, 0, np.zeros(4, np.int32), np.zeros(1, np.uint64))
    assert control.decode_control(control.encode_control(message), numbers=4, words=1)[:6] == message[:6]
    with pytest.raises(RemoteProtocolError, match="at most 2147483647"):
        control.decode_control(
            control.encode_control(Control(**message._asdict() | {field: 1 << 31})), numbers=4, words=1
        )


@given(
    st.sampled_from(sorted(frame.KINDS)),
    st.integers(1, frame.NUMBER_MAX),
    st.integers(0, (1 << 63) - 1),
    st.binary(max_size=300),
)
def test_a_frame_comes_back_with_its_number_and_its_view(kind: int, number: int, view: int, body: bytes) -> None:
    number = number if kind in frame.NUMBERED else 0
    octets = frame.encode_frame(kind, number, view, body)
    assert len(octets) == frame.HEADER_BYTES + len(body) == 24 + len(body)
    assert list(FrameReader(BODY_MAX).feed(octets)) == [frame.Frame(kind, number, view, body)]


def test_a_frame_may_be_numbered_anew() -> None:
    octets = frame.encode_frame(frame.DATA, 5, 99, b"body")
    assert frame.renumber(octets, 1 << 40) == frame.encode_frame(frame.DATA, 1 << 40, 99, b"body")


def test_the_limit_of_a_body_may_change_between_two_frames() -> None:
    """A handshake is short; what follows it in the same piece of bytes may be long."""
    reader = FrameReader(10)
    frames = []
    short, long = frame.encode_frame(frame.HELLO, 0, 0, b"short"), frame.encode_frame(frame.DATA, 1, 0, bytes(100))
    for one in reader.feed(short + long):
        frames.append(one.kind)
        reader.body_bytes_max = 1000
    assert frames == [frame.HELLO, frame.DATA]


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=2000)
def test_damaged_bodies_are_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    Decoder().feed(damage_body(chance, honest_frame(chance)))

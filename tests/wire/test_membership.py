"""The messages of changing groups as bytes, and what is refused on the way back."""

from __future__ import annotations

import random
import struct
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.core.membership import MemberId
from cubecast.core.membership import messages as said
from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.wire.introduction import Introduction, decode_introduction, encode_introduction
from cubecast.wire.kept import Kept, decode_kept, encode_kept
from cubecast.wire.membership import KINDS, decode_batch, decode_message, encode_batch, encode_message, require_fit
from tests.wire.frames import damage
from tests.wire.membership_messages import MESSAGES, draw_member, draw_message, draw_octets

PAYLOAD_MAX = 4096


def test_every_message_of_the_core_has_a_form() -> None:
    assert set(KINDS) == set(get_args(said.Message)) == set(MESSAGES)


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=500)
def test_a_batch_comes_back_as_it_was_written(seed: int) -> None:
    chance = random.Random(seed)
    messages = [draw_message(chance) for _ in range(chance.randrange(6))]
    read = list(decode_batch(encode_batch(messages), PAYLOAD_MAX))
    assert read == messages
    assert [type(one) for one in read] == [type(one) for one in messages]


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=2000)
def test_damaged_batches_are_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    octets = damage(chance, encode_batch([draw_message(chance) for _ in range(3)]))
    try:
        for message in decode_batch(octets, PAYLOAD_MAX):
            require_fit(message, 3)
    except RemoteProtocolError:
        pass


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=200)
def test_a_history_comes_back_as_it_was_written_and_is_refused_when_it_was_cut(seed: int) -> None:
    chance = random.Random(seed)
    messages = [Kept(draw_member(chance), 3, number, draw_octets(chance)) for number in range(chance.randrange(1, 5))]
    octets = encode_kept(messages)
    assert decode_kept(octets) == messages
    with pytest.raises(RemoteProtocolError, match="ends before"):
        decode_kept(octets[: chance.randrange(len(octets))])


def _body(message: Any) -> bytes:
    return encode_message(message)[4:]


def _status(beats: tuple[int, ...], received: tuple[int, ...], counted: int) -> said.Status:
    nothing = (0,) * len(beats)
    return said.Status(1, beats, 1, counted, nothing, nothing, received, (), (), (), (), (), 0, False)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "kind none"),
        (b"\x63", "kind 99"),
        (_body(said.Gone(1))[:-1], "ends before its fields do"),
        (_body(said.Gone(1)) + b"\0", "1 bytes follow"),
        (_body(said.Join(MemberId("a:1", 1))).replace(b"a:1", b"a\x071"), "name"),
        (_body(said.Join(MemberId("a:1", 1))).replace(b"\x03a:1", b"\x00"), "name"),
        (_body(_status((), (), 0))[:-1] + b"\x02", "flag of value 2"),
        (_body(said.Prepare(1, (1, 0)))[:-4] + struct.pack("<i", -2), "ballot of rank -2"),
        (_body(said.State(1, 0, 1, b"abc"))[:-1], "ends before its fields do"),
    ],
)
def test_a_bad_message_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_message(body)


def test_a_batch_that_was_cut_or_has_too_large_a_payload_is_refused() -> None:
    batch = encode_batch([said.Gone(1), said.Data(1, 0, 1, (0,), bytes(100))])
    with pytest.raises(RemoteProtocolError, match="ends before"):
        list(decode_batch(batch[:-1], 100))
    with pytest.raises(RemoteProtocolError, match="payload of 100 bytes; the limit is 99"):
        list(decode_batch(batch, 99))


@pytest.mark.parametrize(
    "message",
    [
        said.Data(1, 3, 1, (0, 0, 0), b""),
        said.Data(1, 0, 1, (0, 0), b""),
        said.Data(1, 0, 0, (0, 0, 0), b""),
        _status((0, 0), (0, 0, 0), 7),
        _status((0, 0, 0), (0,), 7),
        _status((0, 0, 0), (0, 0, 0), 8),
        said.Pull(1, 7, 1, 2),
        said.Prepare(1, (1, 3)),
        said.Prepare(1, said.NO_BALLOT),
        said.Flush(1, (1, 0), (0, 0, 0), ()),
        said.Promise(1, (1, 0), (0,), said.NO_BALLOT, None, True, False),
    ],
)
def test_a_message_that_does_not_fit_the_view_is_refused(message: said.Message) -> None:
    with pytest.raises(RemoteProtocolError):
        require_fit(message, 3)


def test_what_does_not_fit_into_a_message_is_not_written() -> None:
    for message in (
        said.Data(1, 1 << 16, 1, (), b""),
        said.Data(1, 0, 1, (1 << 32,), b""),
        said.Join(MemberId("x" * 300, 1)),
        said.AskState(1, -1),
    ):
        with pytest.raises(LocalProtocolError):
            encode_message(message)


def test_an_introduction_with_a_field_too_many_or_too_large_is_refused() -> None:
    honest = {"group": "g", "name": "a:1", "incarnation": 5, "towards": "b:2", "format": 1, "terms": bytes(16)}
    said_so = decode_introduction(msgspec.msgpack.encode(honest))
    assert decode_introduction(encode_introduction(said_so)) == said_so == Introduction(**honest)  # type: ignore[arg-type]
    for change in (
        {"more": 1},
        {"name": ""},
        {"name": "a b"},
        {"incarnation": -1},
        {"terms": b""},
        {"group": "x" * 300},
    ):
        with pytest.raises(RemoteProtocolError, match="malformed introduction"):
            decode_introduction(msgspec.msgpack.encode(honest | change))

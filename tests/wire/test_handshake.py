"""The handshake as bytes: what is decoded, what is refused, and what a later version may add."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import RemoteProtocolError
from cubecast.wire import handshake
from cubecast.wire.handshake import Acknowledgement, HandshakeRefusal, Hello
from tests.wire.frames import damage, draw_hello, draw_refusal

SEEDS = st.integers(0, 1 << 60)


def fields(message: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(message)


@given(SEEDS)
@settings(deadline=None)
def test_greetings_and_refusals_come_back_as_they_were_written(seed: int) -> None:
    chance = random.Random(seed)
    hello, refusal = draw_hello(chance), draw_refusal(chance)
    received = Acknowledgement(chance.getrandbits(63))
    assert handshake.decode(Hello, handshake.encode(hello)) == hello
    assert handshake.decode(HandshakeRefusal, handshake.encode(refusal)) == refusal
    assert handshake.decode(Acknowledgement, handshake.encode(received)) == received


@given(SEEDS)
@settings(deadline=None, max_examples=2000)
def test_damaged_bytes_are_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    with contextlib.suppress(RemoteProtocolError):
        handshake.decode(Hello, damage(chance, handshake.encode(draw_hello(chance))))
    with contextlib.suppress(RemoteProtocolError):
        handshake.decode(HandshakeRefusal, damage(chance, handshake.encode(draw_refusal(chance))))
    with contextlib.suppress(RemoteProtocolError):
        handshake.decode(Acknowledgement, damage(chance, handshake.encode(Acknowledgement(chance.getrandbits(63)))))


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=500)
def test_any_bytes_are_a_greeting_or_refused(octets: bytes) -> None:
    for kind in (Hello, HandshakeRefusal, Acknowledgement):
        with contextlib.suppress(RemoteProtocolError):
            handshake.decode(kind, octets)  # type: ignore[type-var]


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    hello = draw_hello(random.Random(1))
    assert handshake.decode(Hello, msgspec.msgpack.encode(fields(hello) | {"more": [1, 2]})) == hello


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "ä"},
        {"name": "x" * 256},
        {"incarnation": -1},
        {"incarnation": 1 << 63},
        {"received": -1},
        {"received": "1"},
        {"group": "x" * 2000},
        {"settings": {str(number): number for number in range(65)}},
        {"settings": {"a": [1]}},
        {"settings": None},
    ],
)
def test_a_field_of_a_wrong_kind_or_size_is_refused_with_one_line(change: dict[str, Any]) -> None:
    honest = fields(draw_hello(random.Random(1)))
    with pytest.raises(RemoteProtocolError, match="malformed hello") as caught:
        handshake.decode(Hello, msgspec.msgpack.encode(honest | change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(fields(draw_hello(random.Random(1)))))
def test_a_greeting_without_one_of_its_fields_is_refused(name: str) -> None:
    honest = fields(draw_hello(random.Random(1)))
    del honest[name]
    with pytest.raises(RemoteProtocolError, match=f"missing required field `{name}`"):
        handshake.decode(Hello, msgspec.msgpack.encode(honest))


def test_a_structure_without_end_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        handshake.decode(Hello, b"\x91" * 100_000)

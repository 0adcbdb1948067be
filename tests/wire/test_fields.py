"""The fields of messages and records: each comes back as it was written, and every length is checked before use."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.protocols.membership.views import MemberId
from cubecast.wire import fields as f

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=255)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
FIELDS: dict[str, tuple[f.Field, st.SearchStrategy[Any]]] = {
    "flag": (f.FLAG, st.booleans()),
    "number": (f.NUMBER, NUMBERS),
    "rank": (f.RANK, st.integers(0, (1 << 16) - 1)),
    "count": (f.COUNT, st.integers(0, (1 << 32) - 1)),
    "ballot": (f.BALLOT, st.tuples(st.integers(0, (1 << 32) - 1), st.integers(-1, (1 << 31) - 1))),
    "octets": (f.OCTETS, st.binary(max_size=500)),
    "name": (f.NAME, NAMES),
    "member": (f.MEMBER, st.builds(MemberId, NAMES, NUMBERS)),
    "bits": (f.BITS, st.integers(0, (1 << 1000) - 1)),
    "vector": (f.VECTOR, st.lists(st.integers(0, (1 << 32) - 1), max_size=20).map(tuple)),
    "several": (f.several(f.OCTETS), st.lists(st.binary(max_size=9), max_size=9).map(tuple)),
    "many": (f.many(f.RANK), st.lists(st.integers(0, 9), max_size=9).map(tuple)),
    "perhaps": (f.perhaps(f.NAME), st.none() | NAMES),
}


def read(field: f.Field, octets: bytes) -> Any:
    cursor = f.Cursor(octets)
    value = field.read(cursor)
    cursor.require_end()
    return value


@pytest.mark.parametrize("name", FIELDS)
@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_a_field_comes_back_as_it_was_written_and_not_when_it_was_cut(name: str, data: st.DataObject) -> None:
    field, values = FIELDS[name]
    value = data.draw(values)
    octets = field.write(value)
    assert read(field, octets) == value
    with pytest.raises(RemoteProtocolError):
        read(field, octets[: data.draw(st.integers(0, len(octets) - 1))])
    with pytest.raises(RemoteProtocolError, match="1 bytes follow"):
        read(field, octets + b"\0")


@pytest.mark.parametrize("name", FIELDS)
@given(octets=st.binary(max_size=60))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_a_field_or_refused(name: str, octets: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        read(FIELDS[name][0], octets)


def test_a_length_beyond_the_end_takes_no_memory() -> None:
    for field in (f.OCTETS, f.many(f.NUMBER), f.several(f.MEMBER), f.BITS):
        with pytest.raises(RemoteProtocolError, match="ends before its fields do"):
            read(field, b"\xff\xff\xff\xff" + bytes(8))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (f.NUMBER, 1 << 63),
        (f.RANK, -1),
        (f.RANK, 1 << 16),
        (f.COUNT, 1 << 32),
        (f.NAME, ""),
        (f.NAME, "x" * 256),
        (f.several(f.FLAG), (True,) * (1 << 16)),
    ],
)
def test_a_value_that_does_not_fit_is_not_written(field: f.Field, value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        field.write(value)


@pytest.mark.parametrize("octets", [b"\x02a b"[:3], b"\x01\n", b"\x01\x7f", b"\x02\xc3\xa4", b"\x00"])
def test_a_name_that_is_not_printable_ascii_is_refused(octets: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(f.NAME, octets)

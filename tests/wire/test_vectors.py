"""Vectors of numbers as bytes: they come back as they were, in the shortest form, and nothing else is read."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.wire.fields import Cursor
from cubecast.wire.vectors import ENTRY_MAX, SPARSE, read_vector, write_vector

ENTRIES = st.one_of(st.integers(0, 3), st.integers(0, 300), st.integers(0, 70_000), st.integers(0, ENTRY_MAX))


def read(octets: bytes) -> tuple[int, ...]:
    cursor = Cursor(octets)
    values = read_vector(cursor)
    cursor.require_end()
    return values


@given(st.integers(0, ENTRY_MAX), st.lists(ENTRIES, max_size=60), st.integers(0, 60), st.randoms())
@settings(deadline=None, max_examples=1000)
def test_a_vector_comes_back_and_takes_no_more_than_plain_numbers(base, differences, same, chance) -> None:  # type: ignore[no-untyped-def]
    values = [min(base + difference, ENTRY_MAX) for difference in differences] + [base] * same
    chance.shuffle(values)
    octets = write_vector(values)
    assert read(octets) == tuple(values)
    assert len(octets) <= 7 + 4 * len(values)


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=2000)
def test_any_bytes_are_a_vector_or_refused(octets: bytes) -> None:
    try:
        values = read(octets)
    except RemoteProtocolError:
        return
    assert all(0 <= value <= ENTRY_MAX for value in values)
    assert read(write_vector(values)) == values


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ((), 2),
        ((5,) * 1000, 7),
        ((5, 6) * 500, 7 + 1000),
        ((5, 300) * 500, 7 + 2000),
        ((5, 70_000, 6) * 300, 7 + 3600),
        ((5,) * 990 + (6,) * 10, 7 + 2 + 30),
    ],
)
def test_the_shortest_form_is_taken(values: tuple[int, ...], size: int) -> None:
    assert len(write_vector(values)) == size
    assert read(write_vector(values)) == values


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (struct.pack("<HBI", 2, 3, 0), "form 3"),
        (struct.pack("<HBI", 2, SPARSE, 0), "form 8"),
        (struct.pack("<HBI", 2, 1, 0) + b"\1", "ends before"),
        (struct.pack("<HBIBB", 2, 1, ENTRY_MAX, 0, 1), "above"),
        (struct.pack("<HBIHHHBB", 3, SPARSE | 1, 0, 2, 1, 1, 7, 8), "not in order"),
        (struct.pack("<HBIHHHBB", 3, SPARSE | 1, 0, 2, 2, 1, 7, 8), "not in order"),
        (struct.pack("<HBIHHB", 3, SPARSE | 1, 0, 1, 3, 7), "beyond its end"),
    ],
)
def test_a_bad_vector_is_refused(octets: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        read(octets)


def test_a_form_that_is_not_the_shortest_is_read() -> None:
    assert read(struct.pack("<HBIH", 3, SPARSE | 1, 9, 0)) == (9, 9, 9)
    assert read(struct.pack("<HBI3H", 3, 2, 9, 0, 0, 1)) == (9, 9, 10)


@pytest.mark.parametrize("values", [(-1, 0), (0, ENTRY_MAX + 1), (0,) * (1 << 16)])
def test_what_does_not_fit_is_not_written(values: tuple[int, ...]) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        write_vector(values)

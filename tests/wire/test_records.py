"""Records of a journal as bytes: each kind comes back, and whatever is not a record is refused."""

from __future__ import annotations

import contextlib
import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import JournalError
from cubecast.protocols.membership import records as r
from cubecast.wire.records import (
    KINDS,
    decode_records,
    delivered_head,
    encode_checkpoint,
    encode_kept,
    encode_record,
)
from tests.wire.frames import damage
from tests.wire.membership_messages import RECORDS, draw_record


def test_every_record_of_the_core_has_a_form() -> None:
    assert set(KINDS) == set(get_args(r.Record)) == set(RECORDS)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@given(seed=st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=60)
def test_a_record_comes_back_as_it_was_written(kind: type, seed: int) -> None:
    record = draw_record(random.Random(seed), kind)
    (read,) = decode_records([encode_record(record)])
    assert read == record
    assert type(read) is kind


@given(st.integers(0, 1 << 60), st.lists(st.binary(max_size=20), max_size=5))
@settings(deadline=None)
def test_a_state_in_pieces_is_the_same_record(seed: int, state: list[bytes]) -> None:
    chance = random.Random(seed)
    checkpoint, kept = draw_record(chance, r.Checkpoint), draw_record(chance, r.Kept)
    assert isinstance(checkpoint, r.Checkpoint)
    assert isinstance(kept, r.Kept)
    octets = b"".join(state)
    assert b"".join(encode_checkpoint(checkpoint, state)) == encode_record(checkpoint._replace(state=octets))
    assert b"".join(encode_kept(kept.view, state, kept.needed_by)) == encode_record(kept._replace(state=octets))


@given(st.integers(0, 1 << 60), st.integers(1, 5))
@settings(deadline=None)
def test_batches_are_read_in_order_however_they_were_joined(seed: int, size: int) -> None:
    chance = random.Random(seed)
    records = [draw_record(chance, chance.choice(list(RECORDS))) for _ in range(12)]
    encoded = [encode_record(record) for record in records]
    batches = [b"".join(encoded[at : at + size]) for at in range(0, len(encoded), size)]
    assert decode_records(batches) == records
    assert decode_records([]) == []
    assert decode_records([b""]) == []


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=2000)
def test_a_damaged_batch_is_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    batch = b"".join(encode_record(draw_record(chance, chance.choice(list(RECORDS)))) for _ in range(3))
    with contextlib.suppress(JournalError):
        decode_records([damage(chance, batch)])


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 20))
@settings(deadline=None, max_examples=300)
def test_a_record_that_was_cut_is_refused(seed: int, place: int) -> None:
    chance = random.Random(seed)
    octets = encode_record(draw_record(chance, chance.choice(list(RECORDS))))
    cut = 1 + place % (len(octets) - 1)
    with pytest.raises(JournalError, match="cannot be read"):
        decode_records([octets[:cut]])


def test_deliveries_are_written_without_copying_them() -> None:
    data = [b"first record", b"", b"third"]
    batch = delivered_head(sum(map(len, data))) + b"".join(data)
    assert batch == encode_record(r.Delivered(b"".join(data)))


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (b"\x01\0\0\0\x63", "unknown kind 99: it is of another version"),
        (b"\0\0\0\0", "cannot be read"),
        (b"\xff\xff\xff\xff", "cannot be read"),
        (b"\x0a\0\0\0\x02" + b"\1\0\0\0" + b"\0\0\0\0" + b"\0", "1 bytes follow the last field"),
    ],
)
def test_what_is_not_a_record_is_refused(batch: bytes, complaint: str) -> None:
    with pytest.raises(JournalError, match=complaint):
        decode_records([batch])

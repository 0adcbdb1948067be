"""The journal as bytes: what comes back, what is cut off as torn, and what is refused as damaged."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import JournalError, LocalProtocolError
from cubecast.wire import journal as j
from cubecast.wire.journal import (
    BATCH_HEADER_BYTES,
    CHECKPOINT,
    CREATED,
    FORMAT,
    MAGIC,
    MARKER,
    Contents,
    batch_checksum,
    encode_batch,
    encode_header,
    header_checksum,
    read_journal,
)

GROUP, MEMBER = "orders", "10.0.0.7:7000"
SECTORS = (512, 4096)


def build(
    payloads: Sequence[bytes], *, kind: int = CREATED, number: int = 7, first: int = 0
) -> tuple[bytes, list[int]]:
    """A journal, and where each batch begins and the last one ends."""
    data = encode_header(GROUP, MEMBER, kind=kind, first_sequence=first, journal_number=number)
    previous = header_checksum(data)
    begins = [len(data)]
    for sequence, payload in enumerate(payloads, first):
        batch = encode_batch(sequence, payload, journal_number=number, previous=previous)
        previous = batch_checksum(batch)
        data += batch
        begins.append(len(data))
    return data, begins


def read(data: bytes) -> Contents:
    return read_journal(data, group=GROUP, member=MEMBER)


def is_refused(data: bytes) -> bool:
    try:
        read(data)
    except JournalError:
        return True
    return False


def flip(data: bytes, bit: int) -> bytes:
    octets = bytearray(data)
    octets[bit // 8] ^= 1 << bit % 8
    return bytes(octets)


payload_lists = st.lists(st.binary(max_size=60), max_size=6)


@given(payload_lists, st.sampled_from([CREATED, CHECKPOINT]), st.integers(0, 1 << 40))
def test_batches_come_back_as_they_were_written(payloads: list[bytes], kind: int, first: int) -> None:
    if kind == CREATED:
        first = 0
    elif not payloads:
        return
    data, begins = build(payloads, kind=kind, first=first)
    contents = read(data)
    assert contents.batches == payloads
    assert (contents.end, contents.torn_bytes) == (len(data), 0)
    assert contents.next_sequence == first + len(payloads)
    assert contents.journal_number == 7
    assert contents.previous == (batch_checksum(data[begins[-2] :]) if payloads else header_checksum(data))


def test_a_journal_that_was_read_is_continued_with_the_next_batch() -> None:
    data, _ = build([b"one"])
    for payload in (b"two", b"three"):
        contents = read(data)
        data += encode_batch(
            contents.next_sequence, payload, journal_number=contents.journal_number, previous=contents.previous
        )
    assert data == build([b"one", b"two", b"three"])[0]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_a_payload_in_pieces_is_the_same_batch(pieces: list[bytes]) -> None:
    whole = encode_batch(3, b"".join(pieces), journal_number=1, previous=2)
    assert encode_batch(3, pieces, journal_number=1, previous=2) == whole


@given(payload_lists, st.data())
def test_a_cut_at_any_byte_leaves_a_prefix(payloads: list[bytes], draw: st.DataObject) -> None:
    data, begins = build(payloads)
    cut = draw.draw(st.integers(0, len(data)))
    contents = read(data[:cut])
    complete = sum(end <= cut for end in begins[1:])
    assert contents.batches == payloads[:complete]
    assert contents.next_sequence == complete
    assert contents.end == (begins[complete] if cut >= begins[0] else 0)
    assert contents.end + contents.torn_bytes == cut


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.data())
def test_a_cut_checkpoint_file_is_never_empty(payloads: list[bytes], draw: st.DataObject) -> None:
    """It was complete on the disk before it got its name: an empty one would let the member found a new group."""
    data, begins = build(payloads, kind=CHECKPOINT, first=9)
    cut = draw.draw(st.integers(11, len(data)))
    if cut < begins[1]:
        assert is_refused(data[:cut])
    else:
        assert read(data[:cut]).batches == payloads[: sum(end <= cut for end in begins[1:])]


@pytest.mark.parametrize("kind", [CREATED, CHECKPOINT])
def test_every_flipped_bit_before_the_last_batch_is_refused(kind: int) -> None:
    data, begins = build([b"first", b"", b"third" * 5, b"fourth", b"last"], kind=kind)
    assert [bit for bit in range(8 * begins[-2]) if not is_refused(flip(data, bit))] == []


def test_every_flipped_bit_before_a_torn_last_batch_is_refused() -> None:
    data, begins = build([b"first", b"second", b"third, of which the header is there"])
    torn = data[: begins[2] + BATCH_HEADER_BYTES]
    assert read(torn).batches == [b"first", b"second"]
    assert [bit for bit in range(8 * begins[2]) if not is_refused(flip(torn, bit))] == []


def test_every_flipped_bit_in_the_last_batch_leaves_the_others() -> None:
    payloads = [b"first", b"second", b"the last one"]
    data, begins = build(payloads)
    for bit in range(8 * begins[-2], 8 * len(data)):
        contents = read(flip(data, bit))
        assert contents.batches == payloads[:-1]
        assert (contents.end, contents.torn_bytes) == (begins[-2], len(data) - begins[-2])


@pytest.mark.parametrize("kind", [CREATED, CHECKPOINT])
def test_every_flipped_bit_of_a_single_batch_is_refused(kind: int) -> None:
    data, _ = build([b"the only one"], kind=kind)
    assert [bit for bit in range(8 * len(data)) if not is_refused(flip(data, bit))] == []


@given(st.lists(st.binary(max_size=200), min_size=2, max_size=6), st.data())
@settings(max_examples=300)
def test_several_flipped_bits_never_give_wrong_data(payloads: list[bytes], draw: st.DataObject) -> None:
    data, _ = build(payloads)
    for bit in draw.draw(st.lists(st.integers(0, 8 * len(data) - 1), min_size=1, max_size=8)):
        data = flip(data, bit)
    if not is_refused(data):
        batches = read(data).batches
        assert batches
        assert batches == payloads[: len(batches)]


@pytest.mark.parametrize("sector", SECTORS)
def test_every_zeroed_sector_before_the_last_batch_is_refused(sector: int) -> None:
    chance = random.Random(sector)
    data, begins = build([chance.randbytes(chance.randrange(3 * sector)) for _ in range(12)])
    for at in range(0, begins[-2] - sector + 1, sector):
        assert is_refused(data[:at] + bytes(sector) + data[at + sector :]), at


def test_a_zeroed_end_is_torn() -> None:
    data, begins = build([b"one", b"two" * 500])
    for tail in (bytes(4096), data[begins[1] : begins[1] + 512] + bytes(4096)):
        contents = read(data[: begins[1]] + tail)
        assert (contents.batches, contents.end, contents.torn_bytes) == ([b"one"], begins[1], len(tail))


@pytest.mark.parametrize("kind", [CREATED, CHECKPOINT])
def test_swapped_batches_are_refused(kind: int) -> None:
    data, begins = build([bytes([65 + n]) * 20 for n in range(5)], kind=kind)
    batches = [data[begin:end] for begin, end in itertools.pairwise(begins)]
    for one in range(5):
        for other in range(one + 1, 5):
            order = list(range(5))
            order[one], order[other] = other, one
            assert is_refused(data[: begins[0]] + b"".join(batches[n] for n in order)), order


@pytest.mark.parametrize("kind", [CREATED, CHECKPOINT])
def test_a_missing_batch_is_refused(kind: int) -> None:
    data, begins = build([bytes([65 + n]) * 20 for n in range(4)], kind=kind)
    for lost in range(3):
        assert is_refused(data[: begins[lost]] + data[begins[lost + 1] :]), lost


def test_bytes_put_in_between_are_refused() -> None:
    data, begins = build([b"one", b"two", b"three"])
    for at in begins[:-1]:
        assert is_refused(data[:at] + bytes(512) + data[at:]), at


def test_a_repeated_batch_is_not_read_twice() -> None:
    data, begins = build([b"one", b"two"])
    assert read(data + data[begins[1] :]).batches == [b"one", b"two"]


@pytest.mark.parametrize("sector", SECTORS)
@pytest.mark.parametrize("number", [7, 8])
def test_stale_sectors_of_an_older_file_are_refused(sector: int, number: int) -> None:
    """Both files hold batches of the same lengths at the same offsets: of one journal, or of a deleted one."""
    chance = random.Random(sector)
    payloads = [bytes([n]) * chance.randrange(2 * sector) for n in range(12)]
    new, begins = build(payloads, kind=CHECKPOINT, first=12)
    old, _ = build(payloads, number=number)
    for at in range(0, begins[-2] - sector + 1, sector):
        stale = new[:at] + old[at : at + sector] + new[at + sector :]
        assert stale == new or is_refused(stale), at


def test_a_stale_beginning_that_claims_all_the_rest_is_refused() -> None:
    """The first sector is that of an older file of this journal, which began with a long batch."""
    new, _ = build([b"checkpoint" * 100, b"one", b"two"], kind=CHECKPOINT, first=1)
    old, _ = build([bytes(100_000)])
    assert is_refused(old[:512] + new[512:])


def test_the_first_batch_of_an_older_file_is_refused() -> None:
    new, begins = build([b"new"], kind=CHECKPOINT, first=9)
    old, _ = build([b"old"], kind=CHECKPOINT, first=5)
    assert is_refused(new[: begins[0]] + old[begins[0] :])


def test_stale_batches_of_an_older_file_behind_the_end_are_torn() -> None:
    new, begins = build([b"one", b"two"], kind=CHECKPOINT, first=12)
    old, _ = build([b"One", b"Two", b"Three", b"Four"])
    contents = read(new + old[begins[2] :])
    assert (contents.batches, contents.end) == ([b"one", b"two"], len(new))
    assert contents.torn_bytes == len(old) - len(new)


def test_a_batch_that_was_cut_off_does_not_follow_the_one_in_its_place() -> None:
    """The end was torn and cut off, the file continued, and a sector of the old end appears again."""
    before, begins = build([b"one", b"two", b"three"])
    after, _ = build([b"one", b"TWO"])
    assert len(after) == begins[2]
    assert read(after + before[begins[2] :]).batches == [b"one", b"TWO"]


@pytest.mark.parametrize(("sequence", "number"), [(1, 8), (0, 7), (3, 7)])
def test_a_batch_of_another_number_is_not_read(sequence: int, number: int) -> None:
    data, begins = build([b"one"])
    follower = encode_batch(sequence, b"two", journal_number=number, previous=batch_checksum(data[begins[0] :]))
    if sequence > 1:
        assert is_refused(data + follower)
    else:
        assert read(data + follower).batches == [b"one"]


def test_a_short_payload_of_the_right_checksum_is_torn() -> None:
    payload = b"\x9d\x0a\xd9\x6d"
    assert zlib.crc32(payload) == zlib.crc32(b"")
    data, begins = build([b"one", payload])
    assert read(data[:-4]).batches == [b"one"]
    assert read(data[:-4]).end == begins[1]


def test_a_payload_that_looks_like_a_later_batch_is_no_damage() -> None:
    other, begins = build([b"zero", b"one", b"two", b"three"], number=8)
    data, ends = build([b"first", other[begins[2] :] + MARKER * 20 + b"the end"])
    contents = read(data[:-3])
    assert (contents.batches, contents.end) == ([b"first"], ends[1])


def test_the_offset_of_the_damage_is_named() -> None:
    data, begins = build([b"one", b"two", b"three"])
    with pytest.raises(
        JournalError, match=rf"damaged at byte {begins[1]}: .*batch 2 is at byte {begins[2]}: move it away"
    ):
        read(flip(data, 8 * begins[1] + 100))


def test_a_first_batch_that_ends_early_is_torn_and_a_bad_one_is_damage() -> None:
    data, begins = build([b"the only one"])
    contents = read(data[:-1])
    assert (contents.batches, contents.end, contents.next_sequence) == ([], begins[0], 0)
    with pytest.raises(JournalError, match=f"damaged at byte {begins[0]}: its first batch"):
        read(flip(data, 8 * len(data) - 1))
    with pytest.raises(JournalError, match="its first batch"):
        read(data[: begins[0]] + bytes(BATCH_HEADER_BYTES))
    with pytest.raises(JournalError, match="its first batch"):
        read(flip(data[:-1], 8 * begins[0] + 100))


@pytest.mark.parametrize("cut", range(len(encode_header(GROUP, MEMBER))))
def test_the_beginning_of_a_header_is_an_empty_journal(cut: int) -> None:
    header = encode_header(GROUP, MEMBER, journal_number=(1 << 64) - 1)
    assert read(header[:cut]) == Contents([], 0, 0, cut, 0, 0)


@pytest.mark.parametrize("data", [b"x", bytes(100), b"cubecast log   3", MAGIC[:4] + b"-"])
def test_what_does_not_begin_like_a_journal_is_refused(data: bytes) -> None:
    with pytest.raises(JournalError, match="not a journal, it begins with"):
        read(data)


def test_a_short_header_with_a_wrong_field_is_refused() -> None:
    assert is_refused(MAGIC + b"\x01\x00\x07")


def test_a_torn_header_of_another_member_is_refused() -> None:
    header = encode_header(GROUP, "10.0.0.8:7000")
    assert is_refused(header[:-3])


def test_a_journal_of_another_group_is_refused() -> None:
    with pytest.raises(JournalError, match="belongs to group 'orders', not to 'bills': name another"):
        read_journal(build([b"one"])[0], group="bills", member=MEMBER)


def test_a_journal_of_another_member_is_refused() -> None:
    with pytest.raises(JournalError, match=r"belongs to member '10.0.0.7:7000', not to '10.0.0.8:7000': name another"):
        read_journal(build([b"one"])[0], group=GROUP, member="10.0.0.8:7000")


def test_the_border_between_group_and_member_counts() -> None:
    with pytest.raises(JournalError, match="belongs to group"):
        read_journal(build([b"one"])[0], group=GROUP + MEMBER[:1], member=MEMBER[1:])


def test_a_journal_of_another_version_is_refused() -> None:
    data = bytearray(build([b"one"])[0])
    struct.pack_into("<H", data, len(MAGIC), FORMAT + 1)
    with pytest.raises(JournalError, match="format 2, this program reads format 1: use the version"):
        read(bytes(data))


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JournalError, match="65536 bytes does not fit"):
        encode_header("g" * 65536, MEMBER)
    monkeypatch.setattr(j, "PAYLOAD_BYTES_MAX", 10)
    with pytest.raises(JournalError, match="11 bytes does not fit"):
        encode_batch(0, [b"12345", b"678901"], journal_number=0, previous=0)


def test_an_error_of_the_journal_is_the_callers_to_fix() -> None:
    assert issubclass(JournalError, LocalProtocolError)

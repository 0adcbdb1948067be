"""The journal of one member as bytes: a file header, then batches, each with its sequence number and checksums.

File header, once:

| bytes | field   | meaning                                                                                        |
|-------|---------|------------------------------------------------------------------------------------------------|
| 8     | magic   | `MAGIC`: this is a journal                                                                     |
| 2     | version | `FORMAT`                                                                                       |
| 2     | kind    | `CREATED`: was empty at first; `CHECKPOINT`: was put in place together with its first batch    |
| 2     | length  | bytes of the group name                                                                        |
| 2     | length  | bytes of the member name                                                                       |
| 8     | first   | sequence number of the first batch; 0 in a `CREATED` file                                      |
| 8     | number  | *journal number*: random, chosen when the journal is created, the same in all its checkpoints  |
| ..    | group   | name of the group, UTF-8                                                                       |
| ..    | member  | name of the member (its advertised address), UTF-8                                             |
| 4     | check   | CRC-32 of all fields above: the *file checksum*                                                |

Batch, any number of them:

| bytes | field    | meaning                                                                                       |
|-------|----------|-----------------------------------------------------------------------------------------------|
| 4     | marker   | `MARKER`                                                                                      |
| 8     | number   | the journal number                                                                            |
| 8     | sequence | one more than the batch before                                                                |
| 4     | length   | bytes of the payload                                                                          |
| 4     | previous | *batch checksum* of the batch before; the file checksum in the first batch of a file          |
| 4     | payload  | CRC-32 of the payload                                                                         |
| 4     | check    | CRC-32 of the fields above: the *batch checksum*                                              |
| ..    | payload  | opaque                                                                                        |

All numbers are little-endian. The batch header has a checksum of its own, so it is found at any offset. Sequence
numbers continue from one file to the next, so the batches of an older file (stale sectors) have lower numbers.
`previous`
separates a batch from one of the same number that was cut off as torn. The journal number separates a batch from a
payload that contains batches of another journal, perhaps sent to make a torn write look like damage.

What is a torn write, and what is damage? A write that a crash interrupted is torn: nobody acted on it, and it may be
cut off. Damage concerns batches that this member may have acted on: the journal is refused.

| the data                                                                                    | is             |
|---------------------------------------------------------------------------------------------|----------------|
| nothing, or the beginning of a `CREATED` header                                             | an empty one   |
| header wrong: magic, version, group, member, checksum                                       | refused        |
| bad batch, and a good header of a later batch anywhere after it (*)                         | damage         |
| bad batch, not the first, nothing good after it                                             | torn           |
| bad first batch of a `CREATED` file whose bytes end early: header cut, or payload too short | torn           |
| bad first batch of a `CREATED` file, all bytes present                                      | damage         |
| bad, short or missing first batch of a `CHECKPOINT` file                                    | damage         |

(*) Within the payload of a batch whose header is good, headers with another journal number do not count.

A last batch whose bytes are all present but whose checksum is wrong may be torn, because a disk may write the sectors
of one write in any order. It may be damage too; the two look the same. It counts as torn, and the caller keeps a copy.
The first batch is the exception: without it the journal is empty, and the member would found a new group. For the same
reason a `CHECKPOINT` file, which is complete on the disk before it gets its name, never counts as empty. The
downside of the rule: several batches that reach the disk out of order, a later one complete and an earlier one not, are
refused as damage although a power failure caused them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from cubecast.errors import JournalError

FORMAT = 1
MAGIC = b"\x93ccjrnl\n"
MARKER = b"\xb5\x1eBa"
CREATED, CHECKPOINT = range(2)
"""Kinds of file: one that began empty, and one that began with a checkpoint."""

_FILE = struct.Struct("<8sHHHHQQ")
_FILE_KNOWN_BYTES = _FILE.size - 8
"""Bytes of the file header before the journal number."""
_CHECK = struct.Struct("<I")
_BATCH = struct.Struct("<4sQQIII")
BATCH_HEADER_BYTES = _BATCH.size + _CHECK.size
NAME_BYTES_MAX = (1 << 16) - 1
PAYLOAD_BYTES_MAX = (1 << 32) - 1

_REMEDY = "move it away and let the member join again"


class Contents(NamedTuple):
    """The contents of a journal, and the position of the next batch."""

    batches: list[bytes]
    """The payloads, oldest first."""
    end: int
    """Bytes of the good part. 0: there is no file header yet."""
    next_sequence: int
    torn_bytes: int
    """Bytes after the good part, to be cut off."""
    journal_number: int
    previous: int
    """Both for the next `encode_batch`."""


class _FileHeader(NamedTuple):
    kind: int
    first_sequence: int
    journal_number: int
    checksum: int
    end: int


class _BatchHeader(NamedTuple):
    journal_number: int
    sequence: int
    length: int
    previous: int
    payload_checksum: int
    checksum: int


def encode_header(
    group: str, member: str, *, kind: int = CREATED, first_sequence: int = 0, journal_number: int = 0
) -> bytes:
    """The file header; `journal_number` is a random number of 64 bits, different for every journal."""
    group_name, member_name = group.encode(), member.encode()
    for name in (group_name, member_name):
        if len(name) > NAME_BYTES_MAX:
            raise JournalError(f"a name of {len(name)} bytes does not fit in a journal: {NAME_BYTES_MAX} at most")
    lengths = len(group_name), len(member_name)
    fields = _FILE.pack(MAGIC, FORMAT, kind, *lengths, first_sequence, journal_number) + group_name + member_name
    return fields + _CHECK.pack(zlib.crc32(fields))


def header_checksum(header: bytes) -> int:
    """The file checksum of a header that `encode_header` made."""
    return int(_CHECK.unpack_from(header, len(header) - _CHECK.size)[0])


def encode_batch(sequence: int, payload: bytes | Sequence[bytes], *, journal_number: int, previous: int) -> bytes:
    """One batch; `previous` is the checksum of the batch before, the file checksum for the first one of a file."""
    pieces = (payload,) if isinstance(payload, bytes) else payload
    length = checksum = 0
    for piece in pieces:
        length += len(piece)
        checksum = zlib.crc32(piece, checksum)
    header = encode_batch_header(sequence, length, checksum, journal_number=journal_number, previous=previous)
    return b"".join((header, *pieces))


def encode_batch_header(sequence: int, length: int, checksum: int, *, journal_number: int, previous: int) -> bytes:
    """The header before a payload of that length and checksum."""
    if length > PAYLOAD_BYTES_MAX:
        raise JournalError(f"a batch of {length} bytes does not fit in a journal: {PAYLOAD_BYTES_MAX} at most")
    fields = _BATCH.pack(MARKER, journal_number, sequence, length, previous, checksum)
    return fields + _CHECK.pack(zlib.crc32(fields))


def batch_checksum(batch: bytes) -> int:
    """The checksum of a batch that `encode_batch` made: `previous` of the next one."""
    return int(_CHECK.unpack_from(batch, _BATCH.size)[0])


def read_journal(data: bytes, *, group: str, member: str) -> Contents:
    """The batches of a journal; JournalError if it is damaged or not that of this member."""
    if _is_torn_header(data, group, member):
        return Contents([], 0, 0, len(data), 0, 0)
    file = _read_header(data, group, member)
    at, sequence, previous = file.end, file.first_sequence, file.checksum
    batches: list[bytes] = []
    while (header := _header_at(data, at)) is not None:
        payload = data[at + BATCH_HEADER_BYTES : at + BATCH_HEADER_BYTES + header.length]
        if header[:2] != (file.journal_number, sequence) or header.previous != previous:
            header = None
        if header is None or len(payload) != header.length or zlib.crc32(payload) != header.payload_checksum:
            break
        batches.append(payload)
        at += BATCH_HEADER_BYTES + header.length
        sequence, previous = sequence + 1, header.checksum
    _require_no_later(data, at, sequence, file.journal_number, header)
    if not batches:
        _require_empty(data, at, file.kind, header)
    return Contents(batches, at, sequence, len(data) - at, file.journal_number, previous)


def _is_torn_header(data: bytes, group: str, member: str) -> bool:
    """Is this an incomplete header of a newly created file?"""
    number = _FILE.unpack_from(data)[-1] if len(data) >= _FILE.size else 0
    header = encode_header(group, member, journal_number=number)
    comparable = len(data) if len(data) >= _FILE.size else min(len(data), _FILE_KNOWN_BYTES)
    return len(data) < len(header) and data[:comparable] == header[:comparable]


def _read_header(data: bytes, group: str, member: str) -> _FileHeader:
    """The file header, if it is that of this member."""
    if not data.startswith(MAGIC):
        raise JournalError(f"not a journal, it begins with {data[: len(MAGIC)]!r}: {_REMEDY}, or name another file")
    if len(data) < _FILE.size:
        raise JournalError(f"the journal is damaged at byte 0, the file header: {_REMEDY}")
    _, version, kind, group_bytes, member_bytes, first_sequence, journal_number = _FILE.unpack_from(data)
    if version != FORMAT:
        raise JournalError(
            f"the journal has format {version}, this program reads format {FORMAT}: "
            "use the version of cubecast that wrote it, or name another file"
        )
    names_end = _FILE.size + group_bytes + member_bytes
    end = names_end + _CHECK.size
    if len(data) < end or header_checksum(data[:end]) != zlib.crc32(data[:names_end]):
        raise JournalError(f"the journal is damaged at byte 0, the file header: {_REMEDY}")
    group_found = data[_FILE.size : _FILE.size + group_bytes].decode(errors="replace")
    member_found = data[_FILE.size + group_bytes : names_end].decode(errors="replace")
    if group_found != group:
        raise JournalError(
            f"the journal belongs to group {group_found!r}, not to {group!r}: name another file or that group"
        )
    if member_found != member:
        raise JournalError(
            f"the journal belongs to member {member_found!r}, not to {member!r}: name another file or that member"
        )
    return _FileHeader(kind, first_sequence, journal_number, header_checksum(data[:end]), end)


def _header_at(data: bytes, at: int) -> _BatchHeader | None:
    """The valid batch header at this offset, or None."""
    if len(data) - at < BATCH_HEADER_BYTES:
        return None
    marker, number, sequence, length, previous, payload_checksum = _BATCH.unpack_from(data, at)
    (checksum,) = _CHECK.unpack_from(data, at + _BATCH.size)
    if marker != MARKER or checksum != zlib.crc32(data[at : at + _BATCH.size]):
        return None
    return _BatchHeader(number, sequence, length, previous, payload_checksum, checksum)


def _require_no_later(
    data: bytes, at: int, sequence: int, journal_number: int, bad_header: _BatchHeader | None
) -> None:
    """Raise an error if a later batch follows the bad one at this offset: the journal is damaged in the middle.

    `bad_header` is the header of the bad batch, if that is good.
    """
    payload_end = at if bad_header is None else at + BATCH_HEADER_BYTES + bad_header.length
    found = data.find(MARKER, at)
    while found >= 0:
        header = _header_at(data, found)
        if (
            header is not None
            and (header.sequence > sequence or (header.sequence == sequence and found > at))
            and (header.journal_number == journal_number or found >= payload_end)
        ):
            raise JournalError(
                f"the journal is damaged at byte {at}: batch {sequence} is not there, "
                f"but batch {header.sequence} is at byte {found}: {_REMEDY}"
            )
        found = data.find(MARKER, found + 1)


def _require_empty(data: bytes, at: int, kind: int, bad_header: _BatchHeader | None) -> None:
    """Raise an error unless a journal without a good batch ends within its first one: otherwise it is damaged."""
    is_header_short = len(data) - at < BATCH_HEADER_BYTES
    is_payload_short = bad_header is not None and len(data) - at - BATCH_HEADER_BYTES < bad_header.length
    if kind == CHECKPOINT or not (is_header_short or is_payload_short):
        raise JournalError(f"the journal is damaged at byte {at}: its first batch is bad: {_REMEDY}")

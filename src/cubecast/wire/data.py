"""Batches of data messages: the body of a DATA frame is one record after another.

| bytes       | field    | meaning                                                                            |
|-------------|----------|------------------------------------------------------------------------------------|
| 1           | kind     | the data core's kind of message                                                    |
| 1           | spare    | 0                                                                                  |
| 2           | numbers  | how many numbers follow the head (an array R, a vector stamp)                      |
| 4           | sender   | the sender; for a control message of the core: the sender it concerns, or 2^32 − 1 |
| 4           | sequence | its sequence number; 0 for a control message of the core                           |
| 4           | length   | bytes of the payload                                                               |
| 4 · numbers |          | the numbers                                                                        |
| length      |          | the payload                                                                        |

A record is the same on every link, so a member that forwards a message copies bytes (but for the last number, where it
changes at each hop: `with_last_number`). `decode_batch` fills a table with one row per record, in compiled code because
it runs for every message that arrives.
"""

import struct
from typing import Any, NamedTuple

import numpy as np

from cubecast.errors import RemoteProtocolError
from cubecast.jit.decorators import entry_point

KIND, SENDER, SEQUENCE, START, NUMBERS, PAYLOAD, END = range(7)
"""Columns of a table of records; a record is at START … END−1 of its batch, its payload begins at PAYLOAD."""
COLUMNS = 7

_HEAD = struct.Struct("<BBHIII")
HEAD_BYTES = _HEAD.size
NO_SENDER = 0xFFFFFFFF
SEQUENCE_MAX = (1 << 31) - 1
RECORDS_MAX = 4096
"""Records in one batch. A sender starts a new frame before that."""

KINDS_MAX = 16
_TRUNCATED, _TOO_MANY, _MALFORMED, _NUMBERS, _SENDER, _SEQUENCE, _PAYLOAD = range(-7, 0)
_REASONS = {
    _TRUNCATED: "a data record runs beyond its frame",
    _TOO_MANY: f"more than {RECORDS_MAX} data records in a frame",
    _MALFORMED: "a data record of a kind that does not exist",
    _NUMBERS: "a data record with a wrong count of numbers",
    _SENDER: "a data record of a sender that does not exist",
    _SEQUENCE: "a data record with an impossible sequence number",
    _PAYLOAD: "a payload above the limit",
}


class Form(NamedTuple):
    """The format of the records of a group."""

    members: int
    stamp_numbers: int
    """How many numbers a message of the application carries."""
    own_numbers: int
    """How many numbers a control message of the core carries, if it has any."""
    payload_bytes_max: int


def new_table() -> np.ndarray:
    """A table for the records of one batch."""
    return np.zeros((RECORDS_MAX, COLUMNS), np.int64)


def encode_record(kind: int, sender: int, sequence: int, payload: bytes, numbers: bytes = b"") -> bytes:
    """Encode one message; `numbers` are little-endian 32-bit numbers already."""
    head = _HEAD.pack(kind, 0, len(numbers) // 4, sender & NO_SENDER, sequence, len(payload))
    return b"".join((head, numbers, payload)) if numbers else head + payload


def payload_of(record: bytes) -> bytes:
    """The payload of a valid encoded record."""
    return record[HEAD_BYTES + 4 * (record[2] | record[3] << 8) :]


def with_last_number(record: bytes, numbers: bytes) -> bytes:
    """The record with the last of these numbers in place of the last of its own."""
    end = HEAD_BYTES + len(numbers)
    return b"".join((record[: end - 4], numbers[-4:], record[end:]))


def decode_batch(body: bytes, table: np.ndarray, form: Form) -> int:
    """Fill the table and return the number of records; raise an error if the batch is invalid."""
    count = _walk(body, table, *form)
    if count < 0:
        raise RemoteProtocolError(_REASONS[count])
    return int(count)


def decode_some(body: bytes, table: np.ndarray, form: Form) -> int:
    """Fill the table from the beginning of a long run of records; return the number, at least one."""
    count = _walk(body, table, *form)
    if count == _TOO_MANY:
        return len(table)
    if count <= 0:
        raise RemoteProtocolError(_REASONS[count] if count else "no data record")
    return int(count)


@entry_point
def _walk(body: Any, table: Any, members: int, stamp_numbers: int, own_numbers: int, payload_bytes_max: int) -> Any:
    """Fill the table. Every length is compared with the rest before use: compiled code does not check bounds."""
    at, end, count = np.int64(0), np.int64(len(body)), np.int64(0)
    while at < end:
        if end - at < HEAD_BYTES:
            return _TRUNCATED
        if count >= table.shape[0]:
            return _TOO_MANY
        fault = _read_head(body, at, table, count, members, stamp_numbers, own_numbers, payload_bytes_max)
        if fault != 0:
            return fault
        if table[count, END] > end:
            return _TRUNCATED
        at = table[count, END]
        count += 1
    return count


@entry_point
def _read_head(
    body: Any,
    at: Any,
    table: Any,
    count: Any,
    members: int,
    stamp_numbers: int,
    own_numbers: int,
    payload_bytes_max: int,
) -> Any:
    kind, numbers = np.int64(body[at]), np.int64(body[at + 2]) | np.int64(body[at + 3]) << 8
    sender, sequence, length = _number(body, at + 4), _number(body, at + 8), _number(body, at + 12)
    if kind >= KINDS_MAX or body[at + 1] != 0:
        return _MALFORMED
    own = sequence == 0
    if numbers != stamp_numbers and not (own and (numbers == 0 or numbers == own_numbers)):
        return _NUMBERS
    if sender == NO_SENDER:
        if not own:
            return _SEQUENCE
    elif sender >= members:
        return _SENDER
    if sequence > SEQUENCE_MAX:
        return _SEQUENCE
    if length > payload_bytes_max:
        return _PAYLOAD
    table[count, KIND] = kind
    table[count, SENDER] = -1 if sender == NO_SENDER else sender
    table[count, SEQUENCE] = sequence
    table[count, START] = at
    table[count, NUMBERS] = numbers
    table[count, PAYLOAD] = at + HEAD_BYTES + 4 * numbers
    table[count, END] = at + HEAD_BYTES + 4 * numbers + length
    return np.int64(0)


@entry_point
def _number(body: Any, at: Any) -> Any:
    return (
        np.int64(body[at]) | np.int64(body[at + 1]) << 8 | np.int64(body[at + 2]) << 16 | np.int64(body[at + 3]) << 24
    )

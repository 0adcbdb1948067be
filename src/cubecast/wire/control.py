"""Control messages of stability protocols and failure detectors, one per frame.

| bytes       | field     | meaning                                     |
|-------------|-----------|---------------------------------------------|
| 1           | kind      | the core's kind of message                  |
| 1           | spare     | 0                                           |
| 2           | words     | 64-bit words of the bitmap                  |
| 4           | numbers   | number of numbers                           |
| 4           | field 1   | further data of the kind of message         |
| 4           | field 2   |                                             |
| 4           | sender    | 2^32 − 1 for none                           |
| 4           | sequence  |                                             |
| 8           | round     | −1 for none                                 |
| 4 · numbers |           | the numbers                                 |
| 8 · words   |           | the bitmap                                  |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.errors import RemoteProtocolError

_HEAD = struct.Struct("<BBHIIIiiq")
KINDS_MAX = 16
ROUND_MAX = 1 << 40
_FIELD_MAX = (1 << 31) - 1


class Control(NamedTuple):
    """One control message."""

    kind: int
    round_number: int
    field_1: int
    field_2: int
    sender: int
    sequence: int
    numbers: npt.NDArray[np.int32]
    bits: npt.NDArray[np.uint64]


def encode_control(message: Control) -> bytes:
    """Encode a control message."""
    head = _HEAD.pack(
        message.kind,
        0,
        len(message.bits),
        len(message.numbers),
        message.field_1,
        message.field_2,
        message.sender,
        message.sequence,
        message.round_number,
    )
    return head + message.numbers.astype("<i4", copy=False).tobytes() + message.bits.astype("<u8", copy=False).tobytes()


def decode_control(body: bytes, *, numbers: int, words: int) -> Control:
    """Decode a control message with exactly this many numbers and bitmap words."""
    if len(body) != _HEAD.size + 4 * numbers + 8 * words:
        raise RemoteProtocolError(
            f"a control message of {len(body)} bytes; this group's have {_HEAD.size + 4 * numbers + 8 * words}"
        )
    kind, spare, has_words, has_numbers, field_1, field_2, sender, sequence, round_number = _HEAD.unpack_from(body)
    if (has_numbers, has_words, spare) != (numbers, words, 0) or kind >= KINDS_MAX:
        raise RemoteProtocolError(f"a malformed control message of kind {kind}")
    if not -1 <= round_number <= ROUND_MAX or sender < -1 or sequence < 0:
        raise RemoteProtocolError(f"a control message of round {round_number}, sender {sender}: impossible")
    if field_1 > _FIELD_MAX or field_2 > _FIELD_MAX:
        raise RemoteProtocolError(f"a control message with fields {field_1} and {field_2}: at most {_FIELD_MAX}")
    return Control(
        kind=kind,
        round_number=round_number,
        field_1=field_1,
        field_2=field_2,
        sender=sender,
        sequence=sequence,
        numbers=np.frombuffer(body, "<i4", numbers, _HEAD.size),
        bits=np.frombuffer(body, "<u8", words, _HEAD.size + 4 * numbers),
    )

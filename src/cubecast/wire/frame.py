"""Frames: what a link carries. A header of 24 bytes, then the body.

| bytes | field   | meaning                                                                                  |
|-------|---------|------------------------------------------------------------------------------------------|
| 4     | length  | bytes of the body                                                                        |
| 1     | version | of this format; another one is refused                                                   |
| 1     | kind    | what the body is                                                                         |
| 2     | spare   | 0                                                                                        |
| 8     | number  | place of the frame on its link, counted from 1; 0 for a frame that may be lost           |
| 8     | view    | the tag of the view that the body belongs to; 0 for none                                 |

All numbers are little-endian. `FrameReader` takes bytes in pieces of any size and returns whole frames; anything else
raises `RemoteProtocolError`. It never holds more than one frame's limit and one piece.

**Versions.** A member speaks every version from `OLDEST` to `VERSION`. Both ends name their range in the handshake,
whose frames have version `OLDEST`, and use the highest version that both speak; without one they refuse each other. A
release may raise `VERSION` by one and must keep the one before, so that a group can be upgraded member by member.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from cubecast.errors import RemoteProtocolError

OLDEST = 1
VERSION = 1
HELLO, WELCOME, REFUSE, DATA, CONTROL, FAILURE, ACK, MEMBERSHIP = range(1, 9)
KINDS = frozenset(range(1, 9))
NUMBERED = frozenset({DATA, CONTROL, MEMBERSHIP})
"""Numbered kinds: they are sent again after a reconnection until the other side has received them."""

_HEADER = struct.Struct("<IBBHQQ")
HEADER_BYTES = _HEADER.size
_NUMBER = struct.Struct("<Q")
_NUMBER_AT = 8
_KIND_AT = 5
NUMBER_MAX = (1 << 63) - 1


class Frame(NamedTuple):
    """One complete frame."""

    kind: int
    number: int
    view: int
    body: bytes


def encode_frame(kind: int, number: int, view: int, body: bytes, version: int = OLDEST) -> bytes:
    """Encode a frame."""
    return _HEADER.pack(len(body), version, kind, 0, number, view) + body


def renumber(data: bytes, number: int) -> bytes:
    """The same frame with another number."""
    return data[:_NUMBER_AT] + _NUMBER.pack(number) + data[_NUMBER_AT + _NUMBER.size :]


def kind_of(data: bytes) -> int:
    """The kind of an encoded frame."""
    return data[_KIND_AT]


class FrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self, body_bytes_max: int) -> None:
        """Reject bodies of more than `body_bytes_max` bytes."""
        self.body_bytes_max = body_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes, one by one: the limit may be changed between two of them."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted():
                return
            data = bytes(self._rest)
            self._rest.clear()
        at, end = 0, len(data)
        while end - at >= HEADER_BYTES:
            length, kind, number, view = _read_header(data, at, self.body_bytes_max)
            stop = at + HEADER_BYTES + length
            if stop > end:
                break
            yield Frame(kind, number, view, data[at + HEADER_BYTES : stop])
            at = stop
        if at < end:
            self._rest += memoryview(data)[at:]

    def _wanted(self) -> int:
        """How many bytes the first frame takes, as far as is known."""
        if len(self._rest) < HEADER_BYTES:
            return HEADER_BYTES
        return HEADER_BYTES + _read_header(self._rest, 0, self.body_bytes_max)[0]


def _read_header(data: bytes | bytearray, at: int, body_bytes_max: int) -> tuple[int, int, int, int]:
    """Read and validate one header: length, kind, number, view."""
    length, version, kind, spare, number, view = _HEADER.unpack_from(data, at)
    if not OLDEST <= version <= VERSION:
        raise RemoteProtocolError(
            f"it sent a frame of version {version}; this member speaks versions {OLDEST} to {VERSION}"
        )
    if kind not in KINDS or spare != 0:
        raise RemoteProtocolError(f"it sent a frame of unknown kind {kind} (spare {spare})")
    if length > body_bytes_max:
        raise RemoteProtocolError(f"it sent a frame of {length} bytes; the limit is {body_bytes_max}")
    if number > NUMBER_MAX or (number > 0) != (kind in NUMBERED):
        raise RemoteProtocolError(f"it sent frame number {number} on a frame of kind {kind}")
    return length, kind, number, view

"""Frames: what a link carries. A header of 16 bytes, then the body.

| bytes | field   | meaning                                                                                  |
|-------|---------|------------------------------------------------------------------------------------------|
| 4     | length  | bytes of the body                                                                        |
| 1     | version | of this format; another one is refused                                                   |
| 1     | kind    | what the body is                                                                         |
| 2     | spare   | 0                                                                                        |
| 8     | number  | place of the frame on its link, counted from 1; 0 for a frame that may be lost           |

All numbers are little-endian. `FrameReader` takes bytes in whatever pieces they come and gives whole frames; whatever
is not one raises `RemoteProtocolError`. It never holds more than one frame's limit and one piece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from cubecast.errors import RemoteProtocolError

VERSION = 1
HELLO, WELCOME, REFUSE, DATA, CONTROL, FAILURE, ACK, MEMBERSHIP = range(1, 9)
KINDS = frozenset(range(1, 9))
NUMBERED = frozenset({DATA, CONTROL})
"""Kinds that count on their link: they are sent again after a reconnection until the other side has them."""

_HEADER = struct.Struct("<IBBHQ")
HEADER_BYTES = _HEADER.size
NUMBER_MAX = (1 << 63) - 1


class Frame(NamedTuple):
    """One whole frame."""

    kind: int
    number: int
    body: bytes


def encode_frame(kind: int, number: int, body: bytes) -> bytes:
    """Give the bytes of a frame."""
    return _HEADER.pack(len(body), VERSION, kind, 0, number) + body


def encode_header(kind: int, number: int, length: int) -> bytes:
    """Give the header of a frame whose body follows in pieces."""
    return _HEADER.pack(length, VERSION, kind, 0, number)


class FrameReader:
    """Cut a stream of bytes into frames."""

    def __init__(self, body_bytes_max: int) -> None:
        """Refuse bodies of more than `body_bytes_max` bytes."""
        self.body_bytes_max = body_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Give the frames that `data` completes, one by one: the limit may be changed between two of them."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted():
                return
            data = bytes(self._rest)
            self._rest.clear()
        at, end = 0, len(data)
        while end - at >= HEADER_BYTES:
            length, kind, number = _length_of(data, at, self.body_bytes_max)
            stop = at + HEADER_BYTES + length
            if stop > end:
                break
            yield Frame(kind, number, data[at + HEADER_BYTES : stop])
            at = stop
        if at < end:
            self._rest += memoryview(data)[at:]

    def _wanted(self) -> int:
        """How many bytes the first frame takes, as far as that is known."""
        if len(self._rest) < HEADER_BYTES:
            return HEADER_BYTES
        return HEADER_BYTES + _length_of(self._rest, 0, self.body_bytes_max)[0]


def _length_of(data: bytes | bytearray, at: int, body_bytes_max: int) -> tuple[int, int, int]:
    """Read and judge one header: length, kind, number."""
    length, version, kind, spare, number = _HEADER.unpack_from(data, at)
    if version != VERSION:
        raise RemoteProtocolError(f"a frame of version {version}; this member speaks version {VERSION}")
    if kind not in KINDS or spare != 0:
        raise RemoteProtocolError(f"a frame of kind {kind} (spare {spare}), which does not exist")
    if length > body_bytes_max:
        raise RemoteProtocolError(f"a frame of {length} bytes; the limit is {body_bytes_max}")
    if number > NUMBER_MAX or (number > 0) != (kind in NUMBERED):
        raise RemoteProtocolError(f"frame number {number} on a frame of kind {kind}")
    return length, kind, number

"""The fields of membership messages and journal records, each with a writer and a reader.

| field     | bytes                                                                                |
|-----------|--------------------------------------------------------------------------------------|
| flag      | 1: 0 or 1                                                                            |
| number    | 8, signed                                                                            |
| rank      | 2                                                                                    |
| count     | 4                                                                                    |
| ballot    | 4 attempt, 4 rank (−1 for none)                                                      |
| octets    | 4 length, then as many                                                               |
| name      | 1 length, then printable ASCII                                                       |
| member    | a name, 8 incarnation                                                                |
| bits      | 2 length, then as many bytes: the lowest bit first                                   |
| vector    | see `vectors`                                                                        |
| several   | 2 length, then one field after another; `many` has 4                                 |
| perhaps   | a flag, then the field if the flag is 1                                              |

All numbers are little-endian. A `Cursor` compares every length with the rest before use; a field that does not fit
raises `RemoteProtocolError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.protocols.membership.messages import Proposal
from cubecast.protocols.membership.views import MemberId, View, ViewId
from cubecast.wire.vectors import read_vector, write_vector

_FLAG = struct.Struct("<B")
_NUMBER = struct.Struct("<q")
_RANK = struct.Struct("<H")
_COUNT = struct.Struct("<I")
_BALLOT = struct.Struct("<Ii")
NAME_BYTES_MAX = 255
SEVERAL_MAX = (1 << 16) - 1
MANY_MAX = (1 << 32) - 1


class Cursor:
    """Reads a body from its beginning to its end."""

    __slots__ = ("at", "body")

    def __init__(self, body: bytes) -> None:
        """Start at the first byte."""
        self.body = body
        self.at = 0

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """The next numbers."""
        at, self.at = self.at, self.at + form.size
        if self.at > len(self.body):
            raise RemoteProtocolError(f"a message of {len(self.body)} bytes ends before its fields do")
        return form.unpack_from(self.body, at)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        at, self.at = self.at, self.at + size
        if self.at > len(self.body):
            raise RemoteProtocolError(f"a message of {len(self.body)} bytes ends before its fields do")
        return self.body[at : self.at]

    def require_end(self) -> None:
        """Raise an error if bytes are left."""
        if self.at != len(self.body):
            raise RemoteProtocolError(f"{len(self.body) - self.at} bytes follow the last field of a message")


class Field(NamedTuple):
    """The writer and reader of one field."""

    write: Callable[[Any], bytes]
    read: Callable[[Cursor], Any]


def _plain(form: struct.Struct, what: str) -> Field:
    def write(value: Any) -> bytes:
        try:
            return form.pack(value)
        except struct.error as error:
            raise LocalProtocolError(f"{what} {value!r} does not fit into a message: {error}") from error

    return Field(write, lambda cursor: cursor.unpack(form)[0])


NUMBER = _plain(_NUMBER, "number")
RANK = _plain(_RANK, "rank")
COUNT = _plain(_COUNT, "count")


def _read_flag(cursor: Cursor) -> bool:
    (value,) = cursor.unpack(_FLAG)
    if value > 1:
        raise RemoteProtocolError(f"a flag of value {value}")
    return bool(value)


FLAG = Field(lambda value: _FLAG.pack(bool(value)), _read_flag)


def _read_ballot(cursor: Cursor) -> tuple[int, int]:
    attempt, rank = cursor.unpack(_BALLOT)
    if rank < -1:
        raise RemoteProtocolError(f"a ballot of rank {rank}")
    return attempt, rank


BALLOT = Field(lambda value: _BALLOT.pack(*value), _read_ballot)


def _write_octets(value: bytes) -> bytes:
    return _COUNT.pack(len(value)) + value


OCTETS = Field(_write_octets, lambda cursor: cursor.take(cursor.unpack(_COUNT)[0]))


def _write_name(value: Any) -> bytes:
    octets = str(value).encode()
    if not 0 < len(octets) <= NAME_BYTES_MAX:
        raise LocalProtocolError(f"name {value!r}: give one of 1 to {NAME_BYTES_MAX} bytes")
    return _FLAG.pack(len(octets)) + octets


def _read_name(cursor: Cursor) -> str:
    octets = cursor.take(cursor.unpack(_FLAG)[0])
    if not octets or not all(32 < octet < 127 for octet in octets):
        raise RemoteProtocolError(f"a member's name of {octets[:20]!r}")
    return octets.decode("ascii")


NAME = Field(_write_name, _read_name)


def _read_member(cursor: Cursor) -> MemberId:
    name = _read_name(cursor)
    (incarnation,) = cursor.unpack(_NUMBER)
    return MemberId(name, incarnation)


MEMBER = Field(lambda value: _write_name(value[0]) + _NUMBER.pack(value[1]), _read_member)


VECTOR = Field(write_vector, read_vector)


def _write_bits(value: int) -> bytes:
    octets = value.to_bytes((value.bit_length() + 7) // 8, "little")
    return _RANK.pack(len(octets)) + octets


BITS = Field(_write_bits, lambda cursor: int.from_bytes(cursor.take(cursor.unpack(_RANK)[0]), "little"))


def several(field: Field) -> Field:
    """A list of this field."""
    return _list_of(field, _RANK, SEVERAL_MAX)


def many(field: Field) -> Field:
    """A list of this field that may be long."""
    return _list_of(field, _COUNT, MANY_MAX)


def _list_of(field: Field, length: struct.Struct, most: int) -> Field:
    def write(value: Any) -> bytes:
        if len(value) > most:
            raise LocalProtocolError(f"{len(value)} of a kind in one message: at most {most}")
        return b"".join((length.pack(len(value)), *map(field.write, value)))

    def read(cursor: Cursor) -> tuple[Any, ...]:
        (count,) = cursor.unpack(length)
        return tuple([field.read(cursor) for _ in range(count)])

    return Field(write, read)


def perhaps(field: Field) -> Field:
    """This field, or None."""

    def write(value: Any) -> bytes:
        return b"\0" if value is None else b"\1" + field.write(value)

    return Field(write, lambda cursor: field.read(cursor) if _read_flag(cursor) else None)


def record(kind: Any, *fields: Field) -> Field:
    """A named tuple of these fields."""

    def write(value: Any) -> bytes:
        return b"".join([field.write(part) for field, part in zip(fields, value, strict=True)])

    return Field(write, lambda cursor: kind(*[field.read(cursor) for field in fields]))


MEMBERS = several(MEMBER)
VIEW_ID = record(ViewId, NUMBER, NUMBER)
_SENT = several(NUMBER)
VIEW = record(View, NUMBER, NUMBER, NUMBER, MEMBERS, MEMBERS, MEMBERS, _SENT, MEMBERS, NUMBER)
PROPOSAL = record(Proposal, VIEW, VECTOR)

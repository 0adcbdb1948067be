"""What a member of a changing group writes down (`core.membership.records`) as bytes: a byte of kind, then the fields.

A batch is what one call of the core wants written: for each record its length in 4 bytes, then the record. `FORMAT` is
part of the head of the file; a log of another format is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from cubecast.core.membership import records as r
from cubecast.core.membership.messages import Data, Decide, Excluded, Left, Restore
from cubecast.errors import RemoteProtocolError
from cubecast.wire.fields import (
    BALLOT,
    FLAG,
    MEMBER,
    MEMBERS,
    NAME,
    NUMBER,
    OCTETS,
    PROPOSAL,
    RANK,
    VECTOR,
    VIEW,
    Cursor,
    Field,
    many,
    perhaps,
    record,
    several,
)
from cubecast.wire.membership import KINDS as MESSAGES

FORMAT = 2
_LENGTH = struct.Struct("<I")
_TEXT = Field(lambda value: OCTETS.write(value.encode()), lambda cursor: OCTETS.read(cursor).decode("utf-8", "replace"))
_EXCLUDED = record(Excluded, _TEXT, many(OCTETS), FLAG)
_DATA = record(Data, *MESSAGES[Data])
_DECISION = perhaps(record(Decide, *MESSAGES[Decide]))
_KEPT = (NUMBER, OCTETS, MEMBERS)


def _write_end(value: Any) -> bytes:
    if value is None:
        return b"\0"
    return b"\1" if isinstance(value, Left) else b"\2" + _EXCLUDED.write(value)


def _read_end(cursor: Cursor) -> Left | Excluded | None:
    kind = cursor.take(1)[0]
    if kind > 2:
        raise RemoteProtocolError(f"an end of kind {kind}")
    return (None, Left())[kind] if kind < 2 else _EXCLUDED.read(cursor)


KINDS: dict[type, tuple[Field, ...]] = {
    r.Life: (MEMBER,),
    r.Asked: (several(NAME),),
    r.Entered: (VIEW, _DECISION, FLAG),
    r.Promised: (BALLOT,),
    r.Adopted: (BALLOT, PROPOSAL),
    Data: MESSAGES[Data],
    r.Delivered: (RANK,),
    r.Settled: (VECTOR,),
    r.Waiting: (OCTETS,),
    r.Leaving: (),
    r.Knows: (NAME,),
    Restore: (NUMBER, OCTETS),
    r.Kept: _KEPT,
    r.Over: (_DECISION, Field(_write_end, _read_end)),
    r.Whole: (
        *(MEMBER, several(NAME), VIEW, _DECISION, BALLOT, BALLOT, perhaps(PROPOSAL), VECTOR, VECTOR),
        *(many(_DATA), many(OCTETS), FLAG, several(record(r.Kept, *_KEPT)), OCTETS),
    ),
}
"""The place in this table is the byte of kind."""

_CODES = {kind: bytes([code]) for code, kind in enumerate(KINDS)}
_RECORDS = {kind: record(kind, *fields) for kind, fields in KINDS.items()}
_BY_CODE = list(_RECORDS.values())


def encode_records(records: Iterable[r.Record]) -> bytes:
    """Give the bytes of a batch."""
    parts = []
    for one in records:
        body = _RECORDS[type(one)].write(one)
        parts += [_LENGTH.pack(1 + len(body)), _CODES[type(one)], body]
    return b"".join(parts)


def decode_records(octets: bytes) -> list[r.Record]:
    """Read a batch."""
    cursor = Cursor(octets)
    found: list[r.Record] = []
    while cursor.at < len(octets):
        inner = Cursor(cursor.take(cursor.unpack(_LENGTH)[0]))
        code = inner.take(1)[0]
        if code >= len(_BY_CODE):
            raise RemoteProtocolError(f"a record of kind {code}, which does not exist")
        found.append(_BY_CODE[code].read(inner))
        inner.require_end()
    return found

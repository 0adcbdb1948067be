"""The records of a member's journal (`protocols.membership.records`) as bytes: length, a byte of kind, then the fields.

A batch of the journal is one record after another: for each its length in 4 bytes, then the record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from cubecast.errors import JournalError, RemoteProtocolError
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import Decide
from cubecast.protocols.membership.views import MemberId
from cubecast.wire.fields import (
    BALLOT,
    FLAG,
    MEMBER,
    MEMBERS,
    NAME,
    NUMBER,
    OCTETS,
    PROPOSAL,
    VECTOR,
    VIEW,
    VIEW_ID,
    Cursor,
    Field,
    many,
    perhaps,
    record,
    several,
)

_LENGTH = struct.Struct("<I")
_DECISION = perhaps(record(Decide, VIEW_ID, PROPOSAL))
_KEPT = (NUMBER, OCTETS, MEMBERS)

KINDS: dict[type, tuple[Field, ...]] = {
    r.Incarnation: (MEMBER, several(NAME), several(NAME), many(OCTETS), many(OCTETS)),
    r.Entered: (VIEW, _DECISION, FLAG),
    r.Promised: (BALLOT,),
    r.Adopted: (BALLOT, PROPOSAL),
    r.Delivered: (OCTETS,),
    r.Recovered: (OCTETS,),
    r.Settled: (VECTOR,),
    r.Pending: (OCTETS,),
    r.Knows: (NAME,),
    r.Restored: (NUMBER, OCTETS),
    r.Kept: _KEPT,
    r.Over: (_DECISION, FLAG),
    r.Checkpoint: (
        *(MEMBER, several(NAME), VIEW, _DECISION, BALLOT, BALLOT, perhaps(PROPOSAL), VECTOR, VECTOR),
        *(OCTETS, OCTETS, many(OCTETS), several(record(r.Kept, *_KEPT)), OCTETS),
    ),
    r.StatePiece: (NUMBER, OCTETS),
    r.ExclusionReported: (),
}
"""The index in this table is the kind byte."""

_CODES = {kind: code for code, kind in enumerate(KINDS)}
_RECORDS = {kind: record(kind, *fields) for kind, fields in KINDS.items()}
_BY_CODE = list(_RECORDS.values())
_DELIVERED = struct.Struct("<IBI")


def encode_record(one: r.Record) -> bytes:
    """Encode one record, with its length before it."""
    body = _RECORDS[type(one)].write(one)
    return b"".join((_LENGTH.pack(1 + len(body)), bytes([_CODES[type(one)]]), body))


def encode_checkpoint(one: r.Checkpoint, state: Sequence[bytes]) -> list[bytes]:
    """Encode a checkpoint with this state in pieces: a large state is not copied."""
    size = sum(map(len, state))
    body = _RECORDS[r.Checkpoint].write(one._replace(state=b""))[: -_LENGTH.size]
    head = _LENGTH.pack(1 + len(body) + _LENGTH.size + size), bytes([_CODES[r.Checkpoint]]), body, _LENGTH.pack(size)
    return [b"".join(head), *state]


def encode_kept(view: int, state: Sequence[bytes], needed_by: Sequence[MemberId]) -> list[bytes]:
    """Encode a `Kept` record in pieces."""
    size = sum(map(len, state))
    begin, end = NUMBER.write(view) + _LENGTH.pack(size), MEMBERS.write(needed_by)
    head = _LENGTH.pack(1 + len(begin) + size + len(end)) + bytes([_CODES[r.Kept]])
    return [head + begin, *state, end]


def delivered_head(size: int) -> bytes:
    """The bytes before the data records of a `Delivered` record of that many bytes."""
    return _DELIVERED.pack(5 + size, _CODES[r.Delivered], size)


def decode_records(batches: Iterable[bytes]) -> list[r.Record]:
    """Decode batches of a journal."""
    found: list[r.Record] = []
    for batch in batches:
        cursor = Cursor(batch)
        try:
            while cursor.at < len(batch):
                inner = Cursor(cursor.take(cursor.unpack(_LENGTH)[0]))
                code = inner.take(1)[0]
                if code >= len(_BY_CODE):
                    raise JournalError(f"the journal has a record of unknown kind {code}: it is of another version")
                found.append(_BY_CODE[code].read(inner))
                inner.require_end()
        except RemoteProtocolError as error:
            raise JournalError(f"the journal has a record that cannot be read: {error}") from error
    return found

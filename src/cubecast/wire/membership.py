"""The messages of a changing group (`core.membership.messages`) as bytes: one byte of kind, then its fields.

The body of a MEMBERSHIP frame is a batch: for each message its length in 4 bytes, then the message. `FORMAT` is part of
the greeting; members of another format refuse each other.

Reading has two steps. `decode_batch` knows nothing of the group: it checks that the bytes are messages. `require_fit`
checks that a message of the present view has one entry a member, and ranks that exist.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from cubecast.core.membership import messages as said
from cubecast.core.membership.messages import Message
from cubecast.errors import RemoteProtocolError
from cubecast.wire.fields import (
    AGED,
    BALLOT,
    BITS,
    COUNT,
    FLAG,
    MEMBER,
    MEMBERS,
    NUMBER,
    OCTETS,
    PROPOSAL,
    RANK,
    VECTOR,
    Cursor,
    Field,
    perhaps,
    record,
)

FORMAT = 2
_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size

KINDS: dict[type, tuple[Field, ...]] = {
    said.Data: (NUMBER, RANK, COUNT, VECTOR, OCTETS),
    said.Status: (
        *(NUMBER, VECTOR, NUMBER, BITS, VECTOR, VECTOR, VECTOR, VECTOR),
        *(MEMBERS, AGED, AGED, MEMBERS, BITS, FLAG),
    ),
    said.Join: (MEMBER,),
    said.Prepare: (NUMBER, BALLOT),
    said.Promise: (NUMBER, BALLOT, VECTOR, BALLOT, perhaps(PROPOSAL), FLAG, FLAG),
    said.Refusal: (NUMBER, BALLOT),
    said.Flush: (NUMBER, BALLOT, VECTOR, MEMBERS),
    said.Pull: (NUMBER, RANK, COUNT, COUNT),
    said.Flushed: (NUMBER, BALLOT),
    said.Accept: (NUMBER, BALLOT, PROPOSAL),
    said.Accepted: (NUMBER, BALLOT),
    said.Decide: (NUMBER, PROPOSAL),
    said.Gone: (NUMBER,),
    said.AskState: (NUMBER, COUNT),
    said.State: (NUMBER, COUNT, COUNT, OCTETS),
    said.NoState: (NUMBER,),
}
"""The place in this table is the byte of kind."""

_CODES = {kind: bytes([code]) for code, kind in enumerate(KINDS)}
_RECORDS = {kind: record(kind, *fields) for kind, fields in KINDS.items()}
_BY_CODE = list(_RECORDS.values())


def encode_message(message: Message) -> bytes:
    """Give the bytes of one message, its length before it."""
    kind = type(message)
    body = _CODES[kind] + _RECORDS[kind].write(message)
    return _LENGTH.pack(len(body)) + body


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Give the body of a frame."""
    return b"".join(map(encode_message, messages))


def decode_message(body: bytes) -> Message:
    """Read one message without its length."""
    if not body or body[0] >= len(_BY_CODE):
        raise RemoteProtocolError(f"a message of kind {body[0] if body else 'none'}, which does not exist")
    cursor = Cursor(body)
    cursor.at = 1
    message: Message = _BY_CODE[body[0]].read(cursor)
    cursor.require_end()
    return message


def decode_batch(body: bytes, payload_bytes_max: int) -> Iterator[Message]:
    """Read the messages of a frame one by one; payloads are limited."""
    cursor = Cursor(body)
    while cursor.at < len(body):
        message = decode_message(cursor.take(cursor.unpack(_LENGTH)[0]))
        if isinstance(message, said.Data) and len(message.payload) > payload_bytes_max:  # type: ignore[arg-type]
            raise RemoteProtocolError(f"a payload of {len(message.payload)} bytes; the limit is {payload_bytes_max}")  # type: ignore[arg-type]
        yield message


def require_fit(message: Message, members: int) -> None:
    """Refuse a message of the present view that has not one entry a member, or names a rank that does not exist."""
    for vector in _vectors(message):
        if len(vector) != members:
            kind = type(message).__name__
            raise RemoteProtocolError(f"a {kind} with {len(vector)} entries in a view of {members} members")
    ranks = [message.sender] if isinstance(message, said.Data | said.Pull) else []
    if isinstance(message, said.Prepare | said.Flush | said.Accept):
        ranks.append(message.ballot[1])
    if not all(0 <= rank < members for rank in ranks):
        raise RemoteProtocolError(f"a {type(message).__name__} of rank {max(ranks)} in a view of {members} members")
    if isinstance(message, said.Status) and (message.counted | message.ready) >> members:
        raise RemoteProtocolError(f"a Status that counts a rank beyond the {members} members of the view")
    if isinstance(message, said.Data) and message.number < 1:
        raise RemoteProtocolError("a message of number 0: a sender counts from 1")


def _vectors(message: Message) -> tuple[tuple[Any, ...], ...]:
    if isinstance(message, said.Data):
        return (message.past,)
    if isinstance(message, said.Status):
        delivered = (message.delivered,) if message.delivered else ()
        return message.beats, message.minimum, message.stable, message.received, *delivered
    if isinstance(message, said.Promise):
        accepted = (message.accepted.cut,) if message.accepted else ()
        return message.delivered, *accepted
    if isinstance(message, said.Flush):
        return message.cut, message.sources
    if isinstance(message, said.Accept | said.Decide):
        return (message.proposal.cut,)
    return ()

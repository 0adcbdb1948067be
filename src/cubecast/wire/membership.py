"""The messages of `protocols.membership.messages` as bytes: one byte of kind, then the fields in order.

The body of a MEMBERSHIP frame is one message. Reading has two steps. `decode_message` checks that the bytes are a
message. `require_fit` checks that a message of the present view has one entry per member, and only ranks that exist.
"""

from __future__ import annotations

from typing import Any

from cubecast.errors import RemoteProtocolError
from cubecast.protocols.membership import messages as m
from cubecast.protocols.membership.messages import Message
from cubecast.wire.fields import (
    BALLOT,
    BITS,
    COUNT,
    FLAG,
    MEMBER,
    MEMBERS,
    OCTETS,
    PROPOSAL,
    VECTOR,
    VIEW_ID,
    Cursor,
    Field,
    perhaps,
    record,
)

KINDS: dict[type, tuple[Field, ...]] = {
    m.Join: (VIEW_ID, MEMBER),
    m.Report: (VIEW_ID, BITS, BITS, MEMBERS, FLAG, FLAG),
    m.Prepare: (VIEW_ID, BALLOT),
    m.Promise: (VIEW_ID, BALLOT, VECTOR, BALLOT, perhaps(PROPOSAL), MEMBER, FLAG, FLAG),
    m.Refusal: (VIEW_ID, BALLOT),
    m.Flush: (VIEW_ID, BALLOT, VECTOR, VECTOR),
    m.Pull: (VIEW_ID, BALLOT, VECTOR, VECTOR),
    m.Missing: (VIEW_ID, OCTETS),
    m.Flushed: (VIEW_ID, BALLOT),
    m.Accept: (VIEW_ID, BALLOT, PROPOSAL),
    m.Accepted: (VIEW_ID, BALLOT),
    m.Decide: (VIEW_ID, PROPOSAL),
    m.Gone: (VIEW_ID,),
    m.AskState: (VIEW_ID, COUNT, COUNT),
    m.State: (VIEW_ID, COUNT, COUNT, OCTETS),
    m.NoState: (VIEW_ID,),
    m.Ready: (VIEW_ID,),
}
"""The place in this table is the byte of kind."""

_CODES = {kind: bytes([code]) for code, kind in enumerate(KINDS)}
_RECORDS = {kind: record(kind, *fields) for kind, fields in KINDS.items()}
_BY_CODE = list(_RECORDS.values())


def encode_message(message: Message) -> bytes:
    """Give the bytes of one message."""
    kind = type(message)
    return _CODES[kind] + _RECORDS[kind].write(message)


def decode_message(body: bytes) -> Message:
    """Read one message."""
    if not body or body[0] >= len(_BY_CODE):
        raise RemoteProtocolError(f"it sent a membership message of unknown kind {body[0] if body else 'none'}")
    cursor = Cursor(body)
    cursor.at = 1
    message: Message = _BY_CODE[body[0]].read(cursor)
    cursor.require_end()
    return message


def require_fit(message: Message, members: int) -> None:
    """Refuse a message of the present view that has not one entry per member, or names a rank that does not exist."""
    kind = type(message).__name__
    for vector in _vectors(message):
        if len(vector) != members:
            raise RemoteProtocolError(f"it sent a {kind} with {len(vector)} entries in a view of {members} members")
    ranks = list(message.sources) if isinstance(message, m.Flush) else []
    if isinstance(message, m.Prepare | m.Flush | m.Accept):
        ranks.append(message.ballot[1])
    if not all(0 <= rank < members for rank in ranks):
        raise RemoteProtocolError(f"it sent a {kind} that names rank {max(ranks)} in a view of {members} members")
    if isinstance(message, m.Report) and (message.suspects | message.behind) >> members:
        raise RemoteProtocolError(f"it sent a Report about a rank beyond the {members} members of the view")


def _vectors(message: Message) -> tuple[tuple[Any, ...], ...]:
    if isinstance(message, m.Promise):
        accepted = (message.accepted.cut,) if message.accepted else ()
        return message.delivered, *accepted
    if isinstance(message, m.Flush):
        return message.cut, message.sources
    if isinstance(message, m.Pull):
        return message.delivered, message.cut
    if isinstance(message, m.Accept | m.Decide):
        return (message.proposal.cut,)
    return ()

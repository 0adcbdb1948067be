"""The messages of `protocols.membership.messages` as bytes: one byte of kind, then the fields in order.

The body of a MEMBERSHIP frame is one message. Reading has two steps. `decode_message` checks that the bytes are a
message. `require_fit` checks that a message of the present view has one entry per member, and only ranks that exist.

**Proposals.** The proposal of the next view is written in full for a process that is not in the present view, and
otherwise as a change of it (`protocols.membership.relative`). A reader that is in neither view cannot apply a change,
and does not need to.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from cubecast.errors import RemoteProtocolError
from cubecast.protocols.membership import messages as m
from cubecast.protocols.membership.messages import Message
from cubecast.protocols.membership.relative import Change, apply_change, change_in
from cubecast.protocols.membership.views import View, ViewId
from cubecast.wire.fields import (
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
    VIEW_ID,
    Cursor,
    Field,
    perhaps,
    record,
    several,
)

_RANKS = several(RANK)
_CHANGE = record(Change, NUMBER, _RANKS, _RANKS, MEMBERS, VECTOR)


def _write_proposed(value: Any) -> bytes:
    is_change = isinstance(value, Change)
    return FLAG.write(is_change) + (_CHANGE if is_change else PROPOSAL).write(value)


PROPOSED = Field(_write_proposed, lambda cursor: (_CHANGE if FLAG.read(cursor) else PROPOSAL).read(cursor))
"""A flag: 0 and the whole proposal, or 1 and a change of the view in which the message was sent."""

KINDS: dict[type, tuple[Field, ...]] = {
    m.Join: (VIEW_ID, MEMBER),
    m.ChangeReport: (VIEW_ID, BITS, BITS, MEMBERS, FLAG, FLAG),
    m.Prepare: (VIEW_ID, BALLOT),
    m.Promise: (VIEW_ID, BALLOT, VECTOR, BALLOT, perhaps(PROPOSED), MEMBER, FLAG, FLAG),
    m.Refusal: (VIEW_ID, BALLOT),
    m.Flush: (VIEW_ID, BALLOT, VECTOR, VECTOR),
    m.Pull: (VIEW_ID, BALLOT, VECTOR, VECTOR),
    m.Missing: (VIEW_ID, OCTETS),
    m.Flushed: (VIEW_ID, BALLOT),
    m.Accept: (VIEW_ID, BALLOT, PROPOSED),
    m.Accepted: (VIEW_ID, BALLOT),
    m.Decide: (VIEW_ID, PROPOSED),
    m.Gone: (VIEW_ID,),
    m.AskState: (VIEW_ID, COUNT, COUNT),
    m.State: (VIEW_ID, COUNT, COUNT, OCTETS),
    m.NoState: (VIEW_ID,),
    m.Ready: (VIEW_ID,),
    m.Probe: (VIEW_ID,),
    m.Present: (VIEW_ID,),
    m.AskLevel: (VIEW_ID, COUNT, COUNT),
    m.LevelReached: (VIEW_ID, COUNT, COUNT),
    m.RoundTrips: (VIEW_ID, VECTOR),
}
"""The index in this table is the kind byte."""

_CODES = {kind: bytes([code]) for code, kind in enumerate(KINDS)}
_RECORDS = {kind: record(kind, *fields) for kind, fields in KINDS.items()}
_BY_CODE = list(_RECORDS.values())


class Elsewhere(NamedTuple):
    """A message with a change of a view that the reader is not in: its kind, and the view in which it was sent."""

    kind: type
    view: ViewId


def encode_message(message: Message, base: View | None = None) -> bytes:
    """Encode one message; `base` is the view of sender and receiver, if they share one."""
    kind = type(message)
    change = change_in(message, base)
    said = message if change is None else _with_proposal(message, change)
    return _CODES[kind] + _RECORDS[kind].write(said)


def decode_message(body: bytes, base: View | None = None) -> Message | Elsewhere:
    """Decode one message; `base` is the reader's view."""
    if not body or body[0] >= len(_BY_CODE):
        raise RemoteProtocolError(f"it sent a membership message of unknown kind {body[0] if body else 'none'}")
    cursor = Cursor(body)
    cursor.at = 1
    message: Message = _BY_CODE[body[0]].read(cursor)
    cursor.require_end()
    change: Any = m.proposal_in(message)
    if not isinstance(change, Change):
        return message
    if base is None or base.id != message.view:
        return Elsewhere(type(message), message.view)
    return _with_proposal(message, apply_change(base, change))


def _with_proposal(message: Any, proposed: Any) -> Message:
    """The message with its proposal in another form."""
    field = "accepted" if isinstance(message, m.Promise) else "proposal"
    return cast(Message, message._replace(**{field: proposed}))


def require_fit(message: Message, members: int) -> None:
    """Reject a message of the present view without one entry per member, or with a rank that does not exist."""
    kind = type(message).__name__
    for vector in _vectors(message):
        if len(vector) != members:
            raise RemoteProtocolError(f"it sent a {kind} with {len(vector)} entries in a view of {members} members")
    ranks = list(message.sources) if isinstance(message, m.Flush) else []
    if isinstance(message, m.Prepare | m.Flush | m.Accept):
        ranks.append(message.ballot[1])
    if not all(0 <= rank < members for rank in ranks):
        raise RemoteProtocolError(f"it sent a {kind} that names rank {max(ranks)} in a view of {members} members")
    if isinstance(message, m.ChangeReport) and (message.suspects | message.behind) >> members:
        raise RemoteProtocolError(f"it sent a ChangeReport about a rank beyond the {members} members of the view")


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
    if isinstance(message, m.RoundTrips):
        return (message.microseconds,)
    return ()

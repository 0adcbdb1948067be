"""The handshake of two members: HELLO from the one that dials, WELCOME or REFUSE from the other.

Both sides state their identity (group, name, incarnation), the settings that all members share, the view of their
group, and how many of the other's frames they received, so that a link continues after a break without a gap. Unknown
fields are ignored: a later version may add some.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from cubecast.errors import RemoteProtocolError

_Text = Annotated[str, msgspec.Meta(max_length=1024)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[!-~]+$")]
SESSION_MAX = (1 << 63) - 1
_Number = Annotated[int, msgspec.Meta(ge=0, le=SESSION_MAX)]
_Value = str | int | float | bool


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The body of HELLO and WELCOME."""

    oldest: _Number
    newest: _Number
    """The versions of the wire format that this member speaks."""
    group: _Text
    group_id: _Number
    """The id of the group, which distinguishes foundings of the same name; 0 if this member does not know it yet."""
    name: _Name
    towards: _Name
    """The name of the member to which the message is addressed."""
    incarnation: _Number
    session: _Number
    """Grows with each start of a process: a process that restarted has lost the state of its links."""
    knows: _Number
    """The incarnation of the other side with which this member has a link; 0 if it has none."""
    knows_session: _Number
    """The latest session of that incarnation that this member knows."""
    received: _Number
    """The number of the last frame of that link that this member received."""
    view_number: _Number
    view_tag: _Number
    view_members: _Number
    settings: Annotated[dict[_Text, _Value], msgspec.Meta(max_length=64)]


class HandshakeRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of REFUSE."""

    reason: _Text
    is_duplicate: bool = False
    """Another connection between the two members stays."""
    is_past: bool = False
    """This incarnation of the other side is no longer in the group."""
    incarnation: _Number = 0
    """The last incarnation of that name that is known."""
    session: _Number = 0
    """A later session of the other side that is known; 0 if there is none."""


class Acknowledgement(msgspec.Struct, frozen=True, array_like=True):
    """The body of ACK."""

    received: _Number


_Message = TypeVar("_Message", Hello, HandshakeRefusal, Acknowledgement)
_ENCODER = msgspec.msgpack.Encoder()
_NAMES = {Hello: "hello", HandshakeRefusal: "refusal", Acknowledgement: "acknowledgement"}
_DECODERS = {kind: msgspec.msgpack.Decoder(kind) for kind in _NAMES}


def encode(message: Hello | HandshakeRefusal | Acknowledgement) -> bytes:
    """Encode a message."""
    return _ENCODER.encode(message)


def decode(kind: type[_Message], body: bytes) -> _Message:
    """Decode a message of that kind; raise an error if it is malformed."""
    try:
        message: _Message = _DECODERS[kind].decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a malformed {_NAMES[kind]}: {str(error).splitlines()[0]}") from error
    return message

"""How two members greet: HELLO from the one that dials, WELCOME or REFUSE from the other.

Both sides say who they are (group, rank, incarnation), what they run (`terms`, a digest of everything all members must
agree on) and the number of the last frame they have from the other, so that a link goes on after a break without a gap.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeVar

import msgspec

from cubecast.errors import RemoteProtocolError

_Text = Annotated[str, msgspec.Meta(max_length=256)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Greeting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of HELLO and WELCOME."""

    group: _Text
    rank: _Rank
    towards: _Rank
    """The rank that the greeting is for."""
    incarnation: _Number
    """Drawn once for each start of a member: nothing old is mistaken for new."""
    knows: _Number
    """The incarnation of the other side that this member spoke with before; 0 for none."""
    received: _Number
    """The number of the last frame of the other side that this member has."""
    terms: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class Refusal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of REFUSE."""

    reason: _Text
    excluded: bool = False
    """The other side was taken out of the group and must stop."""


class Acknowledgement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body of ACK."""

    received: _Number


_Message = TypeVar("_Message", Greeting, Refusal, Acknowledgement)
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {kind: msgspec.msgpack.Decoder(kind) for kind in (Greeting, Refusal, Acknowledgement)}


def encode(message: Greeting | Refusal | Acknowledgement) -> bytes:
    """Give the bytes of a message."""
    return _ENCODER.encode(message)


def decode(kind: type[_Message], body: bytes) -> _Message:
    """Read a message of that kind, or say why it is not one."""
    try:
        message: _Message = _DECODERS[kind].decode(body)  # type: ignore[assignment]
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a malformed {kind.__name__.lower()}: {str(error).splitlines()[0]}") from error
    return message


def terms_digest(*terms: object) -> bytes:
    """A digest of what all members of a group must agree on."""
    return hashlib.blake2b(repr(terms).encode(), digest_size=16).digest()

"""How two members of a changing group greet: HELLO from the one that dials, WELCOME or REFUSE from the other.

Both say who they are (group, name, life), for whom it is, and what they run. A name is the member's address, as its
certificate has it. What is lost with a connection is not sent again by the link: the core repairs it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from cubecast.errors import RemoteProtocolError

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[!-~]+$")]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Introduction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of HELLO and WELCOME in a changing group."""

    group: _Text
    name: _Name
    incarnation: _Number
    towards: _Name
    """The name that the greeting is for."""
    format: _Number
    terms: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    """A digest of what all members must agree on."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Introduction)


def encode_introduction(message: Introduction) -> bytes:
    """Give the bytes of a greeting."""
    return _ENCODER.encode(message)


def decode_introduction(body: bytes) -> Introduction:
    """Read a greeting, or say why it is not one."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a malformed introduction: {str(error).splitlines()[0]}") from error

"""Codecs convert values to bytes on a bus: three built-in codecs, or a custom one.

A custom codec is `Codec("name", encode, decode)`. All members of a bus use the same one. Values are not trusted:
`pickle` would let any member run code in all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.application_state import octets_of
from cubecast.live.texts import text_of_error
from cubecast.live.values import decode_value, encode_value


@dataclass(frozen=True)
class Codec:
    """A pair of functions: from a value to bytes, and back."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def to_bytes(self, value: Any) -> bytes:
        """Encode a value of the caller; LocalProtocolError if that fails."""
        try:
            octets = self.encode(value)
        except (LocalProtocolError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a codec in another language may raise more than Exceptions
            raise LocalProtocolError(
                f"a value of type {type(value).__name__} cannot be encoded as {self.name}: {text_of_error(error)}"
            ) from error
        return octets if type(octets) is bytes else octets_of(octets, f"what the codec {self.name} returned")

    def from_bytes(self, octets: bytes) -> Any:
        """Decode what a member sent; RemoteProtocolError if that fails."""
        try:
            return self.decode(octets)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise RemoteProtocolError(
                f"{len(octets)} bytes cannot be decoded as {self.name}: {text_of_error(error)}"
            ) from error


BYTES = Codec("bytes", octets_of, bytes)
JSON = Codec("JSON", lambda value: json.dumps(value, separators=(",", ":")).encode(), json.loads)
MSGPACK = Codec("MessagePack", encode_value, decode_value)
"""Like JSON, with bytes as values; smaller and several times faster."""

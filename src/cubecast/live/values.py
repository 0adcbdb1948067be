"""Values of programs as MessagePack.

An instance of a subclass of a basic type travels as the basic type: Django's `SafeString`, which a template returns, is
a string, and `numpy.float64` a number.
"""

from __future__ import annotations

from typing import Any

import msgspec


def _basic(value: Any) -> Any:
    """The value as the basic type that it is a subclass of. `str(value)` could return the subclass again."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError(f"values of type {type(value).__name__} are not supported")


encode_value = msgspec.msgpack.Encoder(enc_hook=_basic).encode
decode_value = msgspec.msgpack.decode

"""The messages of a protocol: for every kind its fields by name, each with its size on the wire.

    START, ACK, INFO = range(3)
    MESSAGES = (
        message("START", round=where_lossy(4)),
        message("ACK", round=where_lossy(4), received=per_sender(4)),
        message("INFO", round=where_lossy(4), stable=per_sender(4)),
    )

`message_sizes(MESSAGES, context)` gives the size in bytes of every kind, header included, for a group of a given size.
A state holds that array, and `draft(mail, ACK, round_number, state.sizes[ACK])` makes a message of the right size.
Nobody counts bytes by hand. Sizes are what the papers count: live members encode the same fields a little differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.protocol.context import Context
from cubecast.protocol.mail import HEADER_BYTES

Size = Callable[[Context, Any], int]
"""The size of a field in bytes, from the surroundings and the parameters of the protocol."""


class Message(NamedTuple):
    """One kind of message."""

    name: str
    fields: dict[str, Size]

    def size_bytes(self, context: Context, parameters: Any = None) -> int:
        """Header and fields."""
        return HEADER_BYTES + sum(size(context, parameters) for size in self.fields.values())


def message(name: str, **fields: int | Size) -> Message:
    """A kind of message with these fields; a number is a size in bytes."""
    return Message(name, {field: _constant(size) if isinstance(size, int) else size for field, size in fields.items()})


def _constant(size_bytes: int) -> Size:
    return lambda _context, _parameters: size_bytes


def per_sender(size_bytes: int) -> Size:
    """An array with one entry per sender."""
    return lambda context, _parameters: size_bytes * context.senders


def per_member(size_bytes: int) -> Size:
    """An array with one entry per member."""
    return lambda context, _parameters: size_bytes * context.members


def member_set() -> Size:
    """A set of members: one bit per member."""
    return lambda context, _parameters: (context.members + 7) // 8


def where_lossy(size_bytes: int) -> Size:
    """A field that only the form for lossy networks carries."""
    return lambda context, _parameters: size_bytes if context.repeat_ns > 0 else 0


def payload() -> Size:
    """A message of the application."""
    return lambda context, _parameters: context.payload_bytes


def message_sizes(messages: Sequence[Message], context: Context, parameters: Any = None) -> NDArray[np.int64]:
    """The size of every kind of message, by its place in `messages`."""
    return np.array([one.size_bytes(context, parameters) for one in messages], np.int64)

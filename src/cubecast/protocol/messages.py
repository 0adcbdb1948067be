"""The messages of a protocol: for every kind its fields by name, each with its size on the wire.

    START, ACK, INFO = range(3)
    MESSAGES = (
        message("START", round=where_lossy(4)),
        message("ACK", round=where_lossy(4), received=per_sender(4)),
        message("INFO", round=where_lossy(4), stable=per_sender(4)),
    )

`message_sizes(MESSAGES, context)` gives the size in bytes of every kind, header included, for a group of a given size.
A state holds that array, and `draft(mail, ACK, round_number, state.sizes[ACK])` makes a message of the right size.
Sizes are never counted by hand. They follow the papers; live members encode the same fields slightly differently.

The messages are listed in the order of their kinds. A protocol that leaves out kinds of its family names the kinds it
has, `message("ACK", ACK, …)`. A kind that comes in two sizes is two messages, each with its own number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.protocol.context import Context
from cubecast.protocol.mail import HEADER_BYTES


class Size(NamedTuple):
    """The size of a field in bytes."""

    text: str
    """The size as text, with n members and m senders."""
    of: Callable[[Context, Any], int]
    """Computes the size from the context and the parameters of the protocol."""
    is_set: bool = False
    """Is it a set of ranks or other items, so that the message needs bits?"""


class MessageType(NamedTuple):
    """One kind of message."""

    name: str
    kind: int | None
    """Its number; None: its index among the messages of the protocol."""
    fields: dict[str, Size]

    def size_bytes(self, context: Context, parameters: Any = None) -> int:
        """The size of header and fields."""
        return HEADER_BYTES + sum(size.of(context, parameters) for size in self.fields.values())


def message(name: str, kind: int | None = None, /, **fields: int | Size) -> MessageType:
    """A kind of message with these fields; a number is a size in bytes."""
    for field, size in fields.items():
        if not isinstance(size, Size) and (type(size) is not int or size < 0):
            raise LocalProtocolError(f"field {field} of message {name} has the size {size!r}: give bytes or a Size")
    sized = {field: constant(size) if isinstance(size, int) else size for field, size in fields.items()}
    return MessageType(name, kind, sized)


def constant(size_bytes: int) -> Size:
    """A field of this many bytes."""
    return Size(str(size_bytes), lambda _context, _parameters: size_bytes)


def per_sender(size_bytes: int) -> Size:
    """An array with one entry per sender."""
    return Size(f"{size_bytes} · m", lambda context, _parameters: size_bytes * context.senders)


def per_member(size_bytes: int) -> Size:
    """An array with one entry per member."""
    return Size(f"{size_bytes} · n", lambda context, _parameters: size_bytes * context.members)


def member_set() -> Size:
    """A set of members: one bit per member."""
    return bit_set("n", lambda context, _parameters: context.members)


def bit_set(text: str, count: Callable[[Context, Any], int]) -> Size:
    """A set of this many items, one bit each; `text` is the count as text."""
    return Size(f"⌈{text} / 8⌉", lambda context, parameters: (count(context, parameters) + 7) // 8, is_set=True)


def where_lossy(size_bytes: int) -> Size:
    """A field that only the form for lossy networks carries."""
    text = f"{size_bytes} where messages may be lost"
    return Size(text, lambda context, _parameters: size_bytes if context.repeat_ns > 0 else 0)


def payload() -> Size:
    """A message of the application."""
    return Size("of the application", lambda context, _parameters: context.payload_bytes)


def carry_sets(messages: Sequence[MessageType]) -> bool:
    """Does any of these messages carry a set?"""
    return any(size.is_set for one in messages for size in one.fields.values())


def kinds_of(messages: Sequence[MessageType]) -> list[int]:
    """The number of every message."""
    return [place if one.kind is None else one.kind for place, one in enumerate(messages)]


def message_sizes(messages: Sequence[MessageType], context: Context, parameters: Any = None) -> NDArray[np.int64]:
    """The size of every message, by its number; 0 for a number without a message."""
    kinds = kinds_of(messages)
    sizes = np.zeros(max(kinds, default=-1) + 1, np.int64)
    sizes[kinds] = [one.size_bytes(context, parameters) for one in messages]
    return sizes

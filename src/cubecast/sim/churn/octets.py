"""How many bytes a message of a changing group takes.

Counted as `wire.membership` writes it, with names of the length of an address; a test holds the two together. A payload
counts `PAYLOAD_BYTES`.
"""

from __future__ import annotations

from typing import Any

from cubecast.core.membership.messages import Data, Message, Proposal, State
from cubecast.core.membership.views import MemberId, View

LENGTH_BYTES = 5  # of the message, and a byte of kind
NAME_BYTES = 16  # 10.20.30.40:7000
PAYLOAD_BYTES = 100
MEMBER_BYTES = 1 + NAME_BYTES + 8


def octets_of(message: Message) -> int:
    """Its bytes, those of the lengths that stand before it included."""
    if isinstance(message, Data):
        return LENGTH_BYTES + 14 + _size(message.past) + 4 + PAYLOAD_BYTES
    if isinstance(message, State):
        return LENGTH_BYTES + 16 + 4 + len(message.octets)
    return LENGTH_BYTES + sum(map(_size, message))


def _size(value: Any) -> int:
    """A number, a vector of numbers, members, a view, or several of these."""
    if isinstance(value, MemberId):
        return MEMBER_BYTES
    if isinstance(value, View):
        return 8 + 3 * 2 + MEMBER_BYTES * (len(value.members) + len(value.joined) + len(value.lives))
    if isinstance(value, Proposal):
        return _size(value.view) + _size(value.cut)
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return 8 if value < 1 << 63 else 2 + (value.bit_length() + 7) // 8
    if value and isinstance(value[0], int):
        return 2 + 4 * len(value)
    return 2 + sum(map(_size, value))

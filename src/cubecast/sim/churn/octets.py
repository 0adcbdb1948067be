"""How many bytes a message of a changing group takes.

Counted as `wire.membership` writes it, with names of the length of an address; a test holds the two together. A payload
counts `PAYLOAD_BYTES`.
"""

from __future__ import annotations

from typing import Any

from cubecast.core.membership.messages import Data, Message, Proposal, State, Vector
from cubecast.core.membership.views import MemberId, View

LENGTH_BYTES = 5  # of the message, and a byte of kind
NAME_BYTES = 16  # 10.20.30.40:7000
PAYLOAD_BYTES = 100
MEMBER_BYTES = 1 + NAME_BYTES + 8
BALLOT_BYTES = 8
BITS = ("counted", "ready")


def octets_of(message: Message) -> int:
    """Its bytes, those of the lengths that stand before it included."""
    if isinstance(message, Data):
        return LENGTH_BYTES + 14 + _vector(message.past) + 4 + PAYLOAD_BYTES
    if isinstance(message, State):
        return LENGTH_BYTES + 16 + 4 + len(message.octets)
    return LENGTH_BYTES + sum(map(_field, message._fields, message))


def _field(name: str, value: Any) -> int:
    """Ballots look like vectors, bits like numbers, and a proposal may be missing."""
    if name.endswith("ballot"):
        return BALLOT_BYTES
    if name in BITS and not isinstance(value, bool):
        return 2 + (int(value).bit_length() + 7) // 8
    return _size(value) + (name == "accepted" and value is not None)


def _size(value: Any) -> int:
    """A number, a vector of numbers, members, a view, or several of these."""
    if isinstance(value, MemberId):
        return MEMBER_BYTES
    if isinstance(value, View):
        return 8 + 3 * 2 + MEMBER_BYTES * (len(value.members) + len(value.joined) + len(value.lives))
    if isinstance(value, Proposal):
        return _size(value.view) + _vector(value.cut)
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return 8
    if not value or isinstance(value[0], int):
        return _vector(value)
    if isinstance(value[0], MemberId) and isinstance(value[-1], int):
        return MEMBER_BYTES + 8  # something that was true of it so long ago
    return 2 + sum(map(_size, value))


def _vector(values: Vector) -> int:
    """Differences from the smallest entry, all of them or those that are not 0 (`wire.vectors`)."""
    if not values:
        return 2
    base = min(values)
    apart = max(values) - base
    width = (apart > 0) + (apart >= 1 << 8) + 2 * (apart >= 1 << 16)
    return 7 + min(width * len(values), 2 + (2 + width) * (len(values) - values.count(base)))

"""The size of a membership message in bytes.

It is computed as `wire.membership` encodes the message, with names of the length of an address, and with the header of
every message in the simulator; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from cubecast.protocol.mail import HEADER_BYTES
from cubecast.protocols.membership.messages import Message, Missing, Proposal
from cubecast.protocols.membership.relative import Change, change_in
from cubecast.protocols.membership.views import (
    MemberId,
    Vector,
    View,
    ViewId,
)

NAME_BYTES = 16  # 10.20.30.40:7000
MEMBER_BYTES = 1 + NAME_BYTES + 8
_NUMBER, _BALLOT, _LENGTH, _RANK = 8, 8, 2, 2
_BITS = ("suspects", "behind")


def size_of(message: Message, record_bytes: int, base: View | None = None) -> int:
    """Its size; a recovered message takes `record_bytes`, and `base` is a view that sender and receiver share."""
    if isinstance(message, Missing):
        return HEADER_BYTES + 1 + 2 * _NUMBER + 4 + record_bytes * missing_count(message.records)
    change = change_in(message, base)
    fields: tuple[Any, ...] = tuple(message)
    if change is not None:
        fields = tuple(change if isinstance(value, Proposal) else value for value in fields)
    return HEADER_BYTES + 1 + sum(map(_field, message._fields, fields))


def missing_count(records: bytes) -> int:
    """How many messages a Missing carries; the simulator writes them as ranges (rank, first, last)."""
    numbers = memoryview(records).cast("i")
    return sum(numbers[k + 2] - numbers[k + 1] + 1 for k in range(0, len(numbers), 3))


def _field(name: str, value: Any) -> int:
    """The size of a named field: ballots look like vectors, bits like numbers, and a proposal may be missing."""
    if name.endswith("ballot"):
        return _BALLOT
    if name in _BITS:
        return _LENGTH + (int(value).bit_length() + 7) // 8
    if name == "accepted":
        return 1 + (0 if value is None else _size(value))
    if name == "joins":
        return _LENGTH + MEMBER_BYTES * len(value)
    return _size(value)


def _size(value: Any) -> int:
    """The size of a number, flag, vector, member, view, or proposal (whole or as a change)."""
    if isinstance(value, bool):
        return 1
    if isinstance(value, MemberId):
        return MEMBER_BYTES
    if isinstance(value, ViewId):
        return 2 * _NUMBER
    if isinstance(value, View):
        listed = len(value.members) + len(value.joined) + len(value.left) + len(value.departed)
        return 4 * _NUMBER + 5 * _LENGTH + MEMBER_BYTES * listed + _NUMBER * len(value.sent)
    if isinstance(value, Proposal):
        return 1 + _size(value.view) + _vector(value.cut)
    if isinstance(value, Change):
        ranks = 2 * _LENGTH + _RANK * (len(value.removed) + len(value.left))
        return 1 + _NUMBER + ranks + _LENGTH + MEMBER_BYTES * len(value.joined) + _vector(value.cut)
    return _vector(value)


def _vector(values: Vector) -> int:
    """The size of the differences from the smallest entry, all of them or those that are not 0 (`wire.vectors`)."""
    if not values:
        return _LENGTH
    base = min(values)
    apart = max(values) - base
    width = (apart > 0) + (apart >= 1 << 8) + 2 * (apart >= 1 << 16)
    return 7 + min(width * len(values), 2 + (2 + width) * (len(values) - values.count(base)))

"""The messages that a group keeps for newcomers, as bytes: their count, then each with sender, view and number."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from cubecast.core.membership.views import MemberId
from cubecast.wire.fields import COUNT, MEMBER, NUMBER, OCTETS, Cursor, record


class Kept(NamedTuple):
    """One message of the past."""

    sender: MemberId
    view: int
    number: int
    payload: bytes


_KEPT = record(Kept, MEMBER, NUMBER, COUNT, OCTETS)


def encode_kept(messages: Collection[Kept]) -> bytes:
    """Give the bytes of a history."""
    return b"".join((COUNT.write(len(messages)), *map(_KEPT.write, messages)))


def decode_kept(octets: bytes) -> list[Kept]:
    """Read a history."""
    cursor = Cursor(octets)
    messages = [_KEPT.read(cursor) for _ in range(COUNT.read(cursor))]
    cursor.require_end()
    return messages

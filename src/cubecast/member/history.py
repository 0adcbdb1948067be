"""The messages stored for newcomers when the application makes no snapshots: none, all, or the last ones.

The history is stored as bytes, in chunks that can each be decoded alone. So transferring it to a newcomer, appending to
it there, and dropping its oldest part take a few steps per chunk, and it can be decoded in slices.

| bytes | entry                                                                                          |
|-------|------------------------------------------------------------------------------------------------|
| 1     | 2: a chunk: 4 messages in it, 4 bytes of the entries that follow; senders are forgotten        |
| 1     | 0: a sender: 2 length, name, 8 incarnation; senders are numbered in the order of their entries |
| 1     | 1: a message: 4 sender, 8 view, 8 sequence, 4 length, then its record                          |

Members deliver concurrent messages in different orders, so "the last n" may differ by a few between members; a
newcomer gets those of the member that transfers the state to it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from cubecast.errors import RemoteProtocolError
from cubecast.member.effects import Delivery
from cubecast.protocols.membership.views import MemberId

_SENDER = struct.Struct("<BHq")
_MESSAGE = struct.Struct("<BIqqI")
_CHUNK = struct.Struct("<BII")
CHUNK_BYTES = 1 << 16


class Chunk(NamedTuple):
    """Some messages, and how many."""

    messages: int
    octets: bytes


class History:
    """The history of one member."""

    def __init__(self, keep: str | int) -> None:
        """The history is empty."""
        self.is_kept = keep not in ("none", 0)
        self._keep = keep if isinstance(keep, int) else 0
        self._chunks: deque[Chunk] = deque()
        self._count = 0
        """Messages in the chunks."""
        self._writer = _Writer()

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Append deliveries."""
        if not self.is_kept:
            return
        writer = self._writer
        for delivery in deliveries:
            writer.add(delivery)
            if len(writer.octets) >= CHUNK_BYTES:
                self._seal()
                writer = self._writer

    def pieces(self) -> tuple[bytes, ...]:
        """The pieces for a newcomer."""
        self._seal()
        if self._keep and self._count > self._keep:
            self._trim_first()
        return tuple([chunk.octets for chunk in self._chunks])

    def load(self, pieces: Sequence[bytes]) -> None:
        """Start with the history of another member."""
        if self.is_kept:
            self._writer = _Writer()
            self._chunks = deque(_chunks_in(pieces))
            self._count = sum([chunk.messages for chunk in self._chunks])
            self._forget_first()

    def _seal(self) -> None:
        """Close the chunk that grows."""
        if self._writer.count:
            self._chunks.append(self._writer.chunk())
            self._count += self._writer.count
            self._writer = _Writer()
            self._forget_first()

    def _forget_first(self) -> None:
        while self._keep and self._chunks and self._count - self._chunks[0].messages >= self._keep:
            self._count -= self._chunks.popleft().messages

    def _trim_first(self) -> None:
        """Drop the messages of the first chunk that are no longer needed."""
        first = self._chunks.popleft()
        writer = _Writer()
        for delivery in islice(decode_history([first.octets]), self._count - self._keep, None):
            writer.add(delivery)
        self._chunks.appendleft(writer.chunk())
        self._count = self._keep


class _Writer:
    """The chunk that grows."""

    def __init__(self) -> None:
        self.count = 0
        self.octets = bytearray()
        self._senders: dict[MemberId, int] = {}

    def add(self, delivery: Delivery) -> None:
        sender = self._senders.get(delivery.sender)
        if sender is None:
            sender = self._senders[delivery.sender] = len(self._senders)
            name = str(delivery.sender.name).encode()
            self.octets += _SENDER.pack(0, len(name), delivery.sender.incarnation) + name
        self.octets += _MESSAGE.pack(1, sender, delivery.view, delivery.sequence, len(delivery.record))
        self.octets += delivery.record
        self.count += 1

    def chunk(self) -> Chunk:
        return Chunk(self.count, _CHUNK.pack(2, self.count, len(self.octets)) + self.octets)


def _chunks_in(pieces: Sequence[bytes]) -> Iterator[Chunk]:
    """The chunks of a history, however it is cut; those that are pieces are not copied."""
    rest = b""
    for piece in pieces:
        data = rest + piece if rest else piece
        at = 0
        while len(data) - at >= _CHUNK.size:
            kind, count, length = _CHUNK.unpack_from(data, at)
            if kind != 2:
                raise RemoteProtocolError(f"a history with an entry of kind {kind} outside of its chunks")
            end = at + _CHUNK.size + length
            if end > len(data):
                break
            yield Chunk(count, data[at:end])
            at = end
        rest = data[at:]
    if rest:
        raise RemoteProtocolError(f"a history that ends in the middle of a chunk: {len(rest)} bytes are left")


def decode_history(pieces: Sequence[bytes]) -> Iterator[Delivery]:
    """Decode the messages of a history one by one; take them in slices to keep an event loop responsive."""
    for entry in _entries(pieces):
        if isinstance(entry, Delivery):
            yield entry


def _entries(pieces: Sequence[bytes]) -> Iterator[MemberId | Delivery]:
    """An entry may be split over two pieces."""
    senders: list[MemberId] = []
    rest = b""
    for piece in pieces:
        data = rest + piece if rest else piece
        at = 0
        while (entry := _entry_at(data, at, senders)) is not None:
            found, at = entry
            yield found
        rest = data[at:]
    if rest:
        raise RemoteProtocolError(f"a history that ends in the middle of an entry: {len(rest)} bytes are left")


def _entry_at(data: bytes, at: int, senders: list[MemberId]) -> tuple[MemberId | Delivery, int] | None:
    if at >= len(data):
        return None
    if data[at] == 2:
        senders.clear()
        at += _CHUNK.size
        if at >= len(data):
            return None
    if data[at] == 0:
        if len(data) - at < _SENDER.size:
            return None
        _, length, incarnation = _SENDER.unpack_from(data, at)
        end = at + _SENDER.size + length
        if len(data) < end:
            return None
        senders.append(MemberId(data[at + _SENDER.size : end].decode("utf-8", "replace"), incarnation))
        return senders[-1], end
    if data[at] != 1:
        raise RemoteProtocolError(f"a history with an entry of unknown kind {data[at]}")
    if len(data) - at < _MESSAGE.size:
        return None
    _, sender, view, sequence, length = _MESSAGE.unpack_from(data, at)
    begin = at + _MESSAGE.size
    if len(data) < begin + length:
        return None
    if sender >= len(senders):
        raise RemoteProtocolError(f"a history with a message of unknown sender {sender}")
    return Delivery(senders[sender], view, sequence, data[begin : begin + length], True), begin + length

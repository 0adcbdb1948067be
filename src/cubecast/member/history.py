"""The messages that a group keeps for newcomers when the application makes no snapshots: none, all, or the last ones.

The history is kept as bytes, so that handing it to a newcomer costs nothing and reading it can be done in slices.

| bytes  | entry                                                                                      |
|--------|--------------------------------------------------------------------------------------------|
| 1      | 0: a sender: 2 length, name, 8 incarnation; senders are numbered in the order of their entries |
| 1      | 1: a message: 4 sender, 8 view, 8 sequence, 4 length, then its record                      |

Members deliver concurrent messages in different orders, so "the last so many" may differ by a few between members; a
newcomer gets those of the member that transfers the state to it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from cubecast.errors import RemoteProtocolError
from cubecast.member.effects import Delivery
from cubecast.protocols.membership.views import MemberId

_SENDER = struct.Struct("<BHq")
_MESSAGE = struct.Struct("<BIqqI")
CHUNK_BYTES = 1 << 16


class History:
    """What one member keeps."""

    def __init__(self, keep: str | int) -> None:
        """Nothing yet."""
        self.is_kept = keep not in ("none", 0)
        self._last: deque[Delivery] | None = deque(maxlen=keep) if isinstance(keep, int) and keep else None
        self._writer = _Writer()

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """More deliveries."""
        if self._last is not None:
            self._last.extend(deliveries)
        elif self.is_kept:
            for delivery in deliveries:
                self._writer.add(delivery)

    def pieces(self) -> tuple[bytes, ...]:
        """What a newcomer is given."""
        if self._last is None:
            return self._writer.pieces()
        writer = _Writer()
        for delivery in self._last:
            writer.add(delivery)
        return writer.pieces()

    def load(self, pieces: Sequence[bytes]) -> None:
        """Begin with the history of another member."""
        if self._last is not None:
            self._last.clear()
            self._last.extend(decode_history(pieces))
        elif self.is_kept:
            self._writer = _Writer.after(pieces)


class _Writer:
    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._open = bytearray()
        self._senders: dict[MemberId, int] = {}

    @classmethod
    def after(cls, pieces: Sequence[bytes]) -> _Writer:
        """Continue a history."""
        writer = cls()
        for sender in _senders_in(pieces):
            writer._senders[sender] = len(writer._senders)
        writer._chunks = list(pieces)
        return writer

    def add(self, delivery: Delivery) -> None:
        sender = self._senders.get(delivery.sender)
        if sender is None:
            sender = self._senders[delivery.sender] = len(self._senders)
            name = str(delivery.sender.name).encode()
            self._open += _SENDER.pack(0, len(name), delivery.sender.incarnation) + name
        self._open += _MESSAGE.pack(1, sender, delivery.view, delivery.sequence, len(delivery.record))
        self._open += delivery.record
        if len(self._open) >= CHUNK_BYTES:
            self._seal()

    def _seal(self) -> None:
        if self._open:
            self._chunks.append(bytes(self._open))
            self._open = bytearray()

    def pieces(self) -> tuple[bytes, ...]:
        self._seal()
        return tuple(self._chunks)


def _senders_in(pieces: Sequence[bytes]) -> Iterator[MemberId]:
    for entry in _entries(pieces):
        if isinstance(entry, MemberId):
            yield entry


def decode_history(pieces: Sequence[bytes]) -> Iterator[Delivery]:
    """Give the messages of a history one by one; take them in slices to let an event loop go on."""
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

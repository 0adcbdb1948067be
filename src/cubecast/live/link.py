"""One link: frames to and from one other member, in order and without a gap, over as many connections as it takes.

Every DATA and CONTROL frame has a number. A frame stays here until the other side has acknowledged it; after a
reconnection each side says how far it received, and the rest is sent again. Records wait unframed while the
connection is down or its buffer full, so that under load they leave in large batches, and at once when idle.

Bounds: at most `connection_bytes` (and what the system's socket buffers take) are framed and unacknowledged while the
other side reads; what waits unframed are references to messages that are not stable, which the senders' windows bound.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from cubecast.errors import RemoteProtocolError
from cubecast.wire import frame, greeting
from cubecast.wire.data import RECORDS_MAX
from cubecast.wire.frame import Frame

BATCH_BYTES = 256 << 10
ACK_BYTES = 128 << 10
RECORDS_BATCH = RECORDS_MAX // 4


class Wire(Protocol):
    """What a link needs of a connection."""

    paused: bool

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def close(self) -> None:
        """End the connection."""


class Link:
    """The frames between this member and `peer`."""

    def __init__(self, peer: int) -> None:
        """No connection yet; what is sent waits for one."""
        self.peer = peer
        self.connection: Wire | None = None
        self.dialled_by = -1
        self.incarnation = 0
        self.sent = 0
        self.received = 0
        self.reconnections = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.heard = False
        """Did anything arrive since the failure detector last asked?"""
        self._loose: dict[int, bytes] = {}
        self._records: list[bytes] = []
        self._records_bytes = 0
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._unacknowledged_bytes = 0
        self._unconfirmed_bytes = 0

    @property
    def is_up(self) -> bool:
        """Is there a connection?"""
        return self.connection is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes for the other side that it has not acknowledged."""
        return self._records_bytes + self._unacknowledged_bytes

    def require_resumable(self, received: int) -> None:
        """Can this link go on from the frame after `received`? Not for one who repeats an old greeting."""
        if not self.sent - len(self._unacknowledged) <= received <= self.sent:
            raise RemoteProtocolError(f"it claims {received} frames of this link; {self.sent} were sent")

    def attach(self, connection: Wire, *, received: int, dialled_by: int) -> None:
        """Go on over a new connection, from the frame after `received`."""
        self.require_resumable(received)
        if self.connection is not None:
            self.connection.close()
        self.reconnections += self.dialled_by >= 0
        self.connection = connection
        self.dialled_by = dialled_by
        self.acknowledge(received)
        for _, data in self._unacknowledged:
            self._write(data)

    def detach(self, connection: Wire) -> bool:
        """Forget a connection that ended; was it this link's?"""
        if self.connection is not connection:
            return False
        self.connection = None
        return True

    def add_record(self, record: bytes) -> None:
        """Put one data record into the next batch."""
        self._records.append(record)
        self._records_bytes += len(record)

    def add_control(self, body: bytes) -> None:
        """Send a control message; it may overtake the records that wait."""
        self._send(frame.CONTROL, body)

    def send_loose(self, kind: int, body: bytes) -> None:
        """Send a frame that may be lost, at once or, if it is still the last of its kind then, when there is room."""
        if self.connection is None or self.connection.paused:
            self._loose[kind] = body
        else:
            self._write(frame.encode_frame(kind, 0, body))

    def flush(self) -> None:
        """Send the waiting records in one frame, or a few; not while the connection is down or full."""
        while self._loose and self.connection is not None and not self.connection.paused:
            kind, body = self._loose.popitem()
            self._write(frame.encode_frame(kind, 0, body))
        while self._records and self.connection is not None and not self.connection.paused:
            self._send(frame.DATA, self._take_batch())

    def _take_batch(self) -> bytes:
        if len(self._records) <= RECORDS_BATCH and self._records_bytes <= BATCH_BYTES:
            taken, self._records = self._records, []
            self._records_bytes = 0
            return b"".join(taken)
        size = count = 0
        for record in self._records[:RECORDS_BATCH]:
            if count and size + len(record) > BATCH_BYTES:
                break
            size += len(record)
            count += 1
        taken = self._records[:count]
        del self._records[:count]
        self._records_bytes -= size
        return b"".join(taken)

    def _send(self, kind: int, body: bytes) -> None:
        self.sent += 1
        data = frame.encode_frame(kind, self.sent, body)
        self._unacknowledged.append((self.sent, data))
        self._unacknowledged_bytes += len(data)
        self._write(data)

    def _write(self, data: bytes) -> None:
        if self.connection is not None:
            self.bytes_out += len(data)
            self.connection.write(data)

    def acknowledge(self, received: int) -> None:
        """The other side has everything up to this frame."""
        if received > self.sent:
            raise RemoteProtocolError(f"it acknowledges frame {received}; {self.sent} were sent")
        while self._unacknowledged and self._unacknowledged[0][0] <= received:
            self._unacknowledged_bytes -= len(self._unacknowledged.popleft()[1])

    def accept(self, arrived: Frame) -> bool:
        """Is this the next frame? A repeated one is not; a gap is an error."""
        if arrived.number <= self.received:
            return False
        if arrived.number != self.received + 1:
            raise RemoteProtocolError(f"frame {arrived.number} after frame {self.received}: a gap")
        self.received = arrived.number
        self.bytes_in += len(arrived.body)
        self._unconfirmed_bytes += len(arrived.body) + frame.HEADER_BYTES
        if self._unconfirmed_bytes >= ACK_BYTES:
            self.confirm()
        return True

    def confirm(self) -> None:
        """Acknowledge what arrived since the last time."""
        if self._unconfirmed_bytes:
            self._unconfirmed_bytes = 0
            self.send_loose(frame.ACK, greeting.encode(greeting.Acknowledgement(self.received)))

"""What waits for one other process, and the connection to it if there is one.

Messages wait while there is no connection or its buffer is full, and leave in batches. Of STATUS only the last one
waits. What would exceed the limit is dropped: the core finds out what is missing and sends it again. So a process that
does not read costs its peers a bounded amount of memory.
"""

from __future__ import annotations

from collections import deque

from cubecast.core.membership.messages import ANY_LIFE
from cubecast.live.connection import Connection
from cubecast.wire import frame

BATCH_BYTES = 256 << 10


class Peer:
    """One other process, by its name; its life is that of the connection."""

    def __init__(self, name: str, queue_bytes_max: int) -> None:
        """Not connected."""
        self.name = name
        self.connection: Connection | None = None
        self.incarnation = 0
        self.dialled_by = ""
        self.dial_after = 0.0
        self.dial_pause = 0.0
        self.is_dialling = False
        self.used_at = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.dropped = 0
        self.connections = 0
        self.waiting_bytes = 0
        self._queue_bytes_max = queue_bytes_max
        self._queue: deque[tuple[int, bytes]] = deque()
        self._status: tuple[int, bytes] | None = None

    @property
    def is_up(self) -> bool:
        """Is there a connection?"""
        return self.connection is not None

    def add(self, life: int, encoded: bytes) -> None:
        """Send a message to this life of the process, or to any, when there is room."""
        if self.waiting_bytes + len(encoded) > self._queue_bytes_max:
            self.dropped += 1
            return
        self._queue.append((life, encoded))
        self.waiting_bytes += len(encoded)

    def add_status(self, life: int, encoded: bytes) -> None:
        """Send a STATUS, unless a newer one comes before there is room."""
        self._status = (life, encoded)

    def attach(self, connection: Connection, incarnation: int, dialled_by: str) -> None:
        """Go on over a new connection; what waited for an earlier life is dropped as it leaves."""
        if self.connection is not None:
            self.connection.close()
        self.connection = connection
        self.incarnation = incarnation
        self.dialled_by = dialled_by
        self.dial_pause = 0.0
        self.connections += 1

    def detach(self, connection: Connection) -> bool:
        """Forget a connection that ended; was it this one's?"""
        if self.connection is not connection:
            return False
        self.connection = None
        return True

    def flush(self) -> None:
        """Send what waits, in one frame or a few; not while the connection is down or full."""
        connection = self.connection
        if connection is None:
            return
        if self._status is not None and not connection.paused:
            (life, encoded), self._status = self._status, None
            if life in (ANY_LIFE, self.incarnation):
                self._write([encoded], len(encoded))
        while self._queue and not connection.paused:
            self._write(*self._take_batch())

    def _take_batch(self) -> tuple[list[bytes], int]:
        batch: list[bytes] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0][1]) <= BATCH_BYTES):
            life, encoded = self._queue.popleft()
            self.waiting_bytes -= len(encoded)
            if life in (ANY_LIFE, self.incarnation):
                batch.append(encoded)
                size += len(encoded)
        return batch, size

    def _write(self, batch: list[bytes], size: int) -> None:
        if batch and self.connection is not None:
            self.bytes_out += size + frame.HEADER_BYTES
            self.connection.write(b"".join((frame.encode_header(frame.MEMBERSHIP, 0, size), *batch)))

    def forget(self) -> None:
        """Drop what waits, and close the connection."""
        self._queue.clear()
        self._status = None
        self.waiting_bytes = 0
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()

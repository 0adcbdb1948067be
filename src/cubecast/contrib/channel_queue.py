"""The queue of one channel: filled by the thread of the bus, read in any event loop.

Messages wait as bytes and are decoded by their reader, so that no two readers share an object. A message that waited
longer than its expiry is dropped. `put` never waits: a queue that holds `capacity` messages refuses more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque


class ChannelQueue:
    """Messages of one channel, and the readers that wait for one."""

    def __init__(self) -> None:
        """Empty."""
        self.users = 0
        """Calls that are about to read from it; counted by its owner."""
        self.expired = 0
        """Messages that were dropped because they were not read in time."""
        self._lock = threading.Lock()
        self._messages: deque[tuple[float, bytes]] = deque()
        self._readers: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def put(self, message: bytes, *, capacity: int, expires_at: float) -> bool:
        """Add a message; False if the queue is full."""
        with self._lock:
            self._drop_expired()
            if len(self._messages) >= capacity:
                return False
            self._messages.append((expires_at, message))
            self._wake()
        return True

    def take(self) -> tuple[float, bytes] | None:
        """The oldest message and when it expires, or None."""
        with self._lock:
            self._drop_expired()
            return self._messages.popleft() if self._messages else None

    async def get(self) -> bytes:
        """Wait for the oldest message; safe to cancel."""
        while True:
            with self._lock:
                self._drop_expired()
                if self._messages:
                    return self._messages.popleft()[1]
                loop = asyncio.get_running_loop()
                reader: asyncio.Future[None] = loop.create_future()
                self._readers.append((loop, reader))
            try:
                await reader
            except asyncio.CancelledError:
                with self._lock:
                    if (loop, reader) in self._readers:
                        self._readers.remove((loop, reader))
                    else:
                        self._wake()  # it was woken for a message that another reader must take now
                raise

    def clear(self) -> None:
        """Drop all messages."""
        with self._lock:
            self._messages.clear()

    @property
    def is_idle(self) -> bool:
        """Is there neither a message nor a reader?"""
        with self._lock:
            self._drop_expired()
            return not self.users and not self._messages and not self._readers

    def _drop_expired(self) -> None:
        now = time.monotonic()
        while self._messages and self._messages[0][0] <= now:
            self._messages.popleft()
            self.expired += 1

    def _wake(self) -> None:
        while self._readers:
            loop, reader = self._readers.popleft()
            try:
                loop.call_soon_threadsafe(_finish, reader)
            except RuntimeError:  # the loop of this reader was closed
                continue
            return


def _finish(reader: asyncio.Future[None]) -> None:
    if not reader.done():
        reader.set_result(None)

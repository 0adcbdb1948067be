"""One TCP connection: bytes in, frames out; who is at the other end is settled before anything else is read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from cubecast.errors import RemoteProtocolError
from cubecast.wire import frame
from cubecast.wire.frame import Frame, FrameReader

GREETING_BYTES_MAX = 4096

OnFrame = Callable[["Connection", Frame], None]
OnEnd = Callable[["Connection", str], None]
OnResume = Callable[["Connection"], None]


class Connection(asyncio.Protocol):
    """Feeds frames to `on_frame`; a frame that is not one ends the connection with a reason."""

    def __init__(
        self,
        *,
        on_made: Callable[[Connection], None],
        on_frame: OnFrame,
        on_end: OnEnd,
        on_resume: OnResume,
        high_water: int,
        socket_bytes: int,
        stall_s: float,
    ) -> None:
        """Limits are tight until `open_up` says that the other end is known."""
        self.paused = False
        self.peer = -1
        self.reason = ""
        self.heard = False
        self._on_made = on_made
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_resume = on_resume
        self._high_water = high_water
        self._socket_bytes = socket_bytes
        self._stall_s = stall_s
        self._reader = FrameReader(GREETING_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._ended = False

    def open_up(self, body_bytes_max: int, on_frame: OnFrame) -> None:
        """The other end is a member: take frames of full size, and give them to `on_frame`."""
        self._reader.body_bytes_max = body_bytes_max
        self._on_frame = on_frame

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._high_water)
        self._set_up_socket(self._transport.get_extra_info("socket"))
        self._on_made(self)

    def _set_up_socket(self, raw: socket.socket) -> None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            raw.setsockopt(socket.SOL_SOCKET, option, self._socket_bytes)
        # A path that swallows everything ends in an error, and a new connection, not in a quarter of an hour of trying.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * self._stall_s))

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        self.heard = True
        try:
            for arrived in self._reader.feed(data):
                if self._ended:
                    return
                self._on_frame(self, arrived)
        except RemoteProtocolError as error:
            self.end(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self._ended = True
        self._on_end(self, self.reason or (str(error) if error else "it closed the connection"))

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self.paused = True

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self.paused = False
        self._on_resume(self)

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The other end's certificate, None in plaintext."""
        return cast("dict[str, Any] | None", self._transport and self._transport.get_extra_info("peercert"))

    @property
    def address(self) -> str:
        """Where the other end is, for the log."""
        name = self._transport and self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "?"

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for the system to take them."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None and not self._ended:
            self._transport.write(data)

    def send(self, kind: int, body: bytes) -> None:
        """Send a frame without a number."""
        self.write(frame.encode_frame(kind, 0, body))

    def close(self) -> None:
        """End the connection after what was written."""
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def end(self, reason: str) -> None:
        """End the connection for a reason that goes to the log."""
        self.reason = self.reason or reason
        self.close()

    def abort(self, reason: str) -> None:
        """End the connection at once, whatever was written."""
        self.reason = self.reason or reason
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

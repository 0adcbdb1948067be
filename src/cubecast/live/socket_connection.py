"""One TCP or TLS connection as a pipe of bytes: no framing, no protocol, only the events of asyncio.

| state   | `is_made` | `is_open` | callbacks that may still come                                     |
|---------|-----------|-----------|-------------------------------------------------------------------|
| new     | no        | no        | `on_made`                                                         |
| open    | yes       | yes       | `on_data`, `on_pause`, `on_resume`, `on_lost`                     |
| closing | yes       | no        | `on_lost`, once what was written is sent, or `stall_s` has passed |
| ended   | yes or no | no        | none                                                              |

`close` leads from open to closing; `abort`, called by the owner, leads to ended at once and reports nothing; the end of
the connection reports `on_lost` once. A peer of a TLS connection is authenticated before `on_made`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from cubecast.live.credentials import explain_tls_error
from cubecast.live.path_quality import PathQuality, path_quality

_numbers = itertools.count(1)


class SocketConnection(asyncio.Protocol):
    """Passes bytes on; its `number` is unique in this process."""

    def __init__(
        self,
        *,
        on_made: Callable[[SocketConnection], None],
        on_data: Callable[[SocketConnection, bytes], None],
        on_lost: Callable[[SocketConnection, str], None],
        on_pause: Callable[[SocketConnection], None],
        on_resume: Callable[[SocketConnection], None],
        high_water: int,
        socket_bytes: int,
        stall_s: float,
        dialled: str = "",
    ) -> None:
        """`high_water` bytes unsent call `on_pause`; `stall_s` without progress ends the connection (TCP_USER_TIMEOUT).

        `dialled` is the member address that this process dialled, "" for a connection that it accepted.
        """
        self.number = next(_numbers)
        self.dialled = dialled
        self.address = dialled or "?"
        self.certificate: dict[str, Any] | None = None
        self.is_made = False
        self.is_open = False
        self.is_paused = False
        self.has_received = False
        self.on_ended: Callable[[SocketConnection, str], None] | None = None
        """Called once, before `on_lost`, however the connection ends; `Listener` sets it."""
        self._on_made = on_made
        self._on_data = on_data
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._on_resume = on_resume
        self._high_water = high_water
        self._socket_bytes = socket_bytes
        self._stall_s = stall_s
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._is_ended = False
        self._close_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        """Number and address, for the log."""
        return f"<SocketConnection {self.number} {self.address}>"

    # Called by the owner.

    def write(self, data: bytes) -> None:
        """Send bytes; ignored when the connection is not open."""
        if self.is_open:
            self._transport.write(data)  # type: ignore[union-attr]

    def writelines(self, data: Sequence[bytes]) -> None:
        """Send several pieces in order; ignored when the connection is not open."""
        if self.is_open:
            self._transport.writelines(data)  # type: ignore[union-attr]

    def close(self, reason: str) -> None:
        """End the connection after what was written, at the latest after `stall_s`; `on_lost` follows."""
        if self.is_open:
            assert self._transport is not None
            self.is_open = False
            self._reason = reason
            self._close_timer = asyncio.get_running_loop().call_later(self._stall_s, self._transport.abort)
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once; nothing is called back afterwards."""
        if not self._is_ended:
            self._end(reason)
            if self._transport is not None:
                self._transport.abort()

    def drop(self, reason: str) -> None:
        """End the connection at once on behalf of another component: `on_lost` informs the owner."""
        if self.is_made and not self._is_ended:
            assert self._transport is not None
            self.is_open = False
            self._reason = self._reason or reason
            self._transport.abort()

    @property
    def path_quality(self) -> PathQuality | None:
        """Round-trip time and retransmissions, as far as the system knows them."""
        return path_quality(self._transport.get_extra_info("socket")) if self._transport is not None else None

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_ended:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._high_water)
        self._set_up_socket(self._transport.get_extra_info("socket"))
        self.address = format_address(self._transport.get_extra_info("peername")) or self.address
        self.certificate = self._transport.get_extra_info("peercert")
        self.is_made = self.is_open = True
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        if self.is_open:
            self.has_received = True
            self._on_data(self, data)

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self.is_paused = True
        if self.is_open:
            self._on_pause(self)

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self.is_paused = False
        if self.is_open:
            self._on_resume(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        if not self._is_ended:
            reason = self._reason or (explain_tls_error(error) if error else self._explain_end())
            self._end(reason)
            self._on_lost(self, reason)

    def _explain_end(self) -> str:
        # The dialler's half of TLS 1.3 ends before the server reads its certificate, and asyncio sends no alert.
        if self.dialled and self.certificate is not None and not self.has_received:
            return (
                "the peer closed the connection after TLS: see its log, it may have refused this member's certificate"
            )
        return "the peer closed the connection"

    def _end(self, reason: str) -> None:
        self.is_open = False
        self._is_ended = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        if self.on_ended is not None:
            self.on_ended(self, reason)

    def _set_up_socket(self, raw: socket.socket) -> None:
        # macOS refuses options of a socket that the peer has closed already; connection_lost follows by itself.
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                raw.setsockopt(socket.SOL_SOCKET, option, self._socket_bytes)
            # Without it the system retransmits to a dead path for a quarter of an hour before it reports an error.
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * self._stall_s))


def format_address(name: tuple[Any, ...] | None) -> str:
    """A socket's name as "host:port" ("[::1]:7001" for IPv6), "" if there is none."""
    if not name:
        return ""
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

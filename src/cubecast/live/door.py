"""Where strangers knock: accepted sockets go through TLS here, so that whoever fails is counted and logged.

An event loop whose server does TLS drops a failed handshake in silence. Here each socket is accepted by us and then
given to the loop; the reason of a failure (no certificate, an expired one, one of another group) goes to `on_refused`.
At most `room` sockets are in the middle of a handshake; further ones are closed at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from cubecast.live.connection import Connection


class Door:
    """A listening socket and the handshakes that go on behind it."""

    def __init__(
        self,
        *,
        context: ssl.SSLContext,
        timeout_s: float,
        room: int,
        new_connection: Callable[[], Connection],
        on_refused: Callable[[str, str], None],
    ) -> None:
        """`on_refused(address, reason)` hears of every failure."""
        self._context = context
        self._timeout_s = timeout_s
        self._room = room
        self._new_connection = new_connection
        self._on_refused = on_refused
        self._handshakes: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled; the listening socket is closed then."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                accepted, name = await loop.sock_accept(listener)
                address = f"{name[0]}:{name[1]}"
                if len(self._handshakes) >= self._room:
                    accepted.close()
                    self._on_refused(address, "too many connections are in the middle of TLS")
                    continue
                task = loop.create_task(self._welcome(accepted, address))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
        finally:
            listener.close()
            for task in list(self._handshakes):
                task.cancel()

    async def _welcome(self, accepted: socket.socket, address: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._new_connection, accepted, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except (OSError, TimeoutError) as error:
            accepted.close()
            self._on_refused(address, f"no TLS: {str(error) or type(error).__name__}")


async def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket at that address."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, name = found[0]
    listener = socket.create_server(name[:2], family=family, backlog=256)
    listener.setblocking(False)
    return listener

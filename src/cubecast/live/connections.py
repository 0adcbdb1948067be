"""The sockets of one member: its listener, and the connections it accepted or dialled, by number.

They pass bytes to the member and carry out its effects. TLS is here, because it is I/O: the member gets the addresses
that a peer's certificate names, and decides.

An accepted connection is handed to the member when its first bytes arrive, unless they request a report
(`live/member_report.py`). Requests are answered here, at most `ANSWERS_MAX` at a time; one more displaces the oldest.

A plaintext member that receives TLS answers with a line of text and closes: the dialler's TLS then reports that
the peer does not speak TLS, and in the other direction this side sees the first bytes of a TLS record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from cubecast.live.credentials import URI, Credentials, explain_tls_error
from cubecast.live.dialling import connect_first
from cubecast.live.listener import Listener
from cubecast.live.member_report import REQUESTS
from cubecast.live.path_quality import PathQuality
from cubecast.live.socket_connection import SocketConnection
from cubecast.member.effects import Close
from cubecast.member.member import Member
from cubecast.member.settings import Settings, parse_address
from cubecast.wire.frame import DATA, HEADER_BYTES, kind_of

log = logging.getLogger("cubecast.live")

_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of an alert and of a handshake of TLS; no frame of cubecast starts with them."""
_NOT_TLS = b"this member speaks plaintext\n"
ANSWERS_MAX = 16
_SPEAKS_TLS = "the peer uses TLS, but this member was started with plaintext=True (--plaintext)"


class Connections:
    """All sockets of one member except that of the status page."""

    def __init__(
        self,
        member: Member,
        settings: Settings,
        credentials: Credentials | None,
        *,
        touch: Callable[[], None],
        before_control: Callable[[], None],
        arrived: Callable[[int], None],
        fail: Callable[[Exception], None],
        on_refused: Callable[[str, str], None],
        answer: Callable[[bytes], bytes],
    ) -> None:
        """`touch` is called after each call of the member (`arrived` after bytes), `fail` when the member raised.

        `before_control` is called before the member gets bytes that do not begin with application messages.
        `answer` returns the complete answer to a request for a report.
        """
        self._member = member
        self._settings = settings
        self._credentials = credentials
        self._touch = touch
        self._before_control = before_control
        self._arrived = arrived
        self._fail = fail
        self._answer = answer
        self._answering: dict[int, SocketConnection] = {}
        """Connections that wait for the rest of an answer to be sent."""
        self._open: dict[int, SocketConnection] = {}
        self._known: dict[int, str] = {}
        """The IP addresses of established connections."""
        self._dialling: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._listener = Listener(
            credentials=credentials,
            new_connection=self._new_connection,
            on_refused=on_refused,
            known_peers=self._known_peers,
            handshakes_max=settings.handshakes_max,
            timeout_s=settings.handshake_timeout_s,
        )

    async def start(self, listen: str) -> None:
        """Bind the address and accept."""
        await self._listener.start(*parse_address(listen))

    async def stop(self) -> None:
        """End everything at once; bytes not sent yet are sent if the system takes them."""
        self._is_stopped = True
        for task in self._dialling:
            task.cancel()
        for connection in list(self._open.values()):
            connection.close("this member stops")
        self._open.clear()
        self._abort_answers("this member stops")
        await self._listener.close()

    def abort(self) -> None:
        """Abort every connection: nothing that this member does is visible any more."""
        self._is_stopped = True
        for task in self._dialling:
            task.cancel()
        for connection in list(self._open.values()):
            connection.abort("this member failed")
        self._open.clear()
        self._abort_answers("this member failed")

    def _abort_answers(self, reason: str) -> None:
        for connection in list(self._answering.values()):
            connection.abort(reason)
        self._answering.clear()

    # Effects of the member.

    def write(self, number: int, buffers: list[bytes]) -> None:
        """Send bytes."""
        connection = self._open.get(number)
        if connection is not None:
            connection.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))

    def close(self, close: Close) -> None:
        """End a connection; the member gets no more events of it."""
        connection = self._open.pop(close.connection, None)
        if connection is None:
            return
        if close.at_once:
            connection.abort(close.reason)
        else:
            connection.close(close.reason)

    def establish(self, number: int) -> None:
        """The member accepted the peer's handshake."""
        connection = self._open.get(number)
        if connection is not None:
            self._known[number] = connection.address.rpartition(":")[0].strip("[]")
            self._listener.established(connection)

    def dial(self, name: str) -> None:
        """Connect to a member, once."""
        task = asyncio.get_running_loop().create_task(self._dial(name))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    def path_quality(self, number: int) -> PathQuality | None:
        """The quality of the path of an open connection; None if the system does not report it."""
        connection = self._open.get(number)
        return None if connection is None else connection.path_quality

    def close_revoked(self) -> int:
        """End the connections whose certificates were revoked; returns how many."""
        assert self._credentials is not None
        revoked = [one for one in self._open.values() if self._credentials.is_revoked(one.certificate)]
        for connection in revoked:
            connection.drop("the peer's certificate was revoked")
        return len(revoked)

    async def _dial(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            host, port = parse_address(name)
            tls: dict[str, Any] = {}
            if self._credentials is not None:
                tls = {"ssl": self._credentials.client, "server_hostname": host}
            async with asyncio.timeout(self._settings.handshake_timeout_s):
                await connect_first(
                    host,
                    port,
                    lambda address: loop.create_connection(lambda: self._new_connection(name), address, port, **tls),
                )
        except Exception as error:
            reason = explain_tls_error(error)
            self._call(lambda: self._member.dial_failed(name, reason, time.monotonic_ns()))

    # Events of sockets.

    def _new_connection(self, dialled: str = "") -> SocketConnection:
        return SocketConnection(
            on_made=self._made,
            on_data=self._first_data_received,
            on_lost=self._lost,
            on_pause=self._paused,
            on_resume=self._resumed,
            high_water=self._settings.connection_bytes,
            socket_bytes=self._settings.socket_bytes,
            stall_s=max(self._settings.suspect_after_s, self._settings.handshake_timeout_s),
            dialled=dialled,
        )

    def _made(self, connection: SocketConnection) -> None:
        if self._is_stopped:
            connection.abort("this member stops")
            return
        self._open[connection.number] = connection
        if connection.dialled:
            self._hand_over(connection)

    def _hand_over(self, connection: SocketConnection) -> None:
        """Let the member know the connection."""
        named = None if self._credentials is None else addresses_of(connection.certificate)
        address = connection.address
        now_ns = time.monotonic_ns()
        self._call(lambda: self._member.connection_made(connection.number, connection.dialled, named, address, now_ns))

    def _first_data_received(self, connection: SocketConnection, data: bytes) -> None:
        connection._on_data = self._data_received
        if self._credentials is None and data[:2] in _TLS_RECORDS:
            self._refuse_tls(connection)
        elif connection.dialled:
            self._data_received(connection, data)
        elif data.startswith(REQUESTS):
            self._send_answer(connection, data)
        else:
            self._hand_over(connection)
            self._data_received(connection, data)

    def _send_answer(self, connection: SocketConnection, request: bytes) -> None:
        """Send a report and close; a peer that does not read it is cut off after `stall_s`."""
        self._open.pop(connection.number, None)
        self._listener.established(connection)
        while len(self._answering) >= ANSWERS_MAX:
            self._answering.pop(next(iter(self._answering))).abort("displaced by a newer request")
        self._answering[connection.number] = connection
        try:
            connection.write(self._answer(request))
        except Exception:  # it ends one request, not the member
            log.exception("request failed peer=%s", connection.address)
        connection.close("a request was answered")

    def _refuse_tls(self, connection: SocketConnection) -> None:
        if not connection.dialled:
            connection.write(_NOT_TLS)
        self._open.pop(connection.number, None)
        connection.close(_SPEAKS_TLS)
        now_ns = time.monotonic_ns()
        self._call(lambda: self._member.connection_lost(connection.number, _SPEAKS_TLS, now_ns))

    def _data_received(self, connection: SocketConnection, data: bytes) -> None:
        if connection.number not in self._open:
            return
        try:
            if len(data) < HEADER_BYTES or kind_of(data) != DATA:
                self._before_control()
            self._member.data_received(connection.number, data, time.monotonic_ns())
        except Exception as error:
            self._fail(error)
        self._arrived(len(data))

    def _lost(self, connection: SocketConnection, reason: str) -> None:
        self._answering.pop(connection.number, None)
        if self._open.pop(connection.number, None) is not None:
            now_ns = time.monotonic_ns()
            self._call(lambda: self._member.connection_lost(connection.number, reason, now_ns))

    def _paused(self, connection: SocketConnection) -> None:
        self._call(lambda: self._member.pause_writing(connection.number))

    def _resumed(self, connection: SocketConnection) -> None:
        self._call(lambda: self._member.resume_writing(connection.number))

    def _call(self, call: Callable[[], None]) -> None:
        """Call the member; a bug in it ends the member, not the socket it came from."""
        if self._is_stopped:
            return
        try:
            call()
        except Exception as error:
            self._fail(error)
        self._touch()

    def _known_peers(self) -> set[str]:
        """The IP addresses of members of the view, and of connected peers."""
        self._known = {number: ip for number, ip in self._known.items() if number in self._open}
        known = set(self._known.values())
        view = self._member.view
        for who in view.members if view is not None else ():
            with contextlib.suppress(Exception):
                known.add(parse_address(who.name)[0])
        return known


def addresses_of(certificate: dict[str, Any] | None) -> tuple[str, ...]:
    """The member addresses that a certificate names."""
    named = (certificate or {}).get("subjectAltName", ())
    return tuple(value.removeprefix(URI) for kind, value in named if kind == "URI" and value.startswith(URI))

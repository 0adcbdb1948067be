"""A member's listening socket: accepts connections, runs TLS on them, and limits those that are not established yet.

A handshake is an accepted socket until the driver calls `established`: TLS and then the greeting. Each handshake ends
in exactly one call of `established`, or of `on_refused` with a reason, unless the listener is closed before.

| field        | shape                    | meaning                                |
|--------------|--------------------------|----------------------------------------|
| `handshakes` | connection → `Handshake` | unfinished handshakes, in order of age |

Invariants: at most `handshakes_max` handshakes are unfinished, and each ends within `timeout_s`. A stranger's address
(neither loopback nor one of `known_peers()`) has at most `handshakes_per_address` of them.

A new connection is always accepted: at a limit it displaces the oldest handshake that shares the limit. A member
finishes in milliseconds, so idle sockets are displaced first. At `handshakes_max` the order of displacement is: those
that have not proved a certificate before those that have; among them strangers, as long as they hold more than a
quarter of the places, before known peers. So strangers cannot displace known peers, and known peers leave a quarter of
the places to members that join from a new address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from cubecast.errors import LocalProtocolError
from cubecast.live.credentials import Credentials, explain_tls_error
from cubecast.live.rate_limited_log import RateLimitedLog
from cubecast.live.socket_connection import SocketConnection, format_address

BACKLOG = 256
ACCEPT_PAUSE_S = 0.1
ACCEPT_LOG_INTERVAL_S = 5.0

logger = logging.getLogger("cubecast.live")


@dataclass(eq=False, slots=True, kw_only=True)
class Handshake:
    """An accepted connection that is not established yet."""

    raw: socket.socket
    address: str
    ip: str
    is_known: bool
    connection: SocketConnection
    timer: asyncio.TimerHandle = field(init=False)
    task: asyncio.Task[None] = field(init=False)


class Listener:
    """Accepts connections at one address; `start` binds it, `close` ends it and every unfinished handshake."""

    def __init__(
        self,
        *,
        credentials: Credentials | None,
        new_connection: Callable[[], SocketConnection],
        on_refused: Callable[[str, str], None],
        known_peers: Callable[[], Collection[str]],
        handshakes_max: int = 64,
        handshakes_per_address: int = 8,
        timeout_s: float = 5.0,
    ) -> None:
        """Without credentials the connections are plaintext. `known_peers` returns IP addresses, not names.

        `on_refused(address, reason)` is for counting: the listener writes the log line itself.
        """
        if handshakes_max < 1 or handshakes_per_address < 1 or timeout_s <= 0:
            raise LocalProtocolError(
                f"handshakes_max={handshakes_max}, handshakes_per_address={handshakes_per_address}, "
                f"timeout_s={timeout_s}: all must be positive"
            )
        self._credentials = credentials
        self._new_connection = new_connection
        self._on_refused = on_refused
        self._known_peers = known_peers
        self._handshakes_max = handshakes_max
        self._handshakes_per_address = handshakes_per_address
        self._timeout_s = timeout_s
        self._handshakes: dict[SocketConnection, Handshake] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        """Until it is over nothing is accepted."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._name: tuple[str, int] = ("", 0)
        self._refusals = RateLimitedLog(logger)
        self._accept_errors = RateLimitedLog(logger, messages_max=1, interval_s=ACCEPT_LOG_INTERVAL_S)

    async def start(self, host: str, port: int) -> None:
        """Bind the address (port 0: any free one) and accept from now on."""
        assert self._listening is None, "the listener was started before"
        listening = await bind(host, port)
        self._name = listening.getsockname()[:2]
        self._listening = listening
        self._watch()
        self._sweep()

    @property
    def name(self) -> tuple[str, int]:
        """Host and port that are bound."""
        return self._name

    @property
    def handshakes(self) -> int:
        """How many accepted connections are not established yet."""
        return len(self._handshakes)

    def established(self, connection: SocketConnection) -> None:
        """The greeting is complete: the connection no longer counts as a handshake, and has no deadline."""
        self._forget(connection)

    async def close(self) -> None:
        """Close the listening socket and every unfinished handshake; established connections stay."""
        if self._listening is not None:
            self._unwatch()
            self._listening.close()
            self._listening = None
        for connection in list(self._handshakes):
            self._end(self._handshakes[connection], "the listener was closed")
        await asyncio.gather(*self._connecting, return_exceptions=True)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._refusals.flush()
        self._accept_errors.flush()

    # Accepting.

    def _watch(self) -> None:
        """Accept when a connection comes. (`sock_accept`, cancelled, can lose the connection that came just then.)"""
        self._pause = None
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def _unwatch(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        elif self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        """One connection; the loop calls again while there are more."""
        assert self._listening is not None
        try:
            accepted, name = self._listening.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Out of descriptors or buffers, or the peer is gone: neither is a reason to stop listening.
            self._accept_errors.warning("accept", "accept failed error=%s", error)
            self._unwatch()
            self._pause = asyncio.get_running_loop().call_later(ACCEPT_PAUSE_S, self._watch)
            return
        accepted.setblocking(False)
        self._begin_or_discard(accepted, name)

    def _begin_or_discard(self, accepted: socket.socket, name: tuple[str, int]) -> None:
        """An error of a callback costs one connection, not the listener."""
        try:
            self._begin(accepted, name)
        except Exception:
            logger.exception("accepted connection discarded peer=%s", format_address(name))
            accepted.close()

    def _begin(self, accepted: socket.socket, name: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        ip = _plain_ip(name[0])
        is_known = self._is_known(ip)
        connection = self._new_connection()
        self._make_room(ip, is_known=is_known)
        handshake = Handshake(
            raw=accepted, address=format_address(name), ip=ip, is_known=is_known, connection=connection
        )
        late = f"TLS and greeting not finished within {self._timeout_s:g} s"
        handshake.timer = loop.call_later(self._timeout_s, self._refuse, handshake, late)
        handshake.task = loop.create_task(self._connect(handshake))
        handshake.task.add_done_callback(self._connecting.discard)
        handshake.task.add_done_callback(lambda _: None if connection.is_made else accepted.close())
        self._connecting.add(handshake.task)
        connection.on_ended = self._connection_ended
        self._handshakes[connection] = handshake

    async def _connect(self, handshake: Handshake) -> None:
        """TLS, where there are credentials. The protocol's connection_made runs before this returns."""
        loop = asyncio.get_running_loop()
        options = {}
        if self._credentials is not None:
            # The handshake's own timer ends it first; the loop's limit of 60 s must not be shorter.
            options = {"ssl": self._credentials.server, "ssl_handshake_timeout": 2 * self._timeout_s}
        try:
            await loop.connect_accepted_socket(lambda: handshake.connection, handshake.raw, **options)  # type: ignore[arg-type]
        except Exception as error:
            is_gone = isinstance(error, ConnectionError | ssl.SSLEOFError)
            self._refuse(handshake, explain_tls_error(error), logging.INFO if is_gone else logging.WARNING)
        else:
            if not handshake.connection.is_made:
                self._refuse(handshake, "the peer closed the connection", logging.INFO)

    # Limits.

    def _is_known(self, ip: str) -> bool:
        return _is_loopback(ip) or ip in map(_plain_ip, self._known_peers())

    def _make_room(self, ip: str, *, is_known: bool) -> None:
        """Displace the oldest handshake of each limit that one more would exceed."""
        if not is_known:
            same = [one for one in self._handshakes.values() if one.ip == ip]
            if len(same) >= self._handshakes_per_address:
                self._refuse(same[0], f"displaced by a newer connection from {ip}")
        if len(self._handshakes) >= self._handshakes_max:
            self._refuse(self._first_to_displace(), "displaced by a newer connection, too many handshakes in progress")

    def _first_to_displace(self) -> Handshake:
        everyone = list(self._handshakes.values())
        unproved = [one for one in everyone if self._credentials is None or not one.connection.is_made] or everyone
        strangers = [one for one in unproved if not one.is_known]
        known = [one for one in unproved if one.is_known]
        if strangers and (not known or len(strangers) > self._handshakes_max // 4):
            return strangers[0]
        return known[0]

    # Ends.

    def _forget(self, connection: SocketConnection) -> bool:
        """Remove a handshake from the unfinished ones; returns whether it was one."""
        handshake = self._handshakes.pop(connection, None)
        if handshake is None:
            return False
        handshake.timer.cancel()
        return True

    def _end(self, handshake: Handshake, reason: str) -> bool:
        """End the handshake and its socket; False if it has ended already."""
        if not self._forget(handshake.connection):
            return False
        if handshake.connection.is_made:
            handshake.connection.drop(reason)
        elif handshake.task is not asyncio.current_task():
            handshake.task.cancel()
        return True

    def _refuse(self, handshake: Handshake, reason: str, level: int = logging.WARNING) -> None:
        if self._end(handshake, reason):
            self._report(handshake, reason, level)

    def _connection_ended(self, connection: SocketConnection, reason: str) -> None:
        """The peer or the driver ended it; the driver logs its own refusals."""
        handshake = self._handshakes.get(connection)
        if handshake is not None:
            self._forget(connection)
            self._report(handshake, reason, logging.INFO)

    def _report(self, handshake: Handshake, reason: str, level: int) -> None:
        self._refusals.log(level, handshake.ip, "connection refused peer=%s reason=%s", handshake.address, reason)
        self._on_refused(handshake.address, reason)

    def _sweep(self) -> None:
        self._refusals.sweep()
        self._accept_errors.sweep()
        self._sweep_timer = asyncio.get_running_loop().call_later(ACCEPT_LOG_INTERVAL_S, self._sweep)


async def bind(host: str, port: int) -> socket.socket:
    """A listening socket at the first address of that name that can be bound."""
    error: OSError | None = None
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as failure:
        found, error = [], failure
    for family, _, _, _, name in found:
        try:
            listening = socket.create_server(name, family=family, backlog=BACKLOG)
        except OSError as failure:
            error = error or failure
        else:
            listening.setblocking(False)
            return listening
    cause = "no such address" if error is None else (error.strerror or str(error)).partition(" (while ")[0]
    raise LocalProtocolError(
        f"cannot listen at {host}:{port} ({cause}); choose an address of this machine and a free port"
    ) from error


def _plain_ip(host: str) -> str:
    """One spelling per address: no scope, and IPv4 where IPv6 only wraps it. What is not an IP address stays."""
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return False

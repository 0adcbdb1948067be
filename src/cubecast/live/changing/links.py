"""Connections to whoever the core speaks to: it listens, dials on demand, greets, and refuses who does not belong.

Names are addresses: whoever is named in a view can be dialled. A connection is made when there is something to say, and
made again, with growing pauses, as long as there is. When two dialled each other at once, the connection of the lower
name stays. One end of a connection is one life of a member; a later life replaces an earlier one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from cubecast.core.membership import MemberId
from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.changing.peer import Peer
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.connection import Connection
from cubecast.live.credentials import Credentials, require_address
from cubecast.live.door import Door, open_listener
from cubecast.live.settings import parse_address
from cubecast.wire import frame, greeting
from cubecast.wire.frame import Frame
from cubecast.wire.greeting import Refusal, terms_digest
from cubecast.wire.introduction import Introduction, decode_introduction, encode_introduction
from cubecast.wire.membership import FORMAT

log = logging.getLogger("cubecast.live")

RETRY_FIRST_S, RETRY_MAX_S = 0.05, 1.0
DUPLICATE = "another connection between the two is kept"


class Links:
    """All connections of one member. `on_batch(source, body)` gets what arrives from a member of the group."""

    def __init__(
        self,
        *,
        group: str,
        me: MemberId,
        settings: ChangingSettings,
        credentials: Credentials | None,
        on_batch: Callable[[MemberId, bytes], None],
    ) -> None:
        """Nothing is opened before `listen`."""
        self.group = group
        self.me = me
        self.settings = settings
        self.peers: dict[str, Peer] = {}
        self.refused = 0
        self._credentials = credentials
        self._terms = terms_digest(group, *settings.agreed)
        self._on_batch = on_batch
        self._dialled: dict[Connection, str] = {}
        self._greeting: dict[Connection, asyncio.TimerHandle] = {}
        self._known: dict[Connection, Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def listen(self) -> None:
        """Open the port."""
        host, port = parse_address(self.me.name)
        try:
            if self._credentials is None:
                self._server = await self._loop.create_server(self._new_connection, host, port, backlog=256)
            else:
                self._start(self._new_door(self._credentials).serve(await open_listener(host, port)))
        except OSError as error:
            raise LocalProtocolError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    def begin_life(self, me: MemberId) -> None:
        """Greet as this life from now on; connections of the earlier one end."""
        self.me = me
        for connection in list(self._greeting):
            connection.end("a new life of this member begins")
        for peer in self.peers.values():
            peer.forget()

    async def close(self) -> None:
        """Close the port and every connection, after what was written."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._greeting):
            connection.end("this member leaves")
        self.flush()
        for peer in self.peers.values():
            peer.forget()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Sending.

    def send(self, to: MemberId, encoded: bytes, *, is_status: bool) -> None:
        """Put a message into the queue for a member."""
        peer = self._peer(to.name)
        peer.used_at = self._loop.time()
        if is_status:
            peer.add_status(to.incarnation, encoded)
        else:
            peer.add(to.incarnation, encoded)
        if not peer.is_up:
            self._dial_if_due(peer)

    def flush(self) -> None:
        """Send what waits for everybody."""
        for peer in self.peers.values():
            peer.flush()

    def retain(self, names: Collection[str], idle_s: float) -> None:
        """Close the connections to processes that are not among these and to whom nothing was said lately."""
        before = self._loop.time() - idle_s
        for name in [name for name, peer in self.peers.items() if name not in names and peer.used_at < before]:
            self.peers.pop(name).forget()

    def _peer(self, name: str) -> Peer:
        peer = self.peers.get(name)
        if peer is None:
            peer = self.peers[name] = Peer(name, self.settings.queue_bytes)
            peer.used_at = self._loop.time()
        return peer

    # Dialling.

    def _dial_if_due(self, peer: Peer) -> None:
        if peer.is_dialling or self._closed or self._loop.time() < peer.dial_after:
            return
        peer.is_dialling = True
        self._start(self._dial(peer))

    async def _dial(self, peer: Peer) -> None:
        context = self._credentials.client if self._credentials else None
        try:
            host, port = parse_address(peer.name)
            async with asyncio.timeout(self.settings.greeting_timeout_s):
                await self._loop.create_connection(lambda: self._new_connection(peer.name), host, port, ssl=context)
        except (OSError, TimeoutError, LocalProtocolError) as error:
            log.debug("%s does not answer: %s", peer.name, error)
        finally:
            peer.is_dialling = False
            peer.dial_pause = min(max(2 * peer.dial_pause, RETRY_FIRST_S), RETRY_MAX_S)
            peer.dial_after = self._loop.time() + peer.dial_pause

    def _new_connection(self, dialled: str = "") -> Connection:
        def made(connection: Connection) -> None:
            self._begin_greeting(connection, dialled)

        return Connection(
            on_made=made,
            on_frame=self._be_welcomed if dialled else self._greet,
            on_end=self._ended,
            on_resume=self._resume,
            high_water=self.settings.connection_bytes,
            socket_bytes=self.settings.socket_bytes,
            stall_s=self.settings.suspect_after_s,
        )

    def _new_door(self, credentials: Credentials) -> Door:
        return Door(
            context=credentials.server,
            timeout_s=self.settings.greeting_timeout_s,
            room=self.settings.greetings_max,
            new_connection=self._new_connection,
            on_refused=self._note_refused,
        )

    def _note_refused(self, address: str, reason: str) -> None:
        self.refused += 1
        log.warning("a connection with %s was not made: %s", address, reason)

    # Greeting.

    def _begin_greeting(self, connection: Connection, dialled: str) -> None:
        if not dialled and len(self._greeting) >= self.settings.greetings_max:
            connection.abort("too many connections are greeting")
            return
        self._greeting[connection] = self._loop.call_later(
            self.settings.greeting_timeout_s, connection.abort, "it did not greet in time"
        )
        if dialled:
            self._dialled[connection] = dialled
            connection.send(frame.HELLO, encode_introduction(self._introduction(dialled)))

    def _introduction(self, towards: str) -> Introduction:
        return Introduction(
            group=self.group,
            name=self.me.name,
            incarnation=self.me.incarnation,
            towards=towards,
            format=FORMAT,
            terms=self._terms,
        )

    def _greet(self, connection: Connection, arrived: Frame) -> None:
        """The first frame of whoever dialled us."""
        if arrived.kind != frame.HELLO:
            raise RemoteProtocolError(f"it began with a frame of kind {arrived.kind}, not with a greeting")
        try:
            said = decode_introduction(arrived.body)
            self._judge(connection, said)
            peer = self._peer(said.name)
            self._judge_life(peer, said, kept_if_dialled_by=self.me.name)
        except RemoteProtocolError as error:
            connection.send(frame.REFUSE, greeting.encode(Refusal(reason=str(error)[:256])))
            raise
        connection.send(frame.WELCOME, encode_introduction(self._introduction(said.name)))
        self._attach(connection, peer, said, dialled_by=said.name)

    def _be_welcomed(self, connection: Connection, arrived: Frame) -> None:
        """The answer of whom we dialled."""
        if arrived.kind == frame.REFUSE:
            raise RemoteProtocolError(f"it refused: {greeting.decode(Refusal, arrived.body).reason}")
        if arrived.kind != frame.WELCOME:
            raise RemoteProtocolError(f"it answered with a frame of kind {arrived.kind}, not with a greeting")
        said = decode_introduction(arrived.body)
        if said.name != self._dialled[connection]:
            raise RemoteProtocolError(f"it says it is {said.name}, not {self._dialled[connection]}")
        self._judge(connection, said)
        peer = self._peer(said.name)
        self._judge_life(peer, said, kept_if_dialled_by=said.name)
        self._attach(connection, peer, said, dialled_by=self.me.name)

    def _judge(self, connection: Connection, said: Introduction) -> None:
        """Is this a process of our group, and the one it claims to be?"""
        if said.format != FORMAT:
            raise RemoteProtocolError(f"it speaks format {said.format}, this member format {FORMAT}")
        if said.group != self.group:
            raise RemoteProtocolError(f"it is of group {said.group!r}, this is {self.group!r}")
        if said.name == self.me.name or said.towards != self.me.name:
            raise RemoteProtocolError(f"it says it is {said.name} and speaks to {said.towards}")
        if self._credentials is not None:
            require_address(connection.certificate, said.name)
        if said.terms != self._terms:
            raise RemoteProtocolError("its settings differ from ours: start all members with the same ones")

    def _judge_life(self, peer: Peer, said: Introduction, *, kept_if_dialled_by: str) -> None:
        """A later life replaces an earlier one; of two connections of one life, that of the lower name stays."""
        if said.incarnation < peer.incarnation:
            raise RemoteProtocolError(f"a later life of {said.name} was here already")
        is_same = peer.is_up and said.incarnation == peer.incarnation
        if is_same and peer.dialled_by == kept_if_dialled_by == min(self.me.name, said.name):
            raise RemoteProtocolError(DUPLICATE)

    def _attach(self, connection: Connection, peer: Peer, said: Introduction, *, dialled_by: str) -> None:
        self._greeting.pop(connection).cancel()
        self._known[connection] = peer
        connection.open_up(self.settings.frame_bytes_max, self._arrived)
        peer.attach(connection, said.incarnation, dialled_by)
        peer.flush()

    # Frames and ends.

    def _arrived(self, connection: Connection, arrived: Frame) -> None:
        peer = self._known.get(connection)
        if peer is None or peer.connection is not connection:
            return
        if arrived.kind != frame.MEMBERSHIP:
            raise RemoteProtocolError(f"a frame of kind {arrived.kind} in a group that changes")
        peer.bytes_in += len(arrived.body)
        self._on_batch(MemberId(peer.name, peer.incarnation), arrived.body)

    def _resume(self, connection: Connection) -> None:
        peer = self._known.get(connection)
        if peer is not None and peer.connection is connection:
            peer.flush()

    def _ended(self, connection: Connection, reason: str) -> None:
        dialled = self._dialled.pop(connection, "")
        timer = self._greeting.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self.refused += not dialled
            level = logging.DEBUG if DUPLICATE in reason or self._closed else logging.WARNING
            log.log(level, "a connection with %s was not made: %s", dialled or connection.address, reason)
        peer = self._known.pop(connection, None)
        if peer is not None and peer.detach(connection) and not self._closed:
            log.info("the connection with %s ended: %s", peer.name, reason)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

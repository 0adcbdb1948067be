"""The links of one member: it listens, dials its neighbours, greets, and keeps every link going over new connections.

Of two members the lower rank dials; a member that needs a link of its own accord dials too. When both dialled at once,
the connection that the lower rank made stays. A connection that does not greet in time, greets wrongly or breaks the
protocol is closed with a reason in the log; the group goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.connection import Connection
from cubecast.live.credentials import Credentials, require_address
from cubecast.live.door import Door, open_listener
from cubecast.live.link import Link
from cubecast.live.settings import Settings, parse_address
from cubecast.wire import frame, greeting
from cubecast.wire.frame import Frame
from cubecast.wire.greeting import Greeting, Refusal

log = logging.getLogger("cubecast.live")

RETRY_FIRST_S, RETRY_MAX_S = 0.05, 1.0
CONFIRM_S = 0.1
DUPLICATE = "another connection of this link is kept"


class Transport:
    """All links of one member. `on_frame(peer, frame)` gets what arrives, in order, each frame once."""

    def __init__(
        self,
        *,
        group: str,
        addresses: list[str],
        rank: int,
        settings: Settings,
        terms: bytes,
        credentials: Credentials | None,
        on_frame: Callable[[int, Frame], None],
        on_excluded: Callable[[str], None],
    ) -> None:
        """Nothing is opened before `listen`."""
        self.group = group
        self.addresses = addresses
        self.rank = rank
        self.settings = settings
        self.terms = terms
        self.credentials = credentials
        self.links: dict[int, Link] = {}
        self.incarnation = secrets.randbits(62) | 1
        self.refused = 0
        self._on_frame = on_frame
        self._on_excluded = on_excluded
        self._barred: set[int] = set()
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._greeting: dict[Connection, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self._leaving = False
        self._closed = False

    async def listen(self) -> None:
        """Open the port and dial the neighbours that are ours to dial."""
        loop = asyncio.get_running_loop()
        host, port = parse_address(self.addresses[self.rank])
        try:
            if self.credentials is None:
                self._server = await loop.create_server(lambda: self._new_connection(-1), host, port, backlog=256)
            else:
                listener = await open_listener(host, port)
                self._start(self._new_door(self.credentials.server).serve(listener))
        except OSError as error:
            raise LocalProtocolError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self._start(self._confirm_often())

    def open_link(self, peer: int, *, dial: bool | None = None) -> Link:
        """The link to a member; made, and dialled if need be, when there is none."""
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = Link(peer)
            if dial or (dial is None and self.rank < peer):
                self._dial(peer)
        elif dial and not link.is_up:
            self._dial(peer)
        return link

    async def wait_for(self, peers: set[int], timeout_s: float) -> set[int]:
        """Wait until the links to these members are up; gives those that are not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._down(peers):
                    self._changed.clear()
                    await self._changed.wait()
        return self._down(peers)

    async def wait_for_ends(self, peers: Callable[[], set[int]], timeout_s: float) -> set[int]:
        """Make no ended link again; wait until those to these members have ended, and give those that are left."""
        self._leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while peers() - self._barred:
                    self._changed.clear()
                    await self._changed.wait()
        return peers() - self._barred

    def _down(self, peers: set[int]) -> set[int]:
        """Those of these members to whom no link is up, though one should be."""
        return {peer for peer in peers - self._barred if not (peer in self.links and self.links[peer].is_up)}

    def bar(self, peer: int) -> None:
        """Close the link to a member that left, for good."""
        self._barred.add(peer)
        task = self._dialling.pop(peer, None)
        if task is not None:
            task.cancel()
        link = self.links.pop(peer, None)
        if link is not None and link.connection is not None:
            connection, link.connection = link.connection, None
            connection.close()
        self._changed.set()

    def flush(self) -> None:
        """Send what waits on every link."""
        for link in self.links.values():
            link.flush()

    async def close(self) -> None:
        """Close the port and every connection."""
        self._closed = True
        for task in [*self._dialling.values(), *self._tasks]:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._greeting):
            connection.end("this member leaves")
        for link in self.links.values():
            if link.connection is not None:
                link.confirm()
                link.connection.close()
        await asyncio.gather(*self._dialling.values(), *self._tasks, return_exceptions=True)

    # Dialling.

    def _dial(self, peer: int) -> None:
        if peer not in self._dialling and peer not in self._barred and not self._closed:
            self._dialling[peer] = asyncio.get_running_loop().create_task(self._dial_until_up(peer))

    async def _dial_until_up(self, peer: int) -> None:
        pause = RETRY_FIRST_S
        try:
            while peer in self.links and not self.links[peer].is_up:
                await self._dial_once(peer)
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_MAX_S)
        finally:
            if self._dialling.get(peer) is asyncio.current_task():
                del self._dialling[peer]

    async def _dial_once(self, peer: int) -> None:
        loop = asyncio.get_running_loop()
        host, port = parse_address(self.addresses[peer])
        context = self.credentials.client if self.credentials else None
        try:
            async with asyncio.timeout(self.settings.greeting_timeout_s):
                await loop.create_connection(lambda: self._new_connection(peer), host, port, ssl=context)
        except (OSError, TimeoutError) as error:
            log.debug("rank %d does not answer at %s: %s", peer, self.addresses[peer], error)
            if self._leaving and isinstance(error, ConnectionRefusedError):
                self.bar(peer)  # nobody is there who could be told

    def _new_connection(self, dialled: int) -> Connection:
        def made(connection: Connection) -> None:
            self._begin_greeting(connection, dialled)

        return Connection(
            on_made=made,
            on_frame=self._greet if dialled < 0 else self._be_welcomed,
            on_end=self._connection_ended,
            on_resume=self._resume,
            high_water=self.settings.connection_bytes,
            socket_bytes=self.settings.socket_bytes,
            stall_s=self.settings.suspect_after_s,
        )

    def _new_door(self, context: ssl.SSLContext) -> Door:
        return Door(
            context=context,
            timeout_s=self.settings.greeting_timeout_s,
            room=self.settings.greetings_max,
            new_connection=lambda: self._new_connection(-1),
            on_refused=self._note_refused,
        )

    def _note_refused(self, address: str, reason: str) -> None:
        self.refused += 1
        log.warning("a connection with %s was not made: %s", address, reason)

    def _begin_greeting(self, connection: Connection, dialled: int) -> None:
        if dialled < 0 and len(self._greeting) >= self.settings.greetings_max:
            connection.abort("too many connections are greeting")
            return
        self._greeting[connection] = asyncio.get_running_loop().call_later(
            self.settings.greeting_timeout_s, connection.abort, "it did not greet in time"
        )
        if dialled >= 0:
            connection.peer = dialled
            connection.send(frame.HELLO, greeting.encode(self._greeting_for(dialled)))

    def _greeting_for(self, peer: int) -> Greeting:
        link = self.links.get(peer)
        return Greeting(
            group=self.group,
            rank=self.rank,
            towards=peer,
            incarnation=self.incarnation,
            knows=link.incarnation if link else 0,
            received=link.received if link else 0,
            terms=self.terms,
        )

    # Greeting.

    def _greet(self, connection: Connection, arrived: Frame) -> None:
        """The first frame of whoever dialled us."""
        if arrived.kind != frame.HELLO:
            raise RemoteProtocolError(f"it began with a frame of kind {arrived.kind}, not with a greeting")
        try:
            said = greeting.decode(Greeting, arrived.body)
            self._judge(connection, said)
            self._judge_duplicate(said.rank)
            link = self.links.setdefault(said.rank, Link(said.rank))
            link.require_resumable(said.received)
        except RemoteProtocolError as error:
            self._refuse(connection, str(error), excluded=getattr(error, "excluded", False))
            return
        welcome = self._greeting_for(said.rank)
        connection.send(frame.WELCOME, greeting.encode(welcome))
        self._attach(connection, link, said, dialled_by=said.rank)

    def _be_welcomed(self, connection: Connection, arrived: Frame) -> None:
        """The answer of whom we dialled."""
        if arrived.kind == frame.REFUSE:
            refusal = greeting.decode(Refusal, arrived.body)
            if refusal.excluded:
                self._on_excluded(f"rank {connection.peer} says: {refusal.reason}")
            raise RemoteProtocolError(f"it refused: {refusal.reason}")
        if arrived.kind != frame.WELCOME:
            raise RemoteProtocolError(f"it answered with a frame of kind {arrived.kind}, not with a greeting")
        said = greeting.decode(Greeting, arrived.body)
        if said.rank != connection.peer:
            raise RemoteProtocolError(f"it says it is rank {said.rank}, not {connection.peer}")
        self._judge(connection, said)
        link = self.links.get(said.rank)
        if link is None or (link.is_up and link.dialled_by < self.rank):
            connection.end(DUPLICATE)
            return
        self._attach(connection, link, said, dialled_by=self.rank)

    def _judge(self, connection: Connection, said: Greeting) -> None:
        """Is this a member of our group, the one it claims to be, and still in it?"""
        if said.group != self.group:
            raise RemoteProtocolError(f"it is of group {said.group!r}, this is {self.group!r}")
        if said.rank >= len(self.addresses) or said.rank == self.rank or said.towards != self.rank:
            raise RemoteProtocolError(f"it says it is rank {said.rank} and speaks to rank {said.towards}")
        if self.credentials is not None:
            require_address(connection.certificate, self.addresses[said.rank])
        if said.terms != self.terms:
            raise RemoteProtocolError("its members or settings differ from ours: start all members with the same ones")
        if said.rank in self._barred:
            raise _ExcludedError(f"rank {said.rank} was excluded from the group")
        known = self.links[said.rank].incarnation if said.rank in self.links else 0
        if known not in (0, said.incarnation) or said.knows not in (0, self.incarnation):
            raise _ExcludedError(f"rank {said.rank} or rank {self.rank} was started again; the earlier one counts")

    def _judge_duplicate(self, peer: int) -> None:
        link = self.links.get(peer)
        if link is not None and link.is_up and link.dialled_by != peer and self.rank < peer:
            raise RemoteProtocolError(DUPLICATE)

    def _refuse(self, connection: Connection, reason: str, *, excluded: bool) -> None:
        connection.send(frame.REFUSE, greeting.encode(Refusal(reason=reason[:256], excluded=excluded)))
        raise RemoteProtocolError(reason)

    def _attach(self, connection: Connection, link: Link, said: Greeting, *, dialled_by: int) -> None:
        self._greeting.pop(connection).cancel()
        connection.peer = said.rank
        connection.open_up(self.settings.frame_bytes_max, self._arrived)
        link.incarnation = said.incarnation
        link.attach(connection, received=said.received, dialled_by=dialled_by)
        link.flush()
        self._changed.set()

    # Frames and ends.

    def _arrived(self, connection: Connection, arrived: Frame) -> None:
        link = self.links.get(connection.peer)
        if link is None or link.connection is not connection:
            return
        link.heard = True
        if arrived.kind == frame.ACK:
            link.acknowledge(greeting.decode(greeting.Acknowledgement, arrived.body).received)
        elif arrived.kind == frame.FAILURE or (arrived.kind in frame.NUMBERED and link.accept(arrived)):
            self._on_frame(connection.peer, arrived)
        elif arrived.kind in (frame.HELLO, frame.WELCOME, frame.REFUSE):
            raise RemoteProtocolError("it greets a second time")
        elif arrived.kind == frame.MEMBERSHIP:
            raise RemoteProtocolError("it speaks of views; the members of this group are fixed")

    def _resume(self, connection: Connection) -> None:
        link = self.links.get(connection.peer)
        if link is not None and link.connection is connection:
            link.flush()

    def _connection_ended(self, connection: Connection, reason: str) -> None:
        greeted = self._greeting.pop(connection, None)
        if greeted is not None:
            greeted.cancel()
            self.refused += connection.peer < 0
            level = logging.DEBUG if DUPLICATE in reason or self._leaving else logging.WARNING
            log.log(level, "a connection with %s was not made: %s", connection.address, reason)
        link = self.links.get(connection.peer)
        if link is None or not link.detach(connection) or self._closed:
            return
        log.info("the link to rank %d is down: %s", connection.peer, reason)
        if self._leaving:
            self.bar(connection.peer)
        elif self.rank < connection.peer or link.dialled_by == self.rank:
            self._dial(connection.peer)

    async def _confirm_often(self) -> None:
        """Acknowledge what came, also when little comes."""
        while True:
            await asyncio.sleep(CONFIRM_S)
            for link in list(self.links.values()):
                link.confirm()

    def _start(self, work: object) -> None:
        task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type,var-annotated]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _ExcludedError(RemoteProtocolError):
    """The peer is no member any more, and is told so."""

    excluded = True

"""The programming interface of a live group.

async with cubecast.join("orders", listen="127.0.0.1:7001", peers=[...], credentials=...) as group:
    message = await group.multicast(b"hello")
    await message.stable(timeout=5)
    async for delivery in group:
        print(delivery.sender, delivery.sequence, delivery.payload)
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.live.credentials import Credentials, require_protection
from cubecast.live.member import Member
from cubecast.live.settings import Settings, ranked
from cubecast.live.traffic import Delivery
from cubecast.wire.data import SEQUENCE_MAX

if TYPE_CHECKING:
    from cubecast.live.recorder import Recorder

log = logging.getLogger("cubecast.live")

Buffer = bytes | bytearray | memoryview
TURN_MESSAGES = 256
"""Messages an application may multicast before the loop gets a turn: others want to be heard, batches to be sent."""

DRAIN_S = 5.0
"""How long the own messages of a member that leaves may take to become stable when nobody crashes."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Who is in the group."""

    number: int
    members: tuple[int, ...]
    addresses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Laggard:
    """A member that holds stability back: it has delivered `behind` messages fewer than the most advanced one."""

    rank: int
    address: str
    behind: int


class Message:
    """One multicast message of this member."""

    __slots__ = ("_group", "sequence")

    def __init__(self, group: LiveGroup, sequence: int) -> None:
        """Made by `multicast`."""
        self._group = group
        self.sequence = sequence

    @property
    def is_stable(self) -> bool:
        """Does every current member have it?"""
        return self.sequence <= self._group.frontier[self._group.rank]

    async def stable(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Wait until every current member has the message; `hurry` asks for a stability round at once."""
        await self._group.wait_stable(self.sequence, timeout, hurry=hurry)


class LiveGroup:
    """A member's place in a group. Make one with `join`, and use it as an async context manager."""

    def __init__(
        self,
        name: str,
        *,
        listen: str,
        peers: Sequence[str],
        credentials: Credentials | None,
        settings: Settings,
        trace: str | Path | None,
    ) -> None:
        """Nothing is opened before `async with`."""
        self.name = name
        self.settings = settings
        self.addresses, self.rank = ranked(listen, list(peers))
        self._credentials = credentials
        self._trace = trace
        self._member: Member | None = None
        self._waiting_stable: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiting_room: deque[asyncio.Future[None]] = deque()
        self._more: asyncio.Future[None] | None = None
        self._callbacks: list[Callable[[tuple[int, ...]], object]] = []
        self._stable_seen: tuple[int, ...] = ()
        self._in_turn = 0
        self._left = False

    async def __aenter__(self) -> Self:
        """Open the links and wait for the neighbours."""
        recorder: Recorder | None = None
        if self._trace is not None:
            from cubecast.live.recorder import Recorder

            recorder = Recorder(self._trace, self.rank)
        self._member = Member(
            group=self.name,
            addresses=self.addresses,
            rank=self.rank,
            settings=self.settings,
            credentials=self._credentials,
            recorder=recorder,
        )
        self._member.traffic.on_delivery = self._wake
        self._member.on_change = self._changed
        try:
            await self._member.start()
        except BaseException:
            await self._member.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group."""
        await self.leave(drain=kind is None)

    # Sending.

    async def multicast(self, payload: Buffer) -> Message:
        """Send to every member, this one included; waits while too many own messages are not stable."""
        member = self._running()
        size = len(payload) if isinstance(payload, bytes) else memoryview(payload).nbytes
        if size > self.settings.payload_bytes_max:
            raise LocalProtocolError(
                f"a payload of {size} bytes; the limit is payload_bytes_max={self.settings.payload_bytes_max}"
            )
        if member.traffic.published >= SEQUENCE_MAX:
            raise LocalProtocolError(f"{SEQUENCE_MAX} messages sent: leave and start the group again")
        self._in_turn += 1
        if self._in_turn >= TURN_MESSAGES:
            self._in_turn = 0
            await asyncio.sleep(0)
        while member.traffic.is_full or self._waiting_room:
            await self._wait_for_room()
            member = self._running()
        return Message(self, member.traffic.publish(bytes(payload)))

    async def _wait_for_room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self._waiting_room.append(room)
        try:
            await room
        finally:
            if room in self._waiting_room:
                self._waiting_room.remove(room)

    async def wait_stable(self, sequence: int, timeout: float | None, *, hurry: bool = False) -> None:
        """Wait until an own message is stable."""
        member = self._running()
        if sequence <= self.frontier[self.rank]:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting_stable, (sequence, id(future), future))
        if hurry:
            member.rounds.ask(sequence)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            slow = ", ".join(f"{one.rank} ({one.behind} behind)" for one in self.laggards()) or "nobody known"
            raise TimeoutError(f"message {sequence} is not stable after {timeout} s; behind are: {slow}") from None

    # Receiving.

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Deliveries in causal order, each once; ends when this member leaves."""
        member = self._running()
        queue = member.traffic.queue
        while True:
            size = 0
            while queue:
                delivery = queue.popleft()
                size += len(delivery.record)
                if size > 1 << 16:
                    member.traffic.taken(size)
                    size = 0
                yield delivery
            member.traffic.taken(size)
            if queue:
                continue
            if member.failure is not None:
                raise member.failure
            if self._left:
                return
            self._more = asyncio.get_running_loop().create_future()
            await self._more

    @property
    def has_more(self) -> bool:
        """Are there deliveries that the application has not taken?"""
        return self._member is not None and bool(self._member.traffic.queue)

    def on_stable(self, callback: Callable[[tuple[int, ...]], object]) -> None:
        """Call a function with the frontier each time it moves."""
        self._callbacks.append(callback)

    # Looking.

    @property
    def view(self) -> View:
        """The current members."""
        member = self._running()
        members = tuple(member.cores.members())
        return View(number=member.view_id, members=members, addresses=tuple(self.addresses[r] for r in members))

    @property
    def frontier(self) -> list[int]:
        """The stability array S: every current member has each sender's messages up to here."""
        member = self._member
        return member.traffic.store.freed if member is not None else [0] * len(self.addresses)

    @property
    def received(self) -> list[int]:
        """R: this member has each sender's messages up to here."""
        received: list[int] = self._running().cores.group.received[0].tolist()
        return received

    def laggards(self) -> list[Laggard]:
        """Who holds stability back, and by how many messages; the slowest first. As fresh as the gossip is."""
        member = self._running()
        progress = member.cores.failure.state.progress[0].tolist()
        most = max(progress)
        found = [
            Laggard(rank=rank, address=self.addresses[rank], behind=most - progress[rank])
            for rank in member.cores.members()
            if progress[rank] < most
        ]
        return sorted(found, key=lambda one: -one.behind)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member."""
        member = self._running()
        links = member.transport.links
        linked = set(member.cores.data.linked())
        return {
            "rank": self.rank,
            "members": len(member.cores.members()),
            "published": member.traffic.published,
            "delivered": member.traffic.delivered,
            "unstable_messages": sum(member.traffic.store.held(rank) for rank in range(len(self.addresses))),
            "unstable_bytes": member.traffic.store.bytes,
            "waiting_messages": member.traffic.store.waiting,
            "backlog_bytes": member.traffic.backlog_bytes,
            "rounds": member.rounds.count,
            "round_ms": member.rounds.round_s * 1e3,
            "refused_connections": member.transport.refused,
            "links": {
                peer: {
                    "up": link.is_up,
                    "eager": peer in linked,
                    "bytes_in": link.bytes_in,
                    "bytes_out": link.bytes_out,
                    "waiting_bytes": link.waiting_bytes,
                    "reconnections": link.reconnections,
                }
                for peer, link in sorted(links.items())
            },
        }

    # Leaving.

    async def leave(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Leave: wait until the own messages are stable (unless `drain=False`), say goodbye, close.

        Without a `timeout` the wait is long enough for members that crash meanwhile to be excluded.
        """
        member = self._member
        if member is None or self._left:
            return
        if timeout is None:
            timeout = DRAIN_S + 2 * self.settings.suspect_after_s
        if drain and member.failure is None and member.traffic.published:
            try:
                await self.wait_stable(member.traffic.published, timeout, hurry=True)
            except (TimeoutError, CubecastError) as error:
                log.warning("leaving although own messages may be lost: %s", error)
        self._left = True
        if member.failure is None:
            member.traffic.flush()
            await member.say_goodbye()
        await member.stop()
        self._changed()

    # Inside.

    def _running(self) -> Member:
        if self._member is None or self._left:
            raise LocalProtocolError(f"this member is not in group {self.name!r}: use it inside `async with`")
        if self._member.failure is not None:
            raise self._member.failure
        return self._member

    def _wake(self) -> None:
        """Let the application look: deliveries came, or this is the end."""
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _changed(self) -> None:
        """Stability moved, the members changed, or this is the end."""
        member = self._member
        assert member is not None
        ended = self._left or member.failure is not None
        if ended:
            self._wake()
        frontier = self.frontier[self.rank]
        while self._waiting_stable and (ended or self._waiting_stable[0][0] <= frontier):
            _resolve(heapq.heappop(self._waiting_stable)[2], member.failure if ended else None, ended=ended)
        if ended or not member.traffic.is_full:
            while self._waiting_room:
                _resolve(self._waiting_room.popleft(), member.failure, ended=False)
        self._call_back()

    def _call_back(self) -> None:
        if self._callbacks:
            frontier = tuple(self.frontier)
            if frontier != self._stable_seen:
                self._stable_seen = frontier
                for callback in self._callbacks:
                    callback(frontier)


def _resolve(future: asyncio.Future[None], failure: CubecastError | None, *, ended: bool) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    elif ended:
        future.set_exception(LocalProtocolError("this member left before the message was stable"))
    else:
        future.set_result(None)


def join(
    name: str,
    *,
    listen: str,
    peers: Sequence[str],
    credentials: Credentials | None = None,
    plaintext: bool = False,
    settings: Settings | None = None,
    trace: str | Path | None = None,
) -> LiveGroup:
    """Be a member of a group: `async with cubecast.join(...) as group`.

    `listen` is this member's address as all others name it, `peers` are all (other) members. TLS with `credentials`, or
    no protection at all when `plaintext=True` says so. `trace` names a file for this member's event trace.
    """
    require_protection(credentials, plaintext=plaintext)
    return LiveGroup(
        name, listen=listen, peers=peers, credentials=credentials, settings=settings or Settings(), trace=trace
    )

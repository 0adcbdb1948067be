"""The programming interface of a group.

async with cubecast.join("orders", listen="10.0.0.1:7001", peers=["10.0.0.2:7001", ...], credentials=...) as group:
    message = await group.multicast(b"hello")
    await message.stable(timeout=5)
    async for delivery in group:
        print(delivery.sender.name, delivery.sequence, delivery.payload)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.live.credentials import Credentials, require_protection
from cubecast.live.driver import Driver, shielded
from cubecast.live.inbox import Entries, Event, History, Inbox, Request
from cubecast.live.journal import Journal
from cubecast.live.notices import NoticeLog
from cubecast.live.warm import load
from cubecast.member.effects import Delivery, Entry, Excluded, Notice, Outgoing, StateArrived, ViewChange
from cubecast.member.history import decode_history
from cubecast.member.member import Member
from cubecast.member.settings import MEMBERS_MAX, Settings, parse_address
from cubecast.protocols.membership.views import MemberId, View

log = logging.getLogger("cubecast.live")

Buffer = bytes | bytearray | memoryview
Snapshot = Callable[[], Buffer | Awaitable[Buffer]]
Restore = Callable[[bytes], object]
WAITING_LOG_S = 3.0
"""How often a member that is not in the group yet logs what it waits for."""
SNAPSHOT_TRIES = 5
SNAPSHOT_PAUSE_S = 0.05
"""A `snapshot` that raises is called again after this pause, which doubles; only its state at this moment will do."""
SYNC_LUMP = 256
"""Deliveries that cross to another thread at a time."""
LEAVE_S = 5.0
"""How long leaving may take when nobody crashes meanwhile."""


class Laggard(NamedTuple):
    """A member that holds stability back: it lacks `behind` messages that another member has."""

    member: MemberId
    behind: int


class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message that this member multicast; made by `Group.multicast`."""

    _driver: Driver
    _outgoing: Outgoing

    def __repr__(self) -> str:
        """Its number, and whether it is stable."""
        state = "stable" if self.is_stable else "not stable"
        return f"<Message sequence={self.sequence} view={self.view} {state}>"

    @property
    def payload(self) -> bytes:
        """What was multicast."""
        return self._outgoing.payload

    @property
    def sequence(self) -> int:
        """Its number among all messages of this member; 0 while it waits for the next view."""
        return self._outgoing.sequence

    @property
    def view(self) -> int:
        """The number of the view in which it was sent; 0 while it waits for the next view."""
        return self._outgoing.view

    @property
    def is_stable(self) -> bool:
        """Does every member of the view have it?"""
        return self._outgoing.is_stable

    async def stable(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Wait until every member of the view has the message; `hurry` asks for a stability round at once.

        Raises TimeoutError, naming who is behind; LocalProtocolError if this member left before; ExcludedError if the
        group continued without this member and the message is not multicast again.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._driver.wait_settled(self._outgoing, hurry=hurry)
        except TimeoutError:
            late = ", ".join(f"{who.name} ({count})" for who, count in self._driver.member.laggards()) or "nobody known"
            raise TimeoutError(
                f"message {self.sequence} is not stable after {timeout} s; behind are (by messages): {late}"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a member gets into its group."""

    founders: tuple[str, ...] = ()
    contacts: tuple[str, ...] = ()
    is_founder: bool = False

    @property
    def is_given(self) -> bool:
        """Was any way in named?"""
        return bool(self.founders or self.contacts or self.is_founder)


class Group:
    """A member's place in a group. Make one with `cubecast.join`, and use it as an async context manager."""

    def __init__(
        self,
        name: str,
        *,
        listen: str,
        advertise: str,
        way: Way,
        credentials: Credentials | None,
        settings: Settings,
        snapshot: Snapshot | None,
        restore: Restore | None,
        journal: str | Path | None,
        trace: str | Path | None,
        status: str | None,
    ) -> None:
        """Nothing is opened before `async with`."""
        self.name = name
        self.address = advertise
        self.settings = settings
        self._listen = listen
        self._way = way
        self._credentials = credentials
        self._snapshot = snapshot
        self._restore = restore
        self._journal = journal
        self._trace = trace
        self._status_at = status
        self._driver: Driver | None = None
        self._inbox = Inbox(
            report_taken=self._report_taken,
            serve=self._serve,
            on_empty=self._when_empty,
            backlog_bytes=settings.backlog_bytes,
            is_tracked=restore is None and settings.keep != "none",
        )
        self._callbacks: dict[str, list[Callable[[Any], object]]] = {}
        self._changed: list[asyncio.Future[None]] = []
        self._notices = NoticeLog(advertise)
        self._stack = AsyncExitStack()
        self._checkpoint_bytes = 0
        self._may_checkpoint = True
        """Did anything arrive since the last attempt?"""

    # In and out.

    async def __aenter__(self) -> Self:
        """Wait until this member is in the group and has its state; log what it waits for."""
        if self._driver is not None:
            raise LocalProtocolError(f"group {self.name!r} was entered before: call cubecast.join again")
        if self._credentials is not None:
            self._credentials.require_own(self.address)
        data = self.settings.data_for(max(2, len(self._way.founders)))
        await asyncio.to_thread(load, data.name, self.settings.stability_entry.name)
        journal, batches = self._open_journal()
        try:
            driver = self._driver = self._new_driver(journal)
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        try:
            await driver.start(self._listen, lambda now_ns: self._begin(driver.member, batches, now_ns))
            if self._status_at is not None:
                from cubecast.live.status import StatusServer

                await self._stack.enter_async_context(StatusServer(self, self._status_at))
            await self._wait_until_in(driver)
        except BaseException:
            await shielded(self._close())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group; without waiting for anybody when an exception ends the block."""
        await self.leave(drain=kind is None)

    async def leave(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Leave: what was multicast is sent and delivered first, and the others agree on a view without this member.

        `drain=False` says so and does not wait. Without a `timeout` the wait is long enough for members that crash
        meanwhile to be excluded; when it is over this member goes all the same, and the log says what may be lost. The
        port is closed in any case, also when the call is cancelled. `async for` gives what was delivered until then.
        """
        driver = self._driver
        if driver is None:
            return
        try:
            if not driver.is_ended:
                driver.call(driver.member.leave)
                if drain:
                    await self._wait_until_out(driver, timeout)
                else:
                    await asyncio.sleep(0)
        finally:
            await shielded(self._close())

    async def _wait_until_out(self, driver: Driver, timeout: float | None) -> None:
        limit_s = LEAVE_S + 2 * self.settings.suspect_after_s if timeout is None else timeout
        try:
            async with asyncio.timeout(limit_s):
                while not driver.is_ended:
                    await self._wait_for_change()
        except TimeoutError:
            log.warning(
                "left without the others' agreement member=%s timeout_s=%g unstable_messages=%d",
                self.address,
                limit_s,
                driver.member.stats().get("own_unstable_messages", 0),
            )

    async def _close(self) -> None:
        assert self._driver is not None
        try:
            await self._driver.stop()
        finally:
            await self._stack.aclose()

    def force(self) -> None:
        """Operator's override: the members within reach decide alone on the next view, without a quorum.

        For a group that is blocked because the missing members will never come back. If they are alive after all,
        there are two groups of the same name from then on, which refuse each other.
        """
        self._running().call(self._running().member.force)

    def refresh_credentials(self) -> None:
        """Read the files of the credentials again now, and close connections whose certificate was revoked.

        It happens by itself every few seconds.
        """
        if self._driver is not None and self._credentials is not None:
            self._driver.refresh_credentials()

    def _open_journal(self) -> tuple[Journal | None, list[bytes]]:
        if self._journal is None:
            self._require_way()
            return None, []
        journal = Journal(
            self._journal,
            group=self.name,
            member=self.address,
            sync=self.settings.sync,
            interval_s=self.settings.sync_interval_s,
        )
        try:
            batches = journal.read()
            if not batches:
                self._require_way()
        except BaseException:
            journal.close()
            raise
        return journal, batches

    def _require_way(self) -> None:
        if not self._way.is_given:
            raise LocalProtocolError("give one of peers=[...], contact=..., found=True, or a journal= to continue from")

    def _new_driver(self, journal: Journal | None) -> Driver:
        trace = None
        if self._trace is not None:
            from cubecast.live.trace_adapter import TraceAdapter

            trace = TraceAdapter(self._trace)
        member = Member(
            self.name,
            self.address,
            self.settings,
            incarnation=time.time_ns(),
            session=secrets.randbits(62),
            is_durable=journal is not None,
            makes_snapshots=self._snapshot is not None,
            trace=trace,
        )
        return Driver(
            member,
            self.settings,
            credentials=self._credentials,
            journal=journal,
            trace=trace,
            on_entries=self._arrived,
            on_notice=self._noticed,
            on_end=self._ended,
        )

    def _begin(self, member: Member, batches: list[bytes], now_ns: int) -> None:
        way = self._way
        if batches:
            member.resume(batches, now_ns, contacts=way.contacts, founders=way.founders)
        elif way.is_founder:
            member.found(now_ns)
        elif way.founders:
            member.form(way.founders, now_ns)
        else:
            member.join(way.contacts, now_ns)

    async def _wait_until_in(self, driver: Driver) -> None:
        member = driver.member
        deadline = time.monotonic() + self.settings.join_timeout_s
        log_at = time.monotonic() + 0.2
        while True:
            if driver.failure is not None:
                raise driver.failure
            if await self._inbox.serve_request():
                continue
            # A state that stands behind what the application has to take first is served when it does.
            is_served = self._inbox.queue or not member.awaits_restore
            if member.phase == "member" and member.stack is not None and is_served:
                log.info("member ready member=%s group=%s view=%d", self.address, self.name, self.view.number)
                return
            now = time.monotonic()
            if now >= deadline:
                raise LocalProtocolError(
                    f"not in group {self.name!r} after join_timeout_s={self.settings.join_timeout_s:g}: "
                    f"{member.waiting_for()}"
                )
            if now >= log_at:
                log_at = now + WAITING_LOG_S
                reason = member.waiting_for()
                log.info("waiting member=%s group=%s reason=%s", self.address, self.name, reason)
                self._call_back("waiting", reason)
            try:
                async with asyncio.timeout(min(deadline, log_at) - now):
                    await self._wait_for_change()
            except TimeoutError:
                pass

    # Sending.

    async def multicast(self, payload: Buffer) -> Message:
        """Send to every member, this one included, in the order of the calls.

        Waits while the window of own messages that are not stable is full: also during a long change of the view, or
        while too few members are within reach. A call that is cancelled while it waits has sent nothing.
        """
        octets = payload if type(payload) is bytes else _octets(payload)
        driver = self._driver
        if driver is None or driver.is_ended:
            driver = self._running()
        outgoing = driver.try_multicast(octets)
        if outgoing is None:
            outgoing = await driver.wait_multicast(octets)
        return Message(driver, outgoing)

    # Receiving.

    def __aiter__(self) -> Entries[Delivery]:
        """Deliveries in causal order, each once, from the first that was not taken; ends when this member has left.

        The iterator may be left with `break`, cancelled or asked with a timeout: nothing is lost, and it continues.
        """
        return Entries(self._inbox, (Delivery,))

    def events(self) -> Entries[Event]:
        """Deliveries as `async for` gives them, and a `ViewChange` for every view at its place among them."""
        return Entries(self._inbox, (Delivery, ViewChange))

    async def receive(self, timeout: float | None = None) -> Delivery:
        """Take exactly one delivery. Raises TimeoutError; LocalProtocolError when this member has left.

        It is safe to cancel: a delivery that was not returned is the next one.
        """
        async with asyncio.timeout(timeout):
            taken: Delivery | None = await self._inbox.take((Delivery,))
        if taken is None:
            raise LocalProtocolError(f"this member has left group {self.name!r}, and everything is received")
        return taken

    async def _take_lump(self, into: deque[Event], timeout: float | None) -> bool:
        """Wait for one entry, and take the deliveries that wait behind it too; False at the end. For `SyncGroup`."""
        async with asyncio.timeout(timeout):
            taken = await self._inbox.take((Delivery, ViewChange))
        if taken is None:
            return False
        into.append(taken)
        entries, queue = self.events(), self._inbox.queue
        while queue and len(into) < SYNC_LUMP and type(queue[0]) is Delivery:
            into.append(await anext(entries))
        return True

    @property
    def has_more(self) -> bool:
        """Is there anything that the application has not taken?"""
        return bool(self._inbox.queue)

    # Being told at once. A callback that raises is logged, and everything continues.

    def on_stable(self, callback: Callable[[dict[MemberId, int]], object]) -> None:
        """Call a function with the frontier each time it moves."""
        self._callbacks.setdefault("stable", []).append(callback)

    def on_view(self, callback: Callable[[View], object]) -> None:
        """Call a function when a view is installed, whatever the application has taken by then."""
        self._callbacks.setdefault("view", []).append(callback)

    def on_blocked(self, callback: Callable[[bool], object]) -> None:
        """Call a function with True when too few members are within reach, with False when there are enough again."""
        self._callbacks.setdefault("blocked", []).append(callback)

    def on_excluded(self, callback: Callable[[Excluded], object]) -> None:
        """Call a function when the group continued without this member: the reason, and the messages that came back."""
        self._callbacks.setdefault("excluded", []).append(callback)

    def on_progress(self, callback: Callable[[tuple[int, int]], object]) -> None:
        """Call a function with (pieces here, pieces of the state) while this member fetches the state."""
        self._callbacks.setdefault("progress", []).append(callback)

    def on_waiting(self, callback: Callable[[str], object]) -> None:
        """Call a function with what this member waits for, now and then while it is not in the group yet."""
        self._callbacks.setdefault("waiting", []).append(callback)

    # Looking.

    @property
    def me(self) -> MemberId:
        """This member: its address and its incarnation."""
        return self._entered().member.me

    @property
    def view(self) -> View:
        """The members by rank, in the newest view that this member installed."""
        view = self._entered().member.view
        if view is None:
            raise LocalProtocolError("this member is in no view yet")
        return view

    @property
    def rank(self) -> int:
        """This member's rank in the view; -1 when it is not in it."""
        members = self.view.members
        return members.index(self.me) if self.me in members else -1

    @property
    def frontier(self) -> dict[MemberId, int]:
        """For each member of the view: the sequence up to which every member has its messages."""
        return self._entered().member.frontier

    def is_stable(self, delivery: Delivery) -> bool:
        """Does every member of the view have it? Everything of earlier views is stable."""
        return delivery.view < self.view.number or delivery.sequence <= self.frontier.get(delivery.sender, 0)

    def laggards(self) -> list[Laggard]:
        """Who holds stability back, and by how many messages; the slowest first."""
        return [Laggard(who, behind) for who, behind in self._entered().member.laggards()]

    @property
    def is_blocked(self) -> bool:
        """Are too few members within reach to continue?"""
        return self._entered().member.is_blocked

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member, and its links by name."""
        driver = self._entered()
        stats = dict(driver.member.stats())
        stats["refused_connections"] = driver.refused
        stats["exclusions"] = self._notices.exclusions
        stats["inbox_entries"] = len(self._inbox.queue)
        stats["journal_bytes"] = driver.journal.bytes if driver.journal is not None else 0
        return stats

    def status(self) -> dict[str, Any]:
        """What this member knows of itself and its group, for the status page."""
        from cubecast.live.status import status_of

        return status_of(self)

    # Inside.

    def _entered(self) -> Driver:
        if self._driver is None:
            raise LocalProtocolError(f"this member is not in group {self.name!r}: use it inside `async with`")
        return self._driver

    def _running(self) -> Driver:
        driver = self._entered()
        if driver.failure is not None:
            raise type(driver.failure)(*driver.failure.args)
        if driver.is_ended:
            raise LocalProtocolError(f"this member has left group {self.name!r}")
        return driver

    def _report_taken(self, size: int) -> None:
        driver = self._driver
        if driver is not None and not driver.is_ended:
            driver.member.taken(size, time.monotonic_ns())
            driver.touch()

    def _arrived(self, entries: list[Entry]) -> None:
        """Entries for the application. Without `restore` the state is a history of messages, which are deliveries."""
        if self._inbox.is_tracked and any(type(entry) is StateArrived for entry in entries):
            self._inbox.extend(self._history(entry) if type(entry) is StateArrived else entry for entry in entries)
        else:
            self._inbox.extend(entries)
        self._may_checkpoint = True
        if self._changed:
            self._wake()

    def _history(self, state: StateArrived) -> History:
        driver = self._entered()
        driver.call(driver.member.restored)
        return History(decode_history(state.pieces))

    async def _serve(self, request: Request) -> None:
        """The application's state is wanted, or there is a new one for it."""
        driver = self._entered()
        if isinstance(request, StateArrived):
            assert self._restore is not None
            done = self._restore(b"".join(request.pieces))
            if inspect.isawaitable(done):
                await done
            driver.call(driver.member.restored)
            return
        view = request.view
        for attempt in range(SNAPSHOT_TRIES):
            try:
                state = await self._take_snapshot()
            except Exception:
                log.exception("snapshot failed member=%s view=%d attempt=%d", self.address, view, attempt + 1)
                await asyncio.sleep(SNAPSHOT_PAUSE_S * 2**attempt)
            else:
                driver.call(partial(driver.member.give_snapshot, view, state))
                return
        driver.call(lambda now_ns: driver.member.snapshot_failed(view, now_ns))

    async def _take_snapshot(self) -> bytes:
        assert self._snapshot is not None
        state = self._snapshot()
        if inspect.isawaitable(state):
            state = await state
        return _octets(state, what="snapshot() returned")

    def _when_empty(self) -> Awaitable[None] | None:
        """Everything is taken: the moment for a checkpoint, if the journal is long and has doubled since the last."""
        driver = self._driver
        if driver is None or driver.journal is None or driver.is_ended or not self._may_checkpoint:
            return None
        size = driver.journal.bytes
        if size < 2 * self._checkpoint_bytes or not driver.member.wants_checkpoint(size):
            return None
        self._may_checkpoint = False
        return self._checkpoint(driver)

    async def _checkpoint(self, driver: Driver) -> None:
        state = b""
        if self._snapshot is not None:
            try:
                state = await self._take_snapshot()
            except Exception:
                log.exception("snapshot for a checkpoint failed member=%s", self.address)
                return
        if not self._inbox.queue:
            driver.call(lambda now_ns: driver.member.checkpoint(state, now_ns))
            await asyncio.sleep(0)
            assert driver.journal is not None
            self._checkpoint_bytes = driver.journal.bytes

    def _noticed(self, notice: Notice) -> None:
        """A view, stability, an exclusion, a link."""
        assert self._driver is not None
        self._notices.write(notice, self._driver.member)
        if notice.what == "stable":
            if "stable" in self._callbacks:
                self._call_back("stable", self._driver.member.frontier)
            return
        if notice.what != "waiting":
            self._call_back(notice.what, notice.value)
        self._wake()

    def _call_back(self, event: str, value: Any) -> None:
        for callback in self._callbacks.get(event, ()):
            try:
                callback(value)
            except Exception:
                log.exception("callback failed event=%s member=%s", event, self.address)

    def _ended(self, failure: CubecastError | None) -> None:
        self._inbox.end(failure)
        self._wake()

    def _wake(self) -> None:
        waiting, self._changed = self._changed, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def _wait_for_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(future)
        try:
            await future
        finally:
            if future in self._changed:
                self._changed.remove(future)


def _octets(payload: object, what: str = "payload") -> bytes:
    if type(payload) is bytes:
        return payload
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise LocalProtocolError(
        f"{what} is of type {type(payload).__name__}: give bytes, bytearray or memoryview (text: text.encode())"
    )


def join(
    name: str,
    *,
    listen: str,
    advertise: str | None = None,
    peers: Sequence[str] | None = None,
    contact: str | Sequence[str] | None = None,
    found: bool = False,
    credentials: Credentials | None = None,
    plaintext: bool = False,
    settings: Settings | None = None,
    snapshot: Snapshot | None = None,
    restore: Restore | None = None,
    journal: str | Path | None = None,
    trace: str | Path | None = None,
    status: str | None = None,
) -> Group:
    """Be a member of a group: `async with cubecast.join(...) as group`.

    The block begins when this member is in the group and has its state; what it waits for is in the log, and after
    `settings.join_timeout_s` it fails with the reason. At the end of the block the member leaves.

        async with cubecast.join("orders", listen="10.0.0.1:7001", peers=["10.0.0.2:7001", "10.0.0.3:7001"],
                                 credentials=cubecast.Credentials.load("10.0.0.1:7001.pem", ca="group.pem")) as group:
            message = await group.multicast(b"hello")      # to every member, this one included
            await message.stable(timeout=5)                # every member has it
            async for delivery in group:                   # causal order, each message once
                print(delivery.sender.name, delivery.sequence, delivery.payload)

    `name` is the group's; members of groups of different names refuse each other. `listen` ("host:port") is where this
    member accepts connections; `advertise` is how others reach it and what they call it, the same as `listen` unless
    there is a NAT or a container between. All members must use the same name for a member: "localhost:7001" and
    "127.0.0.1:7001" are two.

    Give one of the three ways in:

    - `peers`: the founding members, the same list at each (its own name may be in it or not). The group works as soon
      as a quorum of them is up; members may leave, join and come back later.
    - `contact`: one member of a running group, or several to try.
    - `found=True`: this member founds a group of one, which others join with `contact`.

    Protection: `credentials` (TLS; see `cubecast keys`), or `plaintext=True` to go without. `settings` are described by
    help(cubecast.Settings); those marked *all* must be the same at every member.

    State for members that join: `snapshot()` returns the application's state as bytes and `restore(state)` puts it in
    place at a newcomer; both may be `async`. They are called between two events, by whoever consumes them (`async for`,
    `events`, `receive`), so the state is the one after all events before. Without them a newcomer gets the messages
    that `settings.keep` says, as deliveries with `is_history`.

    `journal` names a file from which this member continues after it was stopped or killed, under the same address; it
    then needs no way in, and `peers` or `contact` are merely further addresses to try. The application begins with the
    last checkpoint (`restore`) and gets what was delivered after it again. `settings.sync` says when it is forced to
    the disk. `trace` names a file for the events of this member, for `cubecast check`. `status` ("host:port") is where
    it serves a page, JSON and Prometheus metrics.
    """
    require_protection(credentials, plaintext=plaintext)
    if (snapshot is None) != (restore is None):
        raise LocalProtocolError("give snapshot= and restore= together: what one member takes, another must put back")
    address = advertise if advertise is not None else listen
    for one in (listen, address, *([status] if status is not None else [])):
        parse_address(one)
    return Group(
        name,
        listen=listen,
        advertise=address,
        way=_way(address, peers, contact, found=found, has_journal=journal is not None),
        credentials=credentials,
        settings=settings or Settings(),
        snapshot=snapshot,
        restore=restore,
        journal=journal,
        trace=trace,
        status=status,
    )


def _way(
    me: str, peers: Sequence[str] | None, contact: str | Sequence[str] | None, *, found: bool, has_journal: bool
) -> Way:
    """The one way into the group that was given; with a journal there may be none."""
    given = [
        word for word, value in (("peers", peers), ("contact", contact), ("found", found or None)) if value is not None
    ]
    if len(given) > 1 or (not given and not has_journal):
        said = " and ".join(given) or "none of them"
        raise LocalProtocolError(f"give one of peers=[...], contact=... and found=True; given: {said}")
    if peers is not None:
        return Way(founders=_founders(me, peers))
    if contact is None:
        return Way(is_founder=found)
    contacts = (contact,) if isinstance(contact, str) else tuple(contact)
    for one in contacts:
        parse_address(one)
    if me in contacts and not has_journal:
        raise LocalProtocolError(f"contact {me}: that is this member itself; name another one")
    if not contacts:
        raise LocalProtocolError("contact=[]: name at least one member of the group")
    return Way(contacts=tuple(one for one in contacts if one != me))


def _founders(me: str, peers: Sequence[str]) -> tuple[str, ...]:
    """All founding members in one order at all of them."""
    if isinstance(peers, str):
        raise LocalProtocolError(f"peers={peers!r}: give a list of addresses")
    founders = tuple(sorted({me, *peers}, key=parse_address))
    if len(founders) < 2:
        raise LocalProtocolError(f"peers={list(peers)!r}: name at least one member besides {me}, or give found=True")
    if len(founders) > MEMBERS_MAX:
        raise LocalProtocolError(f"{len(founders)} members: at most {MEMBERS_MAX}")
    return founders

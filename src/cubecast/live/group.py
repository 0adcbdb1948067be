"""The programming interface of a group.

async with cubecast.join("orders", listen="10.0.0.1:7001", peers=["10.0.0.2:7001", ...], credentials=...) as group:
    message = await group.multicast(b"hello")
    await message.stable(timeout=5)
    async for delivery in group:
        print(delivery.sender.name, delivery.sequence, delivery.payload)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.live.application_state import ApplicationState, Buffer, Restore, Snapshot, octets_of
from cubecast.live.contacts import Contacts
from cubecast.live.credentials import Credentials, require_protection
from cubecast.live.driver import Driver, shielded
from cubecast.live.group_of_two import GroupOfTwoLog
from cubecast.live.group_status import GroupStatus
from cubecast.live.inbox import Entries, Event, Inbox
from cubecast.live.join_options import (
    JoinOptions,
    read_join_options,
    read_name,
    require_name,
    require_state_functions,
)
from cubecast.live.journal import Journal
from cubecast.live.member_report import Reporter
from cubecast.live.message import Message
from cubecast.live.notices import NoticeLog
from cubecast.live.warm import load, load_search
from cubecast.member.effects import Delivery, Entry, Notice, StateArrived, ViewChange
from cubecast.member.member import Member
from cubecast.member.settings import Settings, parse_address

log = logging.getLogger("cubecast.live")

WAITING_LOG_S = 3.0
"""How often a member that is not in the group yet logs what it waits for."""
LOADING_LOG_S = 2.0
"""After this time a member logs that it still loads, or compiles, its protocols."""
SYNC_BATCH = 256
"""Deliveries that cross to another thread at a time."""
LEAVE_S = 5.0
"""How long leaving may take when no member crashes meanwhile."""
LEAVE_AT_ONCE_S = 0.5
"""How long a member that leaves without draining waits for the others to agree."""


class Group(GroupStatus):
    """A member of a group. Create it with `cubecast.join`, and use it as an async context manager."""

    def __init__(
        self,
        name: str,
        *,
        listen: str,
        advertise: str,
        join_options: JoinOptions,
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
        self._join_options = join_options
        self._credentials = credentials
        self._makes_snapshots = snapshot is not None
        self._journal = journal
        self._trace = trace
        self._status_at = status
        self._driver: Driver | None = None
        self._state = ApplicationState(advertise, snapshot, restore, is_idle=lambda: not self._inbox.queue)
        self._inbox = Inbox(
            report_taken=self._report_taken,
            serve=self._state.serve,
            on_empty=self._state.when_idle,
            on_history_taken=self._state.history_taken,
            backlog_bytes=settings.backlog_bytes,
            is_tracked=restore is None and settings.keep != "none",
        )
        self._callbacks: dict[str, list[Callable[[Any], object]]] = {}
        self._changed: list[asyncio.Future[None]] = []
        self._notices = NoticeLog(advertise)
        self._group_of_two = GroupOfTwoLog(advertise, settings.quorum)
        self._stack = AsyncExitStack()

    # Entering and leaving.

    async def __aenter__(self) -> Self:
        """Wait until this member is in the group and has its state; log what it waits for."""
        if self._driver is not None:
            raise LocalProtocolError(f"group {self.name!r} was already entered: call cubecast.join again")
        if self._credentials is not None:
            self._credentials.require_own(self.address)
        await self._load_protocols()
        contacts = Contacts(self.name, self.address, self._join_options.contacts)
        journal, batches = self._open_journal()
        try:
            known = await contacts.first(
                self.settings.join_timeout_s, is_needed=not batches, on_waiting=self._log_waiting
            )
            driver = self._driver = self._state.driver = self._new_driver(journal)
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        try:
            await driver.start(self._listen, lambda now_ns: self._begin(driver.member, batches, known, now_ns))
            if self._status_at is not None:
                from cubecast.live.status import StatusServer

                await self._stack.enter_async_context(StatusServer(self, self._status_at))
            following = asyncio.ensure_future(contacts.follow(driver))
            try:
                await self._wait_until_in(driver)
            finally:
                following.cancel()
        except BaseException:
            await shielded(self._close())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group; without waiting for others when an exception ends the block."""
        await self.leave(drain=kind is None)

    async def leave(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Leave: send and deliver own multicasts first; then the others agree on a view without this member.

        `drain=False` gives the others a moment to agree and does not wait for messages. The default `timeout` is
        long enough to exclude members that crash in the meantime. After it this member leaves anyway, and the log
        names what may be lost. The port is closed in any case, even if the call is cancelled. `async for` still
        yields everything delivered until then.
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
                    await self._wait_briefly(driver)
        finally:
            await shielded(self._close())

    async def _wait_briefly(self, driver: Driver) -> None:
        """Let the others see a leave, not a crash."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_AT_ONCE_S):
                while not driver.is_ended:
                    await self._wait_for_change()

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
        """Operator's override: the reachable members decide alone on the next view, without a quorum.

        For a group that is blocked because the missing members will never return. If they are alive after all, there
        are then two groups of the same name, which refuse each other.
        """
        self._running().call(self._running().member.force)

    def refresh_credentials(self) -> None:
        """Reload the files of the credentials now, and close connections whose certificate was revoked.

        This also happens automatically every few seconds.
        """
        if self._driver is not None and self._credentials is not None:
            self._driver.refresh_credentials()

    async def _load_protocols(self) -> None:
        """Load compiled code; what is not in the cache is compiled, which can take half a minute."""
        data = self.settings.data_for(max(2, len(self._join_options.founders)))
        loading = asyncio.create_task(asyncio.to_thread(load, data.name, self.settings.stability_entry.name))
        if not (await asyncio.wait({loading}, timeout=LOADING_LOG_S))[0]:
            self._log_waiting(f"loading {data.title} and {self.settings.stability_entry.title}, compiled on first use")
        await loading
        if self.settings.rerank_gain:
            await asyncio.to_thread(load_search)

    def _open_journal(self) -> tuple[Journal | None, list[bytes]]:
        if self._journal is None:
            self._require_join_options()
            return None, []
        journal = Journal(self._journal, group=self.name, member=self.address, sync=self.settings.sync)
        try:
            batches = journal.read()
            if not batches:
                self._require_join_options()
        except BaseException:
            journal.close()
            raise
        return journal, batches

    def _require_join_options(self) -> None:
        if not self._join_options.is_given:
            raise LocalProtocolError("give one of peers=[...], contact=..., found=True, or a journal= to continue from")

    def _new_driver(self, journal: Journal | None) -> Driver:
        trace = None
        if self._trace is not None:
            from cubecast.live.trace_adapter import TraceAdapter

            trace = TraceAdapter(self._trace)
        started_ns = time.time_ns()
        member = Member(
            self.name,
            self.address,
            self.settings,
            incarnation=started_ns,
            session=started_ns,
            is_durable=journal is not None,
            makes_snapshots=self._makes_snapshots,
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
            answer=Reporter(self).answer,
        )

    def _begin(self, member: Member, batches: list[bytes], contacts: Sequence[str], now_ns: int) -> None:
        options = self._join_options
        if batches:
            member.resume(batches, now_ns, contacts=contacts, founders=options.founders)
        elif options.is_founder:
            member.found(now_ns)
        elif options.founders:
            member.form(options.founders, now_ns)
        else:
            member.join(contacts, now_ns)

    async def _wait_until_in(self, driver: Driver) -> None:
        member = driver.member
        deadline = time.monotonic() + self.settings.join_timeout_s
        log_at = time.monotonic() + 0.2
        while True:
            if driver.failure is not None:
                raise driver.failure
            if driver.is_ended:
                raise LocalProtocolError(f"this member left group {self.name!r} before it had joined")
            if await self._inbox.serve_request():
                continue
            # A state behind entries that the application has to take first is served when they are taken.
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
                self._log_waiting(member.waiting_for())
            try:
                async with asyncio.timeout(min(deadline, log_at) - now):
                    await self._wait_for_change()
            except TimeoutError:
                pass

    def _log_waiting(self, reason: str) -> None:
        log.info("waiting member=%s group=%s reason=%s", self.address, self.name, reason)
        self._call_back("waiting", reason)

    # Sending.

    async def multicast(self, payload: Buffer) -> Message:
        """Send to every member, this one included, in the order of the calls.

        Waits while the window of own unstable messages is full, for example during a long view change or while too
        few members are reachable. A call that is cancelled while it waits has sent nothing.
        """
        octets = payload if type(payload) is bytes else octets_of(payload)
        driver = self._driver
        if driver is None or driver.is_ended:
            driver = self._running()
        outgoing = driver.try_multicast(octets)
        if outgoing is None:
            self._require_no_deadlock(driver)
            outgoing = await driver.wait_multicast(octets)
        return Message(driver, outgoing)

    def _require_no_deadlock(self, driver: Driver) -> None:
        """A task that takes the history would wait forever if it multicasts more than the window meanwhile."""
        member = driver.member
        if member.has_room or not member.awaits_restore or not self._inbox.reads_history(asyncio.current_task()):
            return
        raise LocalProtocolError(
            "the window is full, and nothing is sent before this task has taken the history: "
            "multicast from another task, or after the last delivery with is_history"
        )

    # Receiving.

    def __aiter__(self) -> Entries[Delivery]:
        """Deliveries in causal order, each once, from the first that was not taken; ends when this member has left.

        The iterator may be left with `break`, cancelled or used with a timeout: nothing is lost, and it continues.
        """
        self._entered()
        return Entries(self._inbox, (Delivery,))

    def events(self) -> Entries[Event]:
        """Yield deliveries like `async for`, and a `ViewChange` for every view at its position among them."""
        self._entered()
        return Entries(self._inbox, (Delivery, ViewChange))

    async def receive(self, timeout: float | None = None) -> Delivery:
        """Return exactly one delivery. Raises TimeoutError; LocalProtocolError when this member has left.

        Safe to cancel: the next call returns a delivery that was not returned.
        """
        self._entered()
        async with asyncio.timeout(timeout):
            taken: Delivery | None = await self._inbox.take((Delivery,))
        if taken is None:
            raise LocalProtocolError(f"this member has left group {self.name!r}, and everything is received")
        return taken

    async def _take_batch(self, into: deque[Event], timeout: float | None) -> bool:
        """Wait for one entry, and also take the deliveries behind it; False at the end. For `SyncGroup`."""
        async with asyncio.timeout(timeout):
            taken = await self._inbox.take((Delivery, ViewChange))
        if taken is None:
            return False
        into.append(taken)
        self._inbox.take_more(into, SYNC_BATCH)
        return True

    def ack(self) -> None:
        """Tell the group that the application has processed everything it has taken.

        Without this call, the group assumes it when the application asks for the next event. Later multicasts
        causally follow everything that was processed: `causal_frontier`, `stable(level="processed")`.
        """
        self._inbox.acknowledge()

    @property
    def has_more(self) -> bool:
        """Are there events that the application has not taken?"""
        return bool(self._inbox.queue)

    def status(self) -> dict[str, Any]:
        """The status of this member and its group, for the status page."""
        from cubecast.live.status import status_of

        return status_of(self)

    # Internal.

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
            driver.processed(size)

    def _arrived(self, entries: list[Entry]) -> None:
        """Entries for the application. Without `restore` the state is a history of messages, which are deliveries."""
        if self._inbox.is_tracked and any(type(entry) is StateArrived for entry in entries):
            self._inbox.extend(self._state.with_histories(entries))
        else:
            self._inbox.extend(entries)
        self._state.may_checkpoint = True
        if self._changed:
            self._wake()

    def _noticed(self, notice: Notice) -> None:
        """A view, stability, an exclusion, a link."""
        assert self._driver is not None
        self._notices.write(notice, self._driver.member)
        if notice.what == "view":
            self._group_of_two.installed(notice.value)
        if notice.what == "stable":
            if "stable" in self._callbacks:
                self._call_back("stable", self._driver.member.frontier)
            return
        if notice.what == "causally_stable":
            if "causally_stable" in self._callbacks:
                self._call_back("causally_stable", notice.value.causal_frontier)
            return
        if notice.what == "levels":
            return
        self._call_back(notice.what, notice.value)
        self._wake()

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
    """Join a group: `async with cubecast.join(...) as group`.

    The block starts when this member is in the group and has the group's state. Until then the log names what it waits
    for; after `settings.join_timeout_s` it fails with the reason. At the end of the block the member leaves.

        async with cubecast.join(
            "orders",
            listen="10.0.0.1:7001",
            peers=["10.0.0.2:7001", "10.0.0.3:7001"],
            credentials=cubecast.Credentials.load("one.pem", ca="group.pem"),
        ) as group:
            message = await group.multicast(b"hello")  # to every member, this one included
            await message.stable(timeout=5)  # every member has it
            async for delivery in group:  # causal order, each message once
                print(delivery.sender.name, delivery.sequence, delivery.payload)

    `name` is the name of the group; members of groups with different names refuse each other. `listen` ("host:port") is
    the address on which this member accepts connections. `advertise` is the address that others dial, and the name of
    this member; it is the same as `listen` unless there is a NAT or a container in between, or `listen` means every
    interface ("0.0.0.0:7001"). All members must use the same name for a member: "localhost:7001" and
    "127.0.0.1:7001" are different names.

    Give one of:

    - `peers`: the founding members, the same list at each (with or without its own name). The group exists as soon
      as a majority of them is up; members may leave, join and return later.
    - `contact`: one or more members of a running group; `dns://name:port` means all records of a name
      (help(cubecast.live.dns)), and is resolved repeatedly until this member is in the group.
    - `found=True`: this member founds a group of one, which others join with `contact`.

    Security: give `credentials` (TLS; see `cubecast keys`), or `plaintext=True` for no protection. `settings` are
    described by help(cubecast.Settings); those marked *all* must be the same at every member.

    State transfer: `snapshot()` returns the application's state as bytes, and `restore(state)` installs it at a
    newcomer; both may be `async`. The consumer (`async for`, `events`, `receive`) calls them between two events, so the
    state includes all earlier events. The event loop waits for them: make them `async` if the state is large, and let
    `snapshot` return `bytes`, which are not copied. Without them a newcomer receives the messages that `settings.keep`
    selects, as deliveries with `is_history`. Messages that it multicasts before it has taken the last of these wait
    until then.

    `journal` is a file from which this member continues after it was stopped or killed, with the same address. Such a
    member needs neither `peers` nor `contact` nor `found`; if given, they are further addresses to try. The application
    starts with the last checkpoint (`restore`), and all later deliveries are repeated. `settings.sync` determines when
    the journal is forced to disk. `trace` is a file for the events of this member, for `cubecast check`. `status`
    ("host:port") is the address at which the member serves a page, JSON and Prometheus metrics.
    """
    require_name(name)
    require_protection(credentials, plaintext=plaintext)
    require_state_functions(snapshot, restore)
    address = read_name(listen, advertise)
    if status is not None:
        parse_address(status)
    return Group(
        name,
        listen=listen,
        advertise=address,
        join_options=read_join_options(address, peers, contact, found=found, has_journal=journal is not None),
        credentials=credentials,
        settings=settings or Settings(),
        snapshot=snapshot,
        restore=restore,
        journal=journal,
        trace=trace,
        status=status,
    )

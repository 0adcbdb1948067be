"""The programming interface of a group that changes.

async with cubecast.found("orders", listen="10.0.0.1:7001", credentials=...) as group: ...

async with cubecast.join("orders", listen="10.0.0.2:7001", contact="10.0.0.1:7001", credentials=...) as group:
    message = await group.multicast(b"hello")
    await message.stable(timeout=5)
    async for delivery in group:
        print(delivery.sender.name, delivery.payload, group.view.number)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cubecast.core.membership import MemberId, View
from cubecast.core.membership.messages import Excluded
from cubecast.errors import LocalProtocolError
from cubecast.live.changing.driver import Driver
from cubecast.live.changing.events import ChangingDelivery, Event, PutState, TakeSnapshot
from cubecast.live.changing.journal import Journal
from cubecast.live.changing.looking import ChangingLaggard, laggards_of, stats_of, status_of
from cubecast.live.changing.recording import HistoryRecorder
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.changing.window import ChangingMessage
from cubecast.live.credentials import Credentials, require_protection
from cubecast.live.settings import parse_address

logger = logging.getLogger("cubecast.live")

Buffer = bytes | bytearray | memoryview
Snapshot = Callable[[], bytes | Awaitable[bytes]]
Restore = Callable[[bytes], object]
TURN_MESSAGES = 64
"""Messages an application may multicast before the loop gets a turn."""


class ChangingGroup:
    """A member's place in a group that changes. Make one with `found` or `join`, and use it as a context manager."""

    def __init__(
        self,
        name: str,
        *,
        listen: str,
        contacts: Sequence[str],
        credentials: Credentials | None,
        settings: ChangingSettings,
        snapshot: Snapshot | None,
        restore: Restore | None,
        log: str | Path | None,
        history: str | Path | HistoryRecorder | None,
    ) -> None:
        """Nothing is opened before `async with`."""
        self.name = name
        self.settings = settings
        self._listen = listen
        self._contacts = contacts
        self._credentials = credentials
        self._snapshot = snapshot
        self._restore = restore
        self._log = log
        self._history = history
        self._driver: Driver | None = None
        self._callbacks: dict[str, list[Callable[[Any], object]]] = {}
        self._changed = asyncio.Event()
        self._in_turn = 0

    async def __aenter__(self) -> Self:
        """Found the group, or wait until this member is taken in and has the state."""
        history = self._history
        recorder = HistoryRecorder(history) if isinstance(history, str | Path) else history
        self._driver = driver = Driver(
            group=self.name,
            listen=self._listen,
            contacts=self._contacts,
            settings=self.settings,
            credentials=self._credentials,
            recorder=recorder,
            journal=self._open_log(),
            makes_snapshots=self._snapshot is not None,
            on_event=self._happened,
        )
        try:
            await driver.start()
            await self._wait_until_in(driver)
        except BaseException:
            await driver.stop()
            raise
        return self

    def _open_log(self) -> Journal | None:
        if self._log is None:
            return None
        return Journal(self._log, sync=self.settings.sync, interval_s=self.settings.sync_interval_s)

    async def _wait_until_in(self, driver: Driver) -> None:
        """Until the state of the group is here, and handed to the application."""
        try:
            async with asyncio.timeout(self.settings.join_timeout_s):
                while not driver.told.is_ready:
                    self._running()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            where = "nobody took this member in" if driver.phase == "joining" else "the state did not come"
            raise LocalProtocolError(
                f"{where} within join_timeout_s={self.settings.join_timeout_s} s; contact {', '.join(self._contacts)}"
            ) from None
        while driver.told.inbox.entries and isinstance(driver.told.inbox.entries[0], PutState):
            await self._take(driver)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group."""
        await self.leave()

    # Sending.

    async def multicast(self, payload: Buffer) -> ChangingMessage:
        """Send to every member, this one included, now or as soon as the view allows, in the order of the calls.

        Waits while `window_bytes` of own messages are not stable: during a long change, or while blocked, too.
        """
        driver = self._running()
        octets = bytes(payload)
        if len(octets) > self.settings.payload_bytes_max:
            raise LocalProtocolError(
                f"a payload of {len(octets)} bytes; the limit is payload_bytes_max={self.settings.payload_bytes_max}"
            )
        self._in_turn += 1
        if self._in_turn >= TURN_MESSAGES:
            self._in_turn = 0
            await asyncio.sleep(0)
        await driver.told.window.wait_for_room()
        return ChangingMessage(self._running().multicast(octets))

    # Receiving.

    async def events(self) -> AsyncIterator[Event]:
        """Deliveries in causal order, each once, and changes of the view at their place among them.

        Ends when this member has left. `snapshot` and `restore` are called from here, between two events.
        """
        while (event := await self.next_event()) is not None:
            yield event

    async def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event; None when this member has left. The application has dealt with all events before it."""
        driver = self._driver
        if driver is None:
            return None
        driver.has_taken()
        while await self._wait(driver, timeout):
            event = await self._take(driver)
            if event is not None:
                return event
            driver.has_taken()
        if driver.failure is not None:
            raise driver.failure
        return None

    async def __aiter__(self) -> AsyncIterator[ChangingDelivery]:
        """The deliveries among the events."""
        async for event in self.events():
            if isinstance(event, ChangingDelivery):
                yield event

    async def _wait(self, driver: Driver, timeout: float | None) -> bool:
        """Wait for the next entry of the inbox; this is also the moment for a checkpoint."""
        if driver.wants_checkpoint:
            octets = await self._state() if self._snapshot is not None else None
            if driver.wants_checkpoint:
                driver.checkpoint(octets)
        async with asyncio.timeout(timeout):
            return await driver.told.inbox.wait()

    async def _state(self) -> bytes:
        assert self._snapshot is not None
        octets = self._snapshot()
        return bytes(await octets if inspect.isawaitable(octets) else octets)

    async def _take(self, driver: Driver) -> Event | None:
        """The next event, None when it was for the application's callbacks."""
        entry = driver.told.inbox.take()
        if isinstance(entry, TakeSnapshot):
            driver.give_snapshot(entry.view, await self._state())
            return None
        if isinstance(entry, PutState):
            assert self._restore is not None
            done = self._restore(entry.octets)
            if inspect.isawaitable(done):
                await done
            return None
        return entry

    @property
    def has_more(self) -> bool:
        """Are there events that the application has not taken?"""
        return self._driver is not None and bool(self._driver.told.inbox.entries)

    # Being told at once.

    def on_view(self, callback: Callable[[View], object]) -> None:
        """Call a function when a view is installed, whatever the application has taken by then."""
        self._callbacks.setdefault("view", []).append(callback)

    def on_blocked(self, callback: Callable[[bool], object]) -> None:
        """Call a function with True when too few members are within reach, with False when enough are again."""
        self._callbacks.setdefault("blocked", []).append(callback)

    def on_excluded(self, callback: Callable[[Excluded], object]) -> None:
        """Call a function when the group went on without this member: the reason, and the messages that came back."""
        self._callbacks.setdefault("excluded", []).append(callback)

    def on_progress(self, callback: Callable[[tuple[int, int]], object]) -> None:
        """Call a function with (pieces here, pieces of the state) while this member fetches the state."""
        self._callbacks.setdefault("progress", []).append(callback)

    def on_stable(self, callback: Callable[[dict[MemberId, int]], object]) -> None:
        """Call a function with the frontier each time it moves."""
        self._callbacks.setdefault("stable", []).append(callback)

    # Looking.

    @property
    def me(self) -> MemberId:
        """This member: its address and its life."""
        return self._running().me

    @property
    def view(self) -> View:
        """The members by rank."""
        view = self._running().told.view
        if view is None:
            raise LocalProtocolError("this member is in no view yet")
        return view

    @property
    def is_blocked(self) -> bool:
        """Are too few members within reach?"""
        return self._running().told.is_blocked

    @property
    def frontier(self) -> dict[MemberId, int]:
        """How many messages of each member, in the present view, every member of the view has."""
        driver = self._running()
        return dict(zip(self.view.members, driver.told.stable, strict=True))

    def is_stable(self, delivery: ChangingDelivery) -> bool:
        """Does every member of the view have it? All of earlier views is stable."""
        view = self.view
        return delivery.view < view.number or delivery.sequence <= self.frontier.get(delivery.sender, 0)

    def laggards(self) -> list[ChangingLaggard]:
        """Who keeps messages from becoming stable, the slowest first; as far as is known, unless `slow="wait"`."""
        return laggards_of(self._running())

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member."""
        return stats_of(self._running())

    def status(self) -> dict[str, Any]:
        """What this member knows of itself and its group, for the status page."""
        return status_of(self.name, self._running())

    # Leaving.

    async def leave(self, *, timeout: float = 10.0) -> None:
        """Leave: what was multicast is sent first; the others agree on a view without this member."""
        driver = self._driver
        if driver is None:
            return
        if not driver.is_out:
            driver.leave()
            try:
                async with asyncio.timeout(timeout):
                    while not driver.is_out:
                        self._changed.clear()
                        await self._changed.wait()
            except TimeoutError:
                logger.warning("leaving without the others' word: they did not agree within %g s", timeout)
        await driver.stop()
        self._driver = None

    # Inside.

    def _running(self) -> Driver:
        driver = self._driver
        if driver is None or driver.has_left:
            raise LocalProtocolError(f"this member is not in group {self.name!r}: use it inside `async with`")
        if driver.failure is not None:
            raise driver.failure
        return driver

    def _happened(self, what: str, value: Any) -> None:
        """The driver tells: a view, stability, an exclusion, the end."""
        self._changed.set()
        callbacks = self._callbacks.get(what)
        if callbacks:
            told = self.frontier if what == "stable" else value
            for callback in callbacks:
                try:
                    callback(told)
                except Exception:  # the application's own, and the group must go on
                    logger.exception("a callback of the application failed")


def join_changing(
    name: str,
    *,
    listen: str,
    contact: str | Sequence[str],
    credentials: Credentials | None = None,
    plaintext: bool = False,
    settings: ChangingSettings | None = None,
    snapshot: Snapshot | None = None,
    restore: Restore | None = None,
    log: str | Path | None = None,
    history: str | Path | HistoryRecorder | None = None,
) -> ChangingGroup:
    """What `cubecast.join` does with a contact; without one, what `found` does."""
    contacts = [contact] if isinstance(contact, str) else list(contact)
    require_protection(credentials, plaintext=plaintext)
    if (snapshot is None) != (restore is None):
        raise LocalProtocolError("give snapshot= and restore= together: what one member takes, another must put back")
    for address in (listen, *contacts):
        parse_address(address)
    if listen in contacts:
        raise LocalProtocolError(f"contact {listen}: that is this member itself; name another one")
    return ChangingGroup(
        name,
        listen=listen,
        contacts=contacts,
        credentials=credentials,
        settings=settings or ChangingSettings(),
        snapshot=snapshot,
        restore=restore,
        log=log,
        history=history,
    )


def found(
    name: str,
    *,
    listen: str,
    credentials: Credentials | None = None,
    plaintext: bool = False,
    settings: ChangingSettings | None = None,
    snapshot: Snapshot | None = None,
    restore: Restore | None = None,
    log: str | Path | None = None,
    history: str | Path | HistoryRecorder | None = None,
) -> ChangingGroup:
    """Be the first member of a group that others can join: `async with cubecast.found(...) as group`.

    `listen` is this member's address as all others name it. `snapshot()` gives the application's state for a newcomer,
    and `restore(octets)` puts it in place there. With `log`, the name of a file, a member that was stopped goes on from
    it: the application begins with its last checkpoint and is told again what came after. `history` names a file for
    what this member did, for the checkers.
    """
    return join_changing(
        name,
        listen=listen,
        contact=(),
        credentials=credentials,
        plaintext=plaintext,
        settings=settings,
        snapshot=snapshot,
        restore=restore,
        log=log,
        history=history,
    )

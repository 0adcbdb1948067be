"""The application's state: snapshots for newcomers, a state that arrived for this member, and checkpoints.

The application provides `snapshot` and `restore`. They are called in the event loop, between two entries of the inbox;
no other task runs meanwhile, unless they are `async` and await. cubecast itself blocks the loop for a few milliseconds
at most, however large the state is: pieces are cut when a newcomer requests them, joined in a thread, and written by
the thread of the journal.

Without the two functions the state is the history of the group's messages. The application has it when it has taken
the last of them, not when they have arrived.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cubecast.errors import LocalProtocolError
from cubecast.live.driver import Driver
from cubecast.live.inbox import Request, TransferredMessages
from cubecast.member.effects import Entry, StateArrived
from cubecast.member.history import decode_history
from cubecast.member.state_transfer import uncut

log = logging.getLogger("cubecast.live")

Buffer = bytes | bytearray | memoryview
Snapshot = Callable[[], Buffer | Awaitable[Buffer]]
Restore = Callable[[bytes], object]
SNAPSHOT_TRIES = 5
SNAPSHOT_PAUSE_S = 0.05
"""A `snapshot` that raises is called again after this pause, which doubles: the state is needed at this position."""


class ApplicationState:
    """How one member handles the state of its application."""

    def __init__(
        self, address: str, snapshot: Snapshot | None, restore: Restore | None, *, is_idle: Callable[[], bool]
    ) -> None:
        """`is_idle` returns whether the application has taken all entries; `driver` is assigned when it is created."""
        self.driver: Driver | None = None
        self.may_checkpoint = True
        """Did anything arrive since the last attempt?"""
        self._address = address
        self._snapshot = snapshot
        self._restore = restore
        self._is_idle = is_idle
        self._checkpoint_bytes = 0

    # A state that arrived.

    def with_histories(self, entries: list[Entry]) -> list[Entry | TransferredMessages]:
        """The same entries, with each state as a history, which the inbox decodes as the application takes it."""
        return [
            TransferredMessages(decode_history(entry.pieces)) if type(entry) is StateArrived else entry
            for entry in entries
        ]

    def history_taken(self) -> None:
        """The application has taken the last message of a history."""
        driver = self._driver()
        driver.call(driver.member.restored)

    async def serve(self, request: Request) -> None:
        """Take a snapshot of the application, or install a state that arrived."""
        if isinstance(request, StateArrived):
            await self._put_in_place(request.pieces)
        else:
            await self._give(request.view)

    async def _put_in_place(self, pieces: Sequence[bytes]) -> None:
        assert self._restore is not None
        pieces = uncut(pieces)
        state = pieces[0] if len(pieces) == 1 else await asyncio.to_thread(b"".join, pieces)
        done = self._restore(state)
        if inspect.isawaitable(done):
            await done
        driver = self._driver()
        driver.call(driver.member.restored)

    # A state that is wanted.

    async def _give(self, view: int) -> None:
        driver = self._driver()
        for attempt in range(SNAPSHOT_TRIES):
            if driver.is_ended:
                return  # no member can fetch it any more
            try:
                state = await self._take_snapshot()
            except Exception:
                log.exception("snapshot failed member=%s view=%d attempt=%d", self._address, view, attempt + 1)
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
        return octets_of(state, what="what snapshot() returned")

    # Checkpoints.

    def when_idle(self) -> Awaitable[None] | None:
        """Called when everything is taken: make a checkpoint if the journal is long and has doubled since the last."""
        driver = self.driver
        if driver is None or driver.journal is None or driver.is_ended or not self.may_checkpoint:
            return None
        size = driver.journal.bytes
        if driver.journal.is_checkpointing or size < 2 * self._checkpoint_bytes:
            return None
        if not driver.member.wants_checkpoint(size):
            return None
        self.may_checkpoint = False
        return self._checkpoint(driver)

    async def _checkpoint(self, driver: Driver) -> None:
        state = b""
        if self._snapshot is not None:
            try:
                state = await self._take_snapshot()
            except Exception:
                log.exception("snapshot for a checkpoint failed member=%s", self._address)
                return
        if self._is_idle():
            driver.checkpoint(state, self._checkpointed)

    def _checkpointed(self) -> None:
        """The checkpoint has ended or failed: the next one is due when the journal has doubled."""
        journal = self._driver().journal
        assert journal is not None
        self._checkpoint_bytes = journal.bytes

    def _driver(self) -> Driver:
        assert self.driver is not None
        return self.driver


def octets_of(payload: object, what: str = "payload") -> bytes:
    """Bytes that an application returned or passed."""
    if type(payload) is bytes:
        return payload
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise LocalProtocolError(
        f"{what} is of type {type(payload).__name__}: give bytes, bytearray or memoryview (text: text.encode())"
    )

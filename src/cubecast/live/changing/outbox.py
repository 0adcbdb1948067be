"""What is to be sent, until what it tells of is written down.

Everything that the core asks for in one turn of the loop leaves at its end, in large batches: first the log is written,
then the history, then the messages go to the links. With `sync="always"` the log must be on the disk before; that takes
its time in a thread of its own, while the next messages gather, and the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cubecast.core.membership import MemberId
from cubecast.core.membership.messages import Message, Status
from cubecast.core.membership.records import Record
from cubecast.errors import CubecastError
from cubecast.live.changing.journal import Journal
from cubecast.live.changing.links import Links
from cubecast.live.changing.recording import HistoryRecorder
from cubecast.wire.membership import encode_message

Sending = tuple[MemberId, bytes, bool]


class Outbox:
    """Between the core and the links of one member."""

    def __init__(
        self,
        links: Links,
        journal: Journal | None,
        recorder: HistoryRecorder | None,
        on_failure: Callable[[CubecastError], None],
    ) -> None:
        """`on_failure` hears when the log cannot be written; then nothing leaves any more."""
        self._links = links
        self._journal = journal
        self._recorder = recorder
        self._on_failure = on_failure
        self._sendings: list[Sending] = []
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        self._turn_asked = False
        self._syncing: asyncio.Future[None] | None = None
        self._has_failed = False
        self._loop = asyncio.get_running_loop()

    def send(self, to: MemberId, message: Message) -> None:
        """At the end of this turn, or when the log is on the disk; the same message to many is encoded once."""
        if self._encoded[0] is not message:
            self._encoded = (message, encode_message(message))
        self._sendings.append((to, self._encoded[1], isinstance(message, Status)))
        self.ask_turn()

    def persist(self, records: tuple[Record, ...]) -> None:
        """Write these down before anything that comes after them leaves."""
        assert self._journal is not None
        self._journal.append(records)
        self.ask_turn()

    def ask_turn(self) -> None:
        """There is something to write or to send at the end of this turn."""
        if not self._turn_asked:
            self._turn_asked = True
            self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """Write, then send."""
        self._turn_asked = False
        if self._has_failed or self._syncing is not None:
            return
        try:
            if self._journal is not None:
                self._journal.write()
        except CubecastError as error:
            self._fail(error)
            return
        if self._recorder is not None:
            self._recorder.flush()
        sendings, self._sendings = self._sendings, []
        if self._journal is not None and self._journal.is_sync_due():
            self._sync(self._journal, sendings)
        else:
            self._hand_over(sendings)

    def _sync(self, journal: Journal, sendings: list[Sending]) -> None:
        """Force the log to the disk; with `always` the messages wait for it."""
        if not journal.holds_messages:
            self._hand_over(sendings)
            sendings = []
        self._syncing = self._loop.run_in_executor(None, journal.sync)
        self._syncing.add_done_callback(lambda done: self._synced(done, sendings))

    def _synced(self, done: asyncio.Future[None], sendings: list[Sending]) -> None:
        self._syncing = None
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, CubecastError):
            self._fail(error)
        else:
            self._hand_over(sendings)
            self.turn()

    def _hand_over(self, sendings: list[Sending]) -> None:
        for to, encoded, is_status in sendings:
            self._links.send(to, encoded, is_status=is_status)
        self._links.flush()

    def _fail(self, error: CubecastError) -> None:
        self._has_failed = True
        self._sendings.clear()
        self._on_failure(error)

    def forget(self) -> None:
        """A life is over: what it wanted to say is not said."""
        self._sendings.clear()

    async def close(self) -> None:
        """Write and send what is left."""
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
        if not self._has_failed:
            self.turn()
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
            await asyncio.sleep(0)
        if self._journal is not None:
            self._journal.close()
        if self._recorder is not None:
            self._recorder.close()

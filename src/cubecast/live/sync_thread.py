"""The thread that syncs one journal, so that the event loop does not wait for the disk.

It is a thread of its own: the executor of asyncio is shared with name lookups and the application, and a full one would
delay the effects of this member. Syncs that were submitted while one runs are served together by the next one (group
commit).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from cubecast.errors import JournalError
from cubecast.live.journal import Journal

log = logging.getLogger("cubecast.live")

SyncCallback = Callable[[JournalError | None], None]
"""Called in the loop with None when the journal is on the disk, with the error when it is not."""


class SyncThread:
    """Runs the syncs of one journal."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; the results go to `loop`."""
        self._journal = journal
        self._loop = loop
        self._changed = threading.Condition()
        self._waiting: list[SyncCallback] = []
        self._is_running = False
        self._is_closed = False
        # A daemon: a disk that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="cubecast-sync", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Does a sync wait or run?"""
        with self._changed:
            return self._is_running or bool(self._waiting)

    def submit(self, callback: SyncCallback) -> None:
        """Sync all that was written before this call, then call back in the loop."""
        with self._changed:
            if self._is_closed:
                raise JournalError(f"the sync thread of {self._journal.path} is closed: submit before close")
            self._waiting.append(callback)
            self._changed.notify()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Finish what was submitted and end the thread; False if it still runs after `timeout_s`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("journal sync does not end path=%s timeout_s=%g", self._journal.path, timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while callbacks := self._take():
            error = self._sync()
            with self._changed:
                self._is_running = False
            self._report(callbacks, error)

    def _take(self) -> list[SyncCallback]:
        """Wait for submissions; none when closed and all are done."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            callbacks, self._waiting = self._waiting, []
            self._is_running = bool(callbacks)
            return callbacks

    def _sync(self) -> JournalError | None:
        try:
            self._journal.sync()
        except JournalError as error:
            return error
        except Exception as error:  # the caller holds effects until it is called back: a bug must reach it too
            log.exception("journal sync failed path=%s", self._journal.path)
            return JournalError(f"cannot sync the journal {self._journal.path}: {error!r}")
        return None

    def _report(self, callbacks: list[SyncCallback], error: JournalError | None) -> None:
        try:
            for callback in callbacks:
                self._loop.call_soon_threadsafe(callback, error)
        except RuntimeError:
            log.debug("loop closed before the journal was synced path=%s", self._journal.path)

"""The thread of one journal, so that the event loop does not wait for the disk: it syncs, and writes checkpoints.

It is a thread of its own: the executor of asyncio is shared with name lookups and the application, and a full one would
delay the effects of this member. Syncs that were submitted while one runs are served together by the next one (group
commit). A checkpoint is written in small steps, and syncs that are submitted meanwhile are served between two of them.
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
    """Does the slow work of one journal."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; the results go to `loop`."""
        self._journal = journal
        self._loop = loop
        self._changed = threading.Condition()
        self._waiting: list[SyncCallback] = []
        self._writes: list[SyncCallback] = []
        self._checkpoint: SyncCallback | None = None
        self._is_closed = False
        # A daemon: a disk that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="cubecast-sync", daemon=True)
        self._thread.start()

    def submit(self, callback: SyncCallback) -> None:
        """Sync all that was written before this call, then call back in the loop."""
        self._put(self._waiting, callback)

    def submit_write(self, callback: SyncCallback) -> None:
        """Write the added batches, then call back in the loop, which does not touch the journal until then."""
        self._put(self._writes, callback)

    def submit_checkpoint(self, callback: SyncCallback) -> None:
        """Carry out the checkpoint that the journal has begun, then call back in the loop."""
        with self._changed:
            self._require_open()
            assert self._checkpoint is None, "one checkpoint at a time"
            self._checkpoint = callback
            self._changed.notify()

    def _put(self, queue: list[SyncCallback], callback: SyncCallback) -> None:
        with self._changed:
            self._require_open()
            queue.append(callback)
            self._changed.notify()

    def _require_open(self) -> None:
        if self._is_closed:
            raise JournalError(f"the sync thread of {self._journal.path} is closed: submit before close")

    def close(self, timeout_s: float = 10.0) -> bool:
        """Finish all submissions except a checkpoint, and end the thread; False if it still runs after `timeout_s`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("journal sync does not end path=%s timeout_s=%g", self._journal.path, timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._wait():
            self._serve(self._writes, self._journal.write)
            self._serve(self._waiting, self._journal.sync)
            if self._checkpoint is not None:
                self._step()

    def _wait(self) -> bool:
        """Wait for submissions; False when closed and all are done."""
        with self._changed:
            while not (self._waiting or self._writes or self._checkpoint) and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                self._checkpoint = None
            return bool(self._waiting or self._writes or self._checkpoint)

    def _serve(self, queue: list[SyncCallback], work: Callable[[], None]) -> None:
        """Serve all requests in a queue at once."""
        with self._changed:
            callbacks, queue[:] = list(queue), []
        if callbacks:
            self._report(callbacks, self._do(work))

    def _step(self) -> None:
        """Do one step of the checkpoint."""
        is_over = True

        def step() -> None:
            nonlocal is_over
            is_over = self._journal.step_checkpoint()

        error = self._do(step)
        if error is not None or is_over:
            with self._changed:
                callback, self._checkpoint = self._checkpoint, None
            if callback is not None:
                self._report([callback], error)

    def _do(self, work: Callable[[], None]) -> JournalError | None:
        try:
            work()
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

"""The journal of one member on the disk: one file of batches (`wire.journal`), written by one process at a time.

| file                   | meaning                                                                            |
|------------------------|------------------------------------------------------------------------------------|
| `<name>`               | the journal                                                                        |
| `<name>.lock`          | locked while a process uses the journal; it stays, so that the lock survives a     |
|                        | rename of the journal                                                              |
| `<name>.new`           | a checkpoint that is being written; left behind by a crash, it is removed          |
| `<name>.torn-<number>` | what was cut off the end at the start of a member; the number is the Unix time     |

When is the journal on the disk? `always`: before any effect of it leaves this process; the caller holds the effects
until `sync` has ended. `interval`: at intervals, which the caller times. `never`: when the system decides. A process
that is killed loses nothing under any of them. A machine that loses power may lose what `interval` and `never` had not
forced to the disk, and with it promises of this member to others.

**Checkpoints.** `replace` is for a short one: the next `write` puts it in place. `begin_checkpoint` is for a long one:
a thread writes it beside the journal (`live.checkpoint_file`), step by step, and the journal stays in use meanwhile, so
nothing waits for the checkpoint. Batches written meanwhile go into both files. At the end comes a short moment in which
`write` only gathers: the thread copies the last batches, forces them to the disk, and renames the new file. A
checkpoint that cannot be written is abandoned; the journal is not affected.

Threads: `sync` may run in any thread, `step_checkpoint` in one; everything else belongs to the thread of the event
loop, or, while that one waits for it, to another. `_written` counts the writes. A sync notes the count before its fsync
and reports that count afterwards, so a write during the fsync waits for the next one. A file that a checkpoint replaces
during a sync is closed by the sync.

A failed write or fsync is final: the system may have dropped the data it could not write, and the next fsync would
succeed without them. The journal refuses everything from then on; a restart reads what is on the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from cubecast.errors import JournalError
from cubecast.live.checkpoint_file import CheckpointFile, write_all
from cubecast.wire.journal import (
    CHECKPOINT,
    CREATED,
    Contents,
    batch_checksum,
    encode_batch,
    encode_header,
    header_checksum,
    read_journal,
)

log = logging.getLogger("cubecast.live")

SyncPolicy = Literal["always", "interval", "never"]
"""When the journal is forced to the disk."""

CHECKPOINT_STRIDE = 1 << 32
"""Batches that a journal may still get while a checkpoint is written: its own have higher numbers."""
COPIES_BYTES = 1 << 20
"""This much is copied to a checkpoint in the moment in which the journal gathers."""


class Journal:
    """The journal of one member: `read` it once, then `append` or `replace`, `write` and `sync`."""

    def __init__(self, path: str | Path, *, group: str, member: str, sync: SyncPolicy) -> None:
        """Open the file or create it, and lock it; `close` it even if `read` refuses it."""
        self.path = _resolve(Path(path))
        self.bytes = 0
        """Bytes of the file, without what waits for `write`."""
        self.synced_at_s: float | None = None
        """When the disk last confirmed what this process wrote, in seconds since 1970."""
        self.checkpoint_at_s: float | None = None
        """When this process last put a checkpoint in place, in seconds since 1970."""
        self._group = group
        self._member = member
        self._policy = sync
        self._pending: list[Sequence[bytes]] = []
        self._is_replacing = False
        self._checkpoint: CheckpointFile | None = None
        self._is_read = False
        self._is_closed = False
        self._failure: JournalError | None = None
        self._sequence = self._journal_number = self._previous = 0
        self._step_lock = threading.Lock()  # one step of a checkpoint at a time; taken before the two others
        self._sync_lock = threading.Lock()  # one sync at a time: an error of the disk is reported to one fsync only
        self._state_lock = threading.Lock()  # guards the fields below
        self._written = self._synced = 0
        self._is_syncing = False
        self._is_switching = False
        self._replaced: list[int] = []
        with self._guard("open"):
            self._lock_file = os.open(self._beside("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take_lock()
            with self._guard("open"):
                self._beside("new").unlink(missing_ok=True)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except BaseException:
            os.close(self._lock_file)
            raise

    def read(self) -> list[bytes]:
        """The payloads since the file began; a torn end is copied beside the journal and cut off.

        What it returns is on the disk, unless the policy is `never`: a killed member may not have synced it.
        """
        self._require_usable()
        assert not self._is_read, "a journal is read once"
        with self._guard("read"):
            data = self.path.read_bytes()
        try:
            contents = read_journal(data, group=self._group, member=self._member)
        except JournalError as error:
            self._failure = JournalError(f"{self.path}: {error}")
            raise self._failure from error
        self._is_read = True
        if contents.torn_bytes:
            self._keep_torn(data[contents.end :], contents)
        if contents.end == 0:
            self._journal_number = secrets.randbits(64)
            self._put_in_place([self._begin_file(CREATED)])
        else:
            self._continue_file(contents)
        return contents.batches

    def append(self, payload: bytes | Sequence[bytes]) -> None:
        """Add a batch; it is in the file after the next `write`."""
        self._require_usable()
        assert self._is_read, "a journal is read before it is written"
        self._pending.append((payload,) if isinstance(payload, bytes) else payload)

    def replace(self, payload: bytes | Sequence[bytes]) -> None:
        """Add a checkpoint, a batch that makes earlier ones obsolete: the next `write` begins a new file with it."""
        self._require_usable()
        with self._state_lock:
            if self._checkpoint is not None:
                self._checkpoint.cancel()
        self._pending = []
        self._is_replacing = True
        self.append(payload)

    def write(self) -> None:
        """Hand all added batches to the system; a checkpoint is then on the disk too, unless the policy is `never`.

        While a long checkpoint replaces the journal nothing is written: `is_gathering`.
        """
        self._require_usable()
        if not self._pending:
            return
        with self._guard("write"):
            if self._is_replacing:
                self._cancel_checkpoint()
                header = self._begin_file(CHECKPOINT)
                self._put_in_place([header, *self._encode_pending()])
                self._is_replacing = False
                self.checkpoint_at_s = time.time()
            else:
                with self._state_lock:
                    if self._is_switching:
                        return
                    self.bytes += write_all(self._file, self._encode_pending())
                    self._written += 1
                    if self._checkpoint is not None:
                        self._checkpoint.add(self._pending)
            self._pending = []

    def _encode_pending(self) -> list[bytes]:
        batches = []
        for payload in self._pending:
            batch = encode_batch(self._sequence, payload, journal_number=self._journal_number, previous=self._previous)
            self._sequence += 1
            self._previous = batch_checksum(batch)
            batches.append(batch)
        return batches

    @property
    def is_gathering(self) -> bool:
        """Do added batches wait for a long checkpoint? They are written with the next `write` after it."""
        return bool(self._pending)

    # A long checkpoint.

    def begin_checkpoint(self, pieces: Sequence[bytes]) -> None:
        """Replace everything written until now by these bytes, one batch; `step_checkpoint` does it."""
        self._require_usable()
        assert self._checkpoint is None, "one checkpoint at a time"
        assert not self._pending, "what the checkpoint covers is written"
        sequence = self._sequence + CHECKPOINT_STRIDE
        checkpoint = CheckpointFile(
            self._beside("new"),
            self._new_header(CHECKPOINT, sequence),
            pieces,
            sequence=sequence,
            journal_number=self._journal_number,
            flush=self._flush_unless_never,
        )
        with self._state_lock:
            self._checkpoint = checkpoint

    @property
    def is_checkpointing(self) -> bool:
        """Is a long checkpoint in progress?"""
        return self._checkpoint is not None

    def step_checkpoint(self) -> bool:
        """Do one step of the checkpoint; True when it is over, in place or abandoned. Raises like `sync`."""
        with self._step_lock:
            checkpoint = self._checkpoint
            if checkpoint is None:
                return True
            try:
                self._require_usable()
                self._step(checkpoint)
            except OSError as error:
                log.error("checkpoint abandoned path=%s reason=%s", self.path, error.strerror or error)
                self._drop_checkpoint()
            except BaseException:
                self._drop_checkpoint()
                raise
            return self._checkpoint is None

    def _step(self, checkpoint: CheckpointFile) -> None:
        if checkpoint.is_cancelled:
            log.info("checkpoint abandoned path=%s reason=overtaken", self.path)
            self._drop_checkpoint()
        elif not checkpoint.is_complete:
            checkpoint.write_slice()
        elif checkpoint.copies_bytes > COPIES_BYTES:
            with self._state_lock:
                copies = checkpoint.take_copies()
            checkpoint.write_copies(copies)
        else:
            with self._sync_lock:
                self._switch(checkpoint)

    def _switch(self, checkpoint: CheckpointFile) -> None:
        """Rename the new file to the journal, with everything the journal holds."""
        with self._state_lock:
            self._is_switching = True
            copies = checkpoint.take_copies()
        try:
            checkpoint.write_copies(copies)
            with self._state_lock:
                if checkpoint.is_cancelled:  # perhaps the journal was closed, and the name is another process's now
                    return
                self._beside("new").replace(self.path)
            if self._policy != "never":
                with self._guard("replace"):
                    _flush_folder(self.path.parent)
            with self._state_lock:
                old, self._file, checkpoint.file = self._file, checkpoint.file, -1
                self.bytes = checkpoint.bytes
                self._sequence, self._previous = checkpoint.sequence, checkpoint.previous
                self._count_replacement()
                self._checkpoint = None
                self.checkpoint_at_s = time.time()
            os.close(old)
        finally:
            self._is_switching = False

    def _drop_checkpoint(self) -> None:
        """Remove it; the caller holds the lock of its steps."""
        with self._state_lock:
            checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is not None:
            checkpoint.discard()

    def _cancel_checkpoint(self, timeout_s: float = -1) -> None:
        """Cancel it; if that takes longer than `timeout_s`, the thread that writes it ends it."""
        with self._state_lock:
            if self._checkpoint is not None:
                self._checkpoint.cancel()
        if self._step_lock.acquire(timeout=timeout_s):
            try:
                self._drop_checkpoint()
            finally:
                self._step_lock.release()

    def _flush_unless_never(self, file: int) -> None:
        if self._policy != "never":
            _flush(file)

    @property
    def holds_effects(self) -> bool:
        """Must effects wait until the journal is on the disk?"""
        return self._policy == "always"

    @property
    def is_synced(self) -> bool:
        """Is all that was written known to be on the disk?"""
        return self._synced == self._written

    def sync(self) -> None:
        """Force to the disk what was written before this call; blocks, and may run in any thread."""
        with self._sync_lock:
            self._require_usable()
            with self._state_lock:
                if self._synced == self._written:
                    return
                file, written = self._file, self._written
                self._is_syncing = True
            try:
                with self._guard("sync"):
                    _flush(file)
                with self._state_lock:
                    self._synced = max(self._synced, written)
                    self.synced_at_s = time.time()
            finally:
                self._end_sync()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write and sync what is left, close the file and release the lock; after a failure, only the latter two.

        Waits `timeout_s` at most for a sync that runs in another thread.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._failure is None:
                self.write()
                self._finish_sync(timeout_s)
        finally:
            self._failure = self._failure or JournalError(f"the journal {self.path} is closed")
            self._cancel_checkpoint(timeout_s)
            self._retire(self._file)
            os.close(self._lock_file)

    def _take_lock(self) -> None:
        with self._guard("lock"):
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise JournalError(
                    f"the journal {self.path} is in use by another process: stop that process, or choose another file"
                ) from error

    def _keep_torn(self, torn: bytes, contents: Contents) -> None:
        """Keep a copy of what is cut off: a torn write and a damaged last batch look the same."""
        with self._guard("copy the torn end of"):
            copy, name = self._create_torn_file()
            try:
                write_all(copy, [torn])
                if self._policy != "never":
                    _flush(copy)
            finally:
                os.close(copy)
        log.warning(
            "journal end torn path=%s bytes=%d kept=%d next=%d copy=%s",
            self.path,
            contents.torn_bytes,
            contents.end,
            contents.next_sequence,
            name,
        )

    def _create_torn_file(self) -> tuple[int, Path]:
        now = int(time.time())
        for number in itertools.count(now):
            name = self._beside(f"torn-{number}")
            with contextlib.suppress(FileExistsError):
                return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), name
        raise AssertionError("the count is endless")

    def _continue_file(self, contents: Contents) -> None:
        """Continue after the good part of the file."""
        self._sequence = contents.next_sequence
        self._journal_number, self._previous = contents.journal_number, contents.previous
        with self._guard("cut"):
            if self._policy != "never":
                _flush_folder(self.path.parent)  # the copy of the torn end first
            if contents.torn_bytes:
                os.ftruncate(self._file, contents.end)
            os.lseek(self._file, contents.end, os.SEEK_SET)
            if self._policy != "never":
                _flush(self._file)
        self.bytes = contents.end

    def _begin_file(self, kind: int) -> bytes:
        """The header of a new file, which the next batches continue."""
        header = self._new_header(kind, self._sequence)
        self._previous = header_checksum(header)
        return header

    def _new_header(self, kind: int, sequence: int) -> bytes:
        return encode_header(
            self._group, self._member, kind=kind, first_sequence=sequence, journal_number=self._journal_number
        )

    def _put_in_place(self, pieces: list[bytes]) -> None:
        """Replace the journal by a new file, completely or not at all."""
        with self._guard("replace"):
            new = self._write_beside(pieces)
        with self._state_lock:
            old, self._file = self._file, new
            self._count_replacement()
        self.bytes = sum(map(len, pieces))
        self._retire(old)

    def _count_replacement(self) -> None:
        """A new file is in place, and on the disk unless the policy is `never`; the caller holds the lock."""
        self._written += 1
        if self._policy != "never":
            self._synced = self._written
            self.synced_at_s = time.time()

    def _write_beside(self, pieces: list[bytes]) -> int:
        """Write a new file and rename it to the journal, in this order on the disk too."""
        name = self._beside("new")
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(file, pieces)
            if self._policy != "never":
                _flush(file)
            name.replace(self.path)
            if self._policy != "never":
                _flush_folder(self.path.parent)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                name.unlink()
            raise
        return file

    def _retire(self, file: int) -> None:
        """Close a file, or leave that to the sync that uses it."""
        with self._state_lock:
            if self._is_syncing:
                self._replaced.append(file)
                return
        os.close(file)

    def _end_sync(self) -> None:
        with self._state_lock:
            self._is_syncing = False
            replaced, self._replaced = self._replaced, []
        for file in replaced:
            os.close(file)

    def _finish_sync(self, timeout_s: float) -> None:
        if self._policy == "never":
            return
        if not self._sync_lock.acquire(timeout=timeout_s):
            raise JournalError(f"cannot sync the journal {self.path}: the disk did not respond within {timeout_s:g} s")
        self._sync_lock.release()
        self.sync()

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{ending}")

    def _require_usable(self) -> None:
        if self._failure is not None:
            raise JournalError(str(self._failure)) from self._failure

    @contextlib.contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        """An error within ends this journal; an OSError becomes a JournalError."""
        try:
            yield
        except BaseException as error:
            reason = error.strerror or error if isinstance(error, OSError) else repr(error)
            failure = JournalError(
                f"cannot {action} the journal {self.path}: {reason}: "
                "check the disk and the folder, then restart the member"
            )
            self._failure = self._failure or failure
            if isinstance(error, OSError):
                raise failure from error
            raise


def _resolve(path: Path) -> Path:
    """The file itself, not a link to it: two names of one journal share one lock."""
    try:
        file = path.resolve()
        is_other = file.exists() and not file.is_file() and not file.is_dir()
    except (OSError, RuntimeError) as error:
        raise JournalError(f"cannot open the journal {path}: {error}: choose another file") from error
    if is_other:
        raise JournalError(f"cannot open the journal {path}: it is not a regular file: choose another file")
    return file


def _flush(file: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # fsync of macOS leaves the data in the cache of the drive
    else:
        os.fsync(file)


def _flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

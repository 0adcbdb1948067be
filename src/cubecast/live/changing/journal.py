"""The log of a member on disk: batches of records, appended, each with its length and its checksum.

| bytes  | field    | meaning                                                                       |
|--------|----------|-------------------------------------------------------------------------------|
| 16     | head     | once: what this file is, and its format                                       |
| 4      | length   | bytes of the batch                                                            |
| 4      | checksum | CRC-32 of the batch                                                           |
| length | batch    | the records of one call of the core (`wire.records`)                          |

A batch that was not written completely is cut off at the next start: nothing of it was heard by anybody. A bad batch
with a good one after it is damage, not a torn write, and is refused. A batch that begins with Life or Whole makes all
before it obsolete: a new file is written beside the old one and takes its place.

When is it on the disk? `always`: before anything it tells of leaves this process. `interval`: within `interval_s`.
`never`: when the system pleases. A process that is killed loses nothing under any of them; a machine that loses its
power may lose what `interval` and `never` had not written, and with it what this member promised to others.
"""

from __future__ import annotations

import logging
import os
import struct
import time
import zlib
from pathlib import Path

from cubecast.core.membership import records as r
from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.changing.settings import Sync
from cubecast.wire.records import FORMAT, decode_records, encode_records

log = logging.getLogger("cubecast.live")

HEAD = b"cubecast log %3d" % FORMAT
_BATCH = struct.Struct("<II")


class Journal:
    """The log of one member; `read` it once, then append."""

    def __init__(self, path: str | Path, *, sync: Sync, interval_s: float) -> None:
        """Open the file, or make it."""
        self.path = Path(path)
        self.bytes = 0
        self._sync = sync
        self._interval_s = interval_s
        self._synced = time.monotonic()
        self._pending: list[bytes] = []
        self._is_new = False
        self._is_dirty = False
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._complaint(error) from error

    def read(self) -> list[r.Record]:
        """What was written, and cut off what was written halfway."""
        data = self.path.read_bytes()
        if not data.startswith(HEAD):
            if len(data) > len(HEAD) or not HEAD.startswith(data):
                raise LocalProtocolError(f"{self.path} is not a log of format {FORMAT}: move it away, or name another")
            self._begin([])
            return []
        records: list[r.Record] = []
        at = len(HEAD)
        while (batch := _batch_at(data, at)) is not None:
            records += self._decode(batch, at)
            at += _BATCH.size + len(batch)
        self._cut(data, at)
        return records

    def _decode(self, batch: bytes, at: int) -> list[r.Record]:
        try:
            return decode_records(batch)
        except RemoteProtocolError as error:
            raise LocalProtocolError(f"{self.path} is damaged at byte {at}: {error}") from error

    def _cut(self, data: bytes, at: int) -> None:
        """The log is good up to here."""
        if at < len(data):
            if len(data) - at >= _BATCH.size:
                after = at + _BATCH.size + _BATCH.unpack_from(data, at)[0]
                if _batch_at(data, after) is not None:
                    raise LocalProtocolError(f"{self.path} is damaged at byte {at}: what follows is whole")
            log.warning(
                "%s: %d bytes at the end were not written completely and are cut off", self.path, len(data) - at
            )
            os.ftruncate(self._file, at)
        os.lseek(self._file, at, os.SEEK_SET)
        self.bytes = at

    def append(self, records: tuple[r.Record, ...]) -> None:
        """One batch more; it is in the file after `write`."""
        octets = encode_records(records)
        if isinstance(records[0], r.Life | r.Whole):
            self._pending.clear()
            self._is_new = True
        self._pending.append(_BATCH.pack(len(octets), zlib.crc32(octets)) + octets)

    def write(self) -> None:
        """Write what was appended, before anything it tells of is sent."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        if self._is_new:
            self._is_new = False
            self._begin(pending)
            return
        self._put(b"".join(pending))
        self._is_dirty = True

    @property
    def holds_messages(self) -> bool:
        """Must messages wait until the log is on the disk?"""
        return self._sync == "always"

    def is_sync_due(self) -> bool:
        """Is it time to force the log to the disk?"""
        if not self._is_dirty or self._sync == "never":
            return False
        return self._sync == "always" or time.monotonic() - self._synced >= self._interval_s

    def sync(self) -> None:
        """Force what was written to the disk; may run in another thread than the rest."""
        self._is_dirty = False
        self._synced = time.monotonic()
        self._flush()

    def _begin(self, batches: list[bytes]) -> None:
        """A new file takes the place of the old one."""
        beside = self.path.with_name(self.path.name + ".new")
        try:
            new = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file, old = new, self._file
            os.close(old)
            self.bytes = 0
            self._is_dirty = False
            self._put(HEAD + b"".join(batches))
            if self._sync != "never":
                self._flush()
            beside.replace(self.path)
            if self._sync != "never":
                _sync_folder(self.path.parent)
        except OSError as error:
            raise self._complaint(error) from error

    def _put(self, octets: bytes) -> None:
        view = memoryview(octets)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise self._complaint(error) from error
        self.bytes += len(octets)

    def _flush(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._complaint(error) from error

    def close(self) -> None:
        """Write what is left, to the disk, and close the file."""
        self.write()
        if self._sync != "never":
            self._flush()
        os.close(self._file)

    def _complaint(self, error: OSError) -> LocalProtocolError:
        return LocalProtocolError(f"cannot write the log {self.path}: {error.strerror or error}")


def _batch_at(data: bytes, at: int) -> bytes | None:
    """The whole batch that begins here, None when there is none."""
    if len(data) - at < _BATCH.size:
        return None
    length, checksum = _BATCH.unpack_from(data, at)
    begin = at + _BATCH.size
    batch = data[begin : begin + length]
    return batch if 0 < length == len(batch) and zlib.crc32(batch) == checksum else None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

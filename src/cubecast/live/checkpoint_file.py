"""A checkpoint in progress: a file beside the journal, written slice by slice while the journal is still in use.

| part of the file | written                                                                                        |
|------------------|------------------------------------------------------------------------------------------------|
| file header      | first; its sequence number is far above those that the journal may still reach                 |
| batch header     | last: it has the checksum of the payload, and no process reads the file before it has its name |
| payload          | the checkpoint, a slice at a time; each is forced to the disk, so that no fsync takes long     |
| copies           | what was appended to the journal since the checkpoint was taken, as batches of the new file    |

The methods that write belong to one thread; `add`, `take_copies` and `cancel` are called under the journal's lock.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cubecast.wire.journal import BATCH_HEADER_BYTES, batch_checksum, encode_batch, encode_batch_header, header_checksum

SLICE_BYTES = 1 << 20
COPIES_BYTES_MAX = 256 << 20
"""How much may be appended meanwhile; a slower checkpoint is abandoned."""
_PIECES_MAX = 1024
"""Buffers in one call of writev: IOV_MAX of Linux and macOS."""


class CheckpointFile:
    """One checkpoint in progress."""

    def __init__(
        self,
        path: Path,
        header: bytes,
        pieces: Sequence[bytes],
        *,
        sequence: int,
        journal_number: int,
        flush: Callable[[int], None],
    ) -> None:
        """Nothing is opened yet; `flush` forces a file to the disk."""
        self.sequence = sequence
        """Of the next batch of this file."""
        self.previous = 0
        self.bytes = len(header) + BATCH_HEADER_BYTES
        self.file = -1
        self.is_complete = False
        """Is the checkpoint written? Copies are to follow."""
        self.is_cancelled = False
        self._path = path
        self._header = header
        self._slices = _slices(pieces)
        self._length = self._checksum = 0
        self._journal_number = journal_number
        self._flush = flush
        self.copies_bytes = 0
        """Bytes appended to the journal that are not in this file."""
        self._copies: list[Sequence[bytes]] = []

    def add(self, payloads: Sequence[Sequence[bytes]]) -> None:
        """Copy batches that were appended to the journal."""
        self._copies.extend(payloads)
        self.copies_bytes += sum([len(piece) for payload in payloads for piece in payload])
        if self.copies_bytes > COPIES_BYTES_MAX:
            self.cancel()

    def take_copies(self) -> list[Sequence[bytes]]:
        """The copies to write next."""
        copies, self._copies, self.copies_bytes = self._copies, [], 0
        return copies

    def cancel(self) -> None:
        """Cancel the checkpoint."""
        self.is_cancelled = True

    def write_slice(self) -> None:
        """Write a part of the checkpoint; sets `is_complete` after the last."""
        if self.file < 0:
            self.file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            write_all(self.file, [self._header, bytes(BATCH_HEADER_BYTES)])
        parts = next(self._slices, [])
        for part in parts:
            self._checksum = zlib.crc32(part, self._checksum)
        self._length += write_all(self.file, parts)
        if not parts:
            self._write_batch_header()
        self._flush(self.file)

    def _write_batch_header(self) -> None:
        fields = encode_batch_header(
            self.sequence,
            self._length,
            self._checksum,
            journal_number=self._journal_number,
            previous=header_checksum(self._header),
        )
        os.pwrite(self.file, fields, len(self._header))
        self.previous = batch_checksum(fields)
        self.sequence += 1
        self.bytes += self._length
        self.is_complete = True

    def write_copies(self, payloads: Sequence[Sequence[bytes]]) -> None:
        """Write the batches appended to the journal meanwhile."""
        batches = []
        for payload in payloads:
            batch = encode_batch(self.sequence, payload, journal_number=self._journal_number, previous=self.previous)
            self.sequence += 1
            self.previous = batch_checksum(batch)
            batches.append(batch)
        if batches:
            self.bytes += write_all(self.file, batches)
            self._flush(self.file)

    def discard(self) -> None:
        """Remove the file."""
        if self.file >= 0:
            with contextlib.suppress(OSError):
                # If the disk did not answer for long, the name may belong to another process by now.
                if os.path.samestat(os.fstat(self.file), self._path.stat()):
                    self._path.unlink()
            os.close(self.file)
            self.file = -1


def _slices(pieces: Sequence[bytes]) -> Iterator[list[memoryview]]:
    """The same bytes in lists of about `SLICE_BYTES`."""
    parts: list[memoryview] = []
    size = 0
    for piece in pieces:
        for at in range(0, len(piece), SLICE_BYTES):
            parts.append(memoryview(piece)[at : at + SLICE_BYTES])
            size += len(parts[-1])
            if size >= SLICE_BYTES:
                yield parts
                parts, size = [], 0
    if parts:
        yield parts


def write_all(file: int, pieces: Sequence[bytes | memoryview]) -> int:
    """Write all, in one call of the system if it takes all; returns the bytes."""
    total = 0
    for begin in range(0, len(pieces), _PIECES_MAX):
        some = pieces[begin : begin + _PIECES_MAX]
        size = sum(map(len, some))
        written = os.writev(file, some)
        if written < size:
            rest = memoryview(b"".join(some))[written:]
            while rest:
                rest = rest[os.write(file, rest) :]
        total += size
    return total

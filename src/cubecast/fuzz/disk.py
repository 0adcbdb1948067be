"""The disk of one machine: the journal as bytes, how much of it is synced, and what a crash or corruption leaves.

| field   | meaning                                                                   |
|---------|---------------------------------------------------------------------------|
| content | the journal as the system shows it                                        |
| synced  | this many bytes of it survive a crash of the machine                      |
| starts  | where each batch begins                                                   |
| room    | bytes that may still be written; None: no limit                           |
"""

from __future__ import annotations

import random

from cubecast.errors import JournalError
from cubecast.wire.journal import (
    CHECKPOINT,
    CREATED,
    batch_checksum,
    encode_batch,
    encode_header,
    header_checksum,
    read_journal,
)

SECTOR = 512


class Disk:
    """One journal, written as `live.journal` does it."""

    def __init__(self, draw: random.Random, group: str, member: str) -> None:
        """The journal is empty."""
        self.content = bytearray()
        self.synced = 0
        self.starts: list[int] = []
        self.room: int | None = None
        self._draw = draw
        self._group = group
        self._member = member
        self._sequence = self._journal_number = self._previous = 0

    def erase(self) -> None:
        """Erase the journal, as an operator does with one that cannot be used."""
        self.content = bytearray()
        self.synced = 0
        self.starts = []

    def read(self) -> list[bytes]:
        """The payloads of the journal; a torn end is cut off. JournalError if it is damaged."""
        contents = read_journal(bytes(self.content), group=self._group, member=self._member)
        del self.content[contents.end :]
        self._sequence = contents.next_sequence
        self._journal_number, self._previous = contents.journal_number, contents.previous
        if contents.end == 0:
            self._sequence, self._journal_number = 0, self._draw.getrandbits(64)
            self._begin_file(CREATED)
        self.synced = len(self.content)
        self.starts = [start for start in self.starts if start < len(self.content)]
        return contents.batches

    def append(self, pieces: list[bytes]) -> None:
        """Write a batch; on a full disk a part of it is written and the journal becomes unusable."""
        batch = encode_batch(self._sequence, pieces, journal_number=self._journal_number, previous=self._previous)
        if self.room is not None:
            if self.room < len(batch):
                self.content += batch[: self.room]
                self.room = 0
                raise JournalError("no space left on the simulated disk")
            self.room -= len(batch)
        self.starts.append(len(self.content))
        self.content += batch
        self._sequence += 1
        self._previous = batch_checksum(batch)

    def replace(self, pieces: list[bytes], survives: bool) -> None:
        """Replace this journal by a new one, completely or not at all."""
        if self.room is not None:
            if self.room < sum(map(len, pieces)):
                raise JournalError("no space left on the simulated disk")
            self.room -= sum(map(len, pieces))
        if survives:
            self.erase()
            self._begin_file(CHECKPOINT)
            room, self.room = self.room, None
            self.append(pieces)
            self.room = room
            self.synced = len(self.content)

    def _begin_file(self, kind: int) -> None:
        header = encode_header(
            self._group,
            self._member,
            kind=kind,
            first_sequence=self._sequence,
            journal_number=self._journal_number,
        )
        self._previous = header_checksum(header)
        self.content[:] = header

    # Faults.

    def lose_power(self) -> None:
        """Unsynced bytes survive up to a random place, and there sector by sector."""
        draw = self._draw
        tail = self.content[self.synced :]
        del self.content[self.synced :]
        if not tail:
            return
        del tail[draw.randint(0, len(tail)) if draw.random() < 0.8 else len(tail) :]
        if draw.random() < 0.5:
            first = self.synced // SECTOR
            for sector in range(first, (self.synced + len(tail)) // SECTOR + 1):
                if draw.random() < 0.4:
                    begin = max(sector * SECTOR - self.synced, 0)
                    end = min((sector + 1) * SECTOR - self.synced, len(tail))
                    tail[begin:end] = bytes(end - begin)
        self.content += tail
        self.starts = [start for start in self.starts if start < len(self.content)]

    def decay(self) -> bool:
        """Flip a bit, or zero a sector; not in the last batch, where damage looks like a torn write.

        Returns whether anything changed.
        """
        end = self.starts[-1] if self.starts else 0
        if end == 0:
            return False
        draw = self._draw
        before = bytes(self.content)
        if draw.random() < 0.5:
            self.content[draw.randrange(end)] ^= 1 << draw.randrange(8)
        else:
            size = draw.choice([64, SECTOR, 8 * SECTOR])
            begin = draw.randrange(end) // size * size
            self.content[begin : min(begin + size, end)] = bytes(min(begin + size, end) - begin)
        return before != self.content

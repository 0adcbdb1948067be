"""The messages of one view at one member: delivered and unstable, held back, and recovered ones.

| field     | meaning                                                                        |
|-----------|--------------------------------------------------------------------------------|
| stable    | messages of each rank that every member has; they are freed                    |
| records   | of each rank, from the first message that is not stable on; all are delivered  |
| waiting   | messages that the data protocol holds back, by sender << 32 | sequence         |
| places    | when each of `records` was delivered: its place in the order of all deliveries |
| recovered | messages that were pulled during a change, in an order that respects causality |

Invariants: what lies between `stable` and `delivered` is in `records`; for each rank the recovered
messages follow the delivered ones without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from cubecast.protocols.membership.views import Vector

SEQUENCE_MASK = 0xFFFFFFFF


class Batch(NamedTuple):
    """Messages in an order that respects causality, as two lists: an object per message would cost too much."""

    keys: list[int]
    """Sender << 32 | sequence."""
    records: list[bytes]

    def runs(self) -> list[tuple[int, int]]:
        """Where consecutive messages of one sender begin and end.

        The messages of a sender are delivered in order and without a gap. So if two of them are as far apart in the
        batch as their numbers, everything between them is from the same sender, and the end of a run can be searched.
        """
        keys, begin, found = self.keys, 0, []
        while begin < len(keys):
            offset = keys[begin] - begin
            inside, outside = begin, len(keys)
            if keys[-1] - outside + 1 == offset:
                inside = outside - 1
            while outside - inside > 1:
                middle = min(2 * inside - begin + 1, (inside + outside) // 2)
                if keys[middle] - middle == offset:
                    inside = middle
                else:
                    outside = middle
            found.append((begin, outside))
            begin = outside
        return found


class MessageLog:
    """The messages of one view that one member holds."""

    def __init__(self, members: int) -> None:
        """The log is empty."""
        self.stable = [0] * members
        self.bytes = 0
        """Bytes of messages that are delivered and not stable."""
        self.recovered: dict[int, bytes] = {}
        self._records: list[list[bytes]] = [[] for _ in range(members)]
        self._waiting: dict[int, bytes] = {}
        self._places: list[list[int]] = [[] for _ in range(members)]
        self._count = 0
        self._recovered_to = [0] * members

    # Deliveries.

    def add(self, delivered: Batch) -> int:
        """Store messages as they are delivered; returns their bytes."""
        keys, records = delivered
        for begin, end in delivered.runs():
            sender = keys[begin] >> 32
            self._records[sender] += records[begin:end]
            self._places[sender] += range(self._count + begin, self._count + end)
        size = sum(map(len, records))
        self._count += len(keys)
        self.bytes += size
        return size

    def delivered(self) -> Vector:
        """How many messages of each rank were delivered."""
        return tuple([stable + len(held) for stable, held in zip(self.stable, self._records, strict=True)])

    def wait(self, held_back: Batch) -> None:
        """Hold back messages that cannot be delivered yet."""
        self._waiting.update(zip(*held_back, strict=True))

    def delivered_of(self, body: bytes, asked: list[list[int]]) -> list[bytes]:
        """The records that are delivered now, from the batch that arrived or held back before (`member.calls`)."""
        keys, starts, ends = asked
        if -1 not in starts:
            return [body[start:end] for start, end in zip(starts, ends, strict=True)]
        end_wait = self._waiting.pop
        return [
            body[start:end] if start >= 0 else end_wait(key) for key, start, end in zip(keys, starts, ends, strict=True)
        ]

    def get(self, sender: int, sequence: int) -> bytes:
        """Return the record of a message that is not stable."""
        place = sequence - self.stable[sender] - 1
        assert place >= 0, f"message {sequence} of rank {sender} is stable and no longer stored"
        records = self._records[sender]
        return records[place] if place < len(records) else self._waiting[sender << 32 | sequence]

    @property
    def waiting(self) -> int:
        """How many messages wait for others that happened before them."""
        return len(self._waiting)

    @property
    def unstable(self) -> int:
        """How many delivered messages are not stable."""
        return sum(map(len, self._records))

    def free(self, sender: int, stable: int) -> int:
        """Free stable messages; returns the bytes freed."""
        records = self._records[sender]
        count = min(stable - self.stable[sender], len(records))
        freed = sum(map(len, records[:count]))
        del records[:count]
        del self._places[sender][:count]
        self.stable[sender] += count
        self.bytes -= freed
        return freed

    # Recovery.

    def in_order(self, above: Sequence[int], up_to: Sequence[int]) -> list[bytes]:
        """Delivered messages between two vectors, in the order of delivery."""
        found: list[tuple[int, bytes]] = []
        for rank, (first, last) in enumerate(zip(above, up_to, strict=True)):
            stable = self.stable[rank]
            begin, end = max(0, first - stable), max(0, last - stable)
            found += zip(self._places[rank][begin:end], self._records[rank][begin:end], strict=True)
        found.sort(key=itemgetter(0))
        return [record for _, record in found]

    def recover(self, found: Batch) -> list[bytes]:
        """Store pulled messages; returns those that are new here."""
        here = self.delivered()
        added = []
        for key, record in zip(*found, strict=True):
            sender, sequence = key >> 32, key & SEQUENCE_MASK
            if sequence == max(here[sender], self._recovered_to[sender]) + 1:
                self.recovered[key] = record
                self._recovered_to[sender] = sequence
                added.append(record)
        return added

    def lacks(self, cut: Vector) -> bool:
        """Is anything up to the cut neither delivered nor recovered?"""
        return any(
            max(here, recovered) < wanted
            for here, recovered, wanted in zip(self.delivered(), self._recovered_to, cut, strict=True)
        )

    def take_recovered(self, cut: Vector) -> Batch:
        """The recovered messages up to the cut, which are delivered now."""
        recovered, self.recovered = self.recovered, {}
        keys = [key for key in recovered if key & SEQUENCE_MASK <= cut[key >> 32]]
        return Batch(keys, [recovered[key] for key in keys])

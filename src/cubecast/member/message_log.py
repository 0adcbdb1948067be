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

    @property
    def is_run(self) -> bool:
        """Do all of them come from one sender, without a gap?"""
        first, end = self.keys[0], self.keys[0] + len(self.keys)
        return self.keys[-1] == end - 1 and self.keys == list(range(first, end))


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
        places = range(self._count, self._count + len(keys))
        if keys and delivered.is_run:
            sender = keys[0] >> 32
            self._records[sender] += records
            self._places[sender] += places
        else:
            for key, record, place in zip(keys, records, places, strict=True):
                self._records[key >> 32].append(record)
                self._places[key >> 32].append(place)
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

    def end_wait(self, key: int) -> bytes:
        """Return a held-back message that is delivered now."""
        return self._waiting.pop(key)

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

    def unstable_in_order(self) -> list[bytes]:
        """The messages that are delivered and not stable, in the order of delivery."""
        return self.in_order(self.stable, self.delivered())

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

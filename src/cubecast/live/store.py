"""The messages this member holds that are not stable: kept for whoever may lack them, freed at stability."""

from __future__ import annotations


class Store:
    """Records of every sender, from the first that is not stable on, and those that wait for others."""

    def __init__(self, members: int) -> None:
        """Nothing held."""
        self.freed = [0] * members
        self.bytes = 0
        """Of what was delivered and is not stable."""
        self._records: list[list[bytes]] = [[] for _ in range(members)]
        self._waiting: dict[int, bytes] = {}

    def add(self, sender: int, record: bytes) -> None:
        """Keep the next message of a sender."""
        self._records[sender].append(record)
        self.bytes += len(record)

    def wait(self, key: int, record: bytes) -> None:
        """Keep a message that cannot be delivered yet, by sender << 32 | sequence."""
        self._waiting[key] = record

    def end_wait(self, key: int) -> bytes:
        """Give back a message that is delivered now."""
        return self._waiting.pop(key)

    def get(self, sender: int, sequence: int) -> bytes:
        """Give the record of a message that is not stable."""
        place = sequence - self.freed[sender] - 1
        assert place >= 0, f"message {sequence} of rank {sender} is stable, and kept no more"
        records = self._records[sender]
        return records[place] if place < len(records) else self._waiting[sender << 32 | sequence]

    @property
    def waiting(self) -> int:
        """How many messages wait for others that happened before them."""
        return len(self._waiting)

    def held(self, sender: int) -> int:
        """How many messages of a sender are held."""
        return len(self._records[sender])

    def free(self, sender: int, stable: int) -> int:
        """Forget what is stable; gives the bytes that were freed."""
        records = self._records[sender]
        count = min(stable - self.freed[sender], len(records))
        freed = sum(map(len, records[:count]))
        del records[:count]
        self.freed[sender] += count
        self.bytes -= freed
        return freed

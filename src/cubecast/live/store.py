"""The messages this member holds that are not stable: kept for whoever may lack them, freed at stability."""

from __future__ import annotations


class Store:
    """Records of every sender, from the first that is not stable on."""

    def __init__(self, members: int) -> None:
        """Nothing held."""
        self.freed = [0] * members
        self.bytes = 0
        self._records: list[list[bytes]] = [[] for _ in range(members)]

    def add(self, sender: int, record: bytes) -> None:
        """Keep the next message of a sender."""
        self._records[sender].append(record)
        self.bytes += len(record)

    def get(self, sender: int, sequence: int) -> bytes:
        """Give the record of a message that is not stable."""
        return self._records[sender][sequence - self.freed[sender] - 1]

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

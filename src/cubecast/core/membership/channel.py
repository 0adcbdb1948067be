"""Reliable causal multicast within one view: vectors, a store of what is not stable, and repairs.

| field     | shape     | meaning                                                                       |
|-----------|-----------|-------------------------------------------------------------------------------|
| delivered | n         | messages of each rank that were delivered here                                |
| received  | n         | messages of each rank that are here without a gap                             |
| store     | –         | messages that are not known to be everywhere, by (rank, number)               |
| known     | n × n     | the newest `delivered` of each rank that was heard of                         |
| stable    | n         | the minimum over the members of the view                                      |

A message is delivered when everything its sender had delivered is delivered here (causal §3.1). Losses: a member that
sees in two STATUS of another in a row that the same message is missing there sends it again: its own messages, and
those of ranks whom that other cannot hear.

Invariants: delivered ≤ received; the delivered messages are closed under "happened before"; whatever is between stable
and received is in the store.
"""

from __future__ import annotations

from collections.abc import Iterator

from cubecast.core.membership.messages import Data, Vector

REPAIRS_MAX = 16  # messages sent again to one member for one STATUS


class Channel:
    """One member's part of the multicast in one view."""

    def __init__(self, view: int, rank: int, members: int) -> None:
        """Nothing sent yet."""
        self.view = view
        self.rank = rank
        self.members = members
        self.delivered = [0] * members
        self.received = [0] * members
        self.stable = [0] * members
        self.store: dict[tuple[int, int], Data] = {}
        self.known: list[Vector] = [(0,) * members] * members
        self._missing: list[Vector] = [()] * members

    def multicast(self, payload: object) -> Data:
        """A message of this member, delivered here at once."""
        me = self.rank
        self.received[me] += 1
        message = Data(self.view, me, self.received[me], tuple(self.delivered), payload)
        self.store[me, message.number] = message
        self.delivered[me] = message.number
        return message

    def take(self, message: Data) -> bool:
        """Keep a message, if it is new here."""
        sender = message.sender
        if message.number <= self.received[sender] or (sender, message.number) in self.store:
            return False
        self.store[sender, message.number] = message
        while (sender, self.received[sender] + 1) in self.store:
            self.received[sender] += 1
        return True

    def resume_stable(self, stable: Vector) -> None:
        """So much was stable before a restart."""
        self.known = [stable] * self.members
        self._settle()

    def deliverable(self, limit: Vector | None = None) -> Iterator[Data]:
        """Deliver what can be delivered, in causal order, up to `limit` of each rank."""
        progress = self.received != self.delivered
        while progress:
            progress = False
            for sender in range(self.members):
                while (message := self._next(sender, limit)) is not None:
                    self.delivered[sender] += 1
                    progress = True
                    yield message

    def _next(self, sender: int, limit: Vector | None) -> Data | None:
        number = self.delivered[sender] + 1
        if number > self.received[sender] or (limit is not None and number > limit[sender]):
            return None
        message = self.store[sender, number]
        return message if self.is_due(message) else None

    def is_due(self, message: Data) -> bool:
        """Is everything that happened before it delivered here?"""
        return all(past <= here for past, here in zip(message.past, self.delivered, strict=True))

    def hear(self, rank: int, delivered: Vector) -> bool:
        """Another member is this far; True when more is stable now."""
        known = self.known[rank]
        if delivered == known:
            return False
        self.known[rank] = tuple(map(max, known, delivered))
        return self._settle()

    def settle_own(self, delivered: Vector) -> bool:
        """What the application of this member has been given; True when more is stable now."""
        return self.hear(self.rank, delivered)

    def _settle(self) -> bool:
        stable = [min(column) for column in zip(*self.known, strict=True)]
        if stable == self.stable:
            return False
        for sender in range(self.members):
            for number in range(self.stable[sender] + 1, stable[sender] + 1):
                self.store.pop((sender, number), None)
        self.stable = stable
        return True

    def repairs(self, rank: int, received: Vector, deaf_to: set[int]) -> list[Data]:
        """What a member lacks now and lacked when it spoke last, of this rank and of those it cannot hear."""
        before, self._missing[rank] = self._missing[rank], received
        if not before:
            return []
        lacking = []
        for sender in {self.rank} | deaf_to:
            if received[sender] == before[sender]:
                numbers = range(received[sender] + 1, self.received[sender] + 1)
                lacking += [self.store[sender, number] for number in numbers if (sender, number) in self.store]
        return lacking[:REPAIRS_MAX]

    def between(self, sender: int, first: int, last: int) -> list[Data]:
        """The messages first … last of a rank that are here."""
        numbers = range(first, last + 1)
        return [self.store[sender, number] for number in numbers if (sender, number) in self.store]

    def lacks(self, cut: Vector) -> list[tuple[int, int, int]]:
        """(rank, first, last) of what is missing up to the cut."""
        return [
            (sender, here + 1, wanted)
            for sender, (here, wanted) in enumerate(zip(self.received, cut, strict=True))
            if here < wanted
        ]

    def own_beyond(self, number: int) -> tuple[object, ...]:
        """What this member multicast in this view after its message `number`."""
        own = range(number + 1, self.received[self.rank] + 1)
        return tuple(self.store[self.rank, k].payload for k in own if (self.rank, k) in self.store)

"""Reliable causal multicast within one view: vectors, a store of what is not stable, and repairs.

| field     | shape     | meaning                                                                       |
|-----------|-----------|-------------------------------------------------------------------------------|
| delivered | n         | messages of each rank that were delivered here                                |
| received  | n         | messages of each rank that are here without a gap                             |
| store     | –         | messages that are not known to be everywhere, by (rank, number)               |
| known     | –         | the newest `delivered` of each neighbour that was heard of, if slow ones are looked for |
| rounds    | –         | which messages are stable                                                     |

A message is delivered when everything its sender had delivered is delivered here (causal §3.1). Losses: a member that
sees in two STATUS of a neighbour in a row that the same message is missing there sends it again: its own messages
always, those of others when it is its turn among the neighbours of that one.

Invariants: delivered ≤ received; the delivered messages are closed under "happened before"; whatever is between stable
and received is in the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from operator import gt

from cubecast.core.membership.messages import Data, Status, Vector
from cubecast.core.membership.rounds import Rounds

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
        self.rounds = Rounds(rank, members)
        self.store: dict[tuple[int, int], Data] = {}
        self.known: dict[int, Vector] = {}
        self._missing: dict[int, Vector] = {}

    @property
    def stable(self) -> Vector:
        """How many messages of each rank were delivered by every member of the view."""
        return self.rounds.stable

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
        before, self.rounds.stable = self.rounds.stable, stable
        self._forget(before)

    def deliverable(self, limit: Vector | None = None) -> Iterator[Data]:
        """Deliver what can be delivered, in causal order, up to `limit` of each rank."""
        progress = self.received != self.delivered
        while progress:
            progress = False
            for sender in list(compress(range(self.members), map(gt, self.received, self.delivered))):
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
        return not any(map(gt, message.past, self.delivered))

    def hear(self, status: Status, delivered: Vector) -> bool:
        """A neighbour told what it knows, and the application here was given so much; True when more is stable now."""
        before = self.stable
        return self.rounds.hear(status, delivered) and self._forget(before)

    def settle_own(self, delivered: Vector) -> bool:
        """What the application of this member has been given; True when more is stable now."""
        before = self.stable
        return self.rounds.refresh(delivered) and self._forget(before)

    def _forget(self, before: Vector) -> bool:
        """Keep no longer what is everywhere."""
        for sender, (then, now) in enumerate(zip(before, self.stable, strict=True)):
            for number in range(then + 1, now + 1):
                self.store.pop((sender, number), None)
        return True

    def repairs(self, rank: int, received: Vector, is_turn: bool) -> list[Data]:
        """What a neighbour lacks now and lacked when it spoke last: of this rank, of all when it is this one's turn."""
        before = self._missing.get(rank)
        self._missing[rank] = received
        if before is None or received == tuple(self.received):
            return []
        lacking: list[Data] = []
        for sender in range(self.members) if is_turn else (self.rank,):
            if before[sender] == received[sender] < self.received[sender]:
                lacking += self.between(sender, received[sender] + 1, received[sender] + REPAIRS_MAX)
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

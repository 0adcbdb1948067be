"""Which members have reached a level with own messages, on request: what a quorum has is known before what all have.

A minimum over all members (`member.levels`) waits for the slowest one. For a message of which a quorum is enough, the
sender asks all members directly, and each answers when its own level has reached the message. Counts are those of
`member.levels`: one higher than the messages of this view, so that 1 stands for everything of earlier views.

| field    | meaning                                                                     |
|----------|-----------------------------------------------------------------------------|
| wanted   | by level: up to which own message this member asked                         |
| reached  | by level and rank: what that member answered                                |
| owed     | by rank and level: what that member asked, and is not answered yet          |
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.member.levels import DURABLE, PROCESSED, RECEIVED
from cubecast.protocol.group import NOTHING
from cubecast.protocols.membership.views import MAJORITY, View, has_quorum

LEVELS = (RECEIVED, PROCESSED, DURABLE)


class QuorumLevels:
    """Questions and answers of one view."""

    def __init__(self, view: View) -> None:
        """No question is asked yet."""
        self.view = view
        self.wanted: dict[int, int] = {}
        self.owed: dict[tuple[int, int], int] = {}
        self._reached = {level: [0] * len(view.members) for level in LEVELS}

    def want(self, level: int, count: int) -> bool:
        """Note that the level of an own message is wanted; returns whether that is more than was asked before."""
        if count <= self.wanted.get(level, 0):
            return False
        self.wanted[level] = count
        return True

    def unanswered(self, rank: int) -> list[tuple[int, int]]:
        """The levels and counts that a rank has not answered."""
        return [(level, count) for level, count in self.wanted.items() if self._reached[level][rank] < count]

    def owe(self, rank: int, level: int, count: int) -> None:
        """Note a question of a rank."""
        self.owed[rank, level] = max(count, self.owed.get((rank, level), 0))

    def due(self, own: Callable[[int, int], int]) -> list[tuple[int, int, int]]:
        """Answers (rank, level, count) that can be given now: `own(level, rank)` is this member's count."""
        answers = []
        for (rank, level), count in list(self.owed.items()):
            has = own(level, rank)
            if count <= has != NOTHING:
                answers.append((rank, level, has))
                del self.owed[rank, level]
        return answers

    def answered(self, rank: int, level: int, count: int) -> None:
        """Note the answer of a rank."""
        self._reached[level][rank] = max(count, self._reached[level][rank])

    def reached(self, level: int, own_rank: int, own: int) -> int:
        """The largest count that a quorum has reached; `own` is this member's count."""
        counts = list(self._reached[level])
        counts[own_rank] = 0 if own == NOTHING else own
        for count in sorted(counts, reverse=True):
            if has_quorum(range(len(counts)), {rank for rank, has in enumerate(counts) if has >= count}, MAJORITY):
                return count
        return 0

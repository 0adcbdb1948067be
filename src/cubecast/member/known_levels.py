"""The levels of all members as one member knew them at one moment, in the sequence numbers that an application sees.

A member reports them as an effect, after the records that they depend on: what is durable everywhere includes what is
on this member's own disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cubecast.protocols.membership.views import MemberId, View


class KnownLevels(NamedTuple):
    """Counts are those of `member.levels`, which are one higher than the messages of the view."""

    view: View
    counts: Sequence[Sequence[int]]
    """By level and rank: what all members have reached."""
    quorum: Sequence[int]
    """By level: what a quorum has reached with the messages of this member, as far as it asked."""
    causal: Sequence[int]
    """By rank: what is causally stable here; 0 while not all messages of earlier views are."""
    causal_before: dict[MemberId, int]
    """What was causally stable here when the view began."""
    causal_view: int
    """Everything of earlier views than this one is causally stable here."""

    def frontier(self, level: int) -> dict[MemberId, int]:
        """Up to which sequence number all members have reached the level with the messages of each member."""
        return self._sequences(self.counts[level])

    @property
    def causal_frontier(self) -> dict[MemberId, int]:
        """Up to which sequence number the messages of each member are causally stable here."""
        return self._sequences(self.causal) or dict(self.causal_before)

    def _sequences(self, counts: Sequence[int]) -> dict[MemberId, int]:
        each = zip(self.view.members, self.view.sent, counts, strict=True)
        return {who: sent + count - 1 for who, sent, count in each if count >= 1}

    def is_causally_stable(self, sender: MemberId, view: int, sequence: int) -> bool:
        """Does every message that the application still gets follow this one?"""
        return view < self.causal_view or sequence <= self.causal_frontier.get(sender, 0)

    def has_quorum(self, me: MemberId, level: int, sequence: int) -> bool:
        """Has a quorum reached the level with this message of `me`?"""
        if me not in self.view.members:
            return False
        return self.quorum[level] > max(0, sequence - self.view.sent[self.view.members.index(me)])


NOTHING_KNOWN = KnownLevels(View(0, 0, 0, (), (), (), ()), ((), (), ()), (0, 0, 0), (), {}, 0)

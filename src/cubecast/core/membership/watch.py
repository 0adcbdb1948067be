"""Who is silent, and how many members say so (guo ch. 3; evidence from several observers).

Every tick a member counts up its own *beat*, and tells its neighbours the newest beat of everybody that it knows of. So
a sign of life comes round bad links. A member suspects whoever gave none for `suspect_ns`, and says so in every STATUS.
One that is suspected by too few observers is only waited for. A suspicion ends with the next sign of life.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from operator import gt

from cubecast.core.membership.messages import Vector
from cubecast.core.membership.neighbours import hops, neighbours
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.views import MemberId, View


class Watch:
    """What one member knows of the health of the others in a view."""

    def __init__(self, me: MemberId, view: View, now_ns: int, settings: MembershipSettings) -> None:
        """Everybody has just been heard."""
        self.me = me
        self.view = view
        self.ranks = {who: rank for rank, who in enumerate(view.members)}
        self.heard_ns = [now_ns] * len(view.members)
        self.beats = [0] * len(view.members)
        self.said: dict[MemberId, tuple[MemberId, ...]] = {}
        members = len(view.members)
        near = neighbours(self.ranks[me], members, settings.cube_from)
        self.neighbours = [view.members[rank] for rank in near]
        self._observers = settings.observers
        self._silence_ns = settings.suspect_ns + hops(members, settings.cube_from) * settings.tick_ns

    def beat(self) -> None:
        """One more sign of life of this member."""
        self.beats[self.ranks[self.me]] += 1

    def hear(self, who: MemberId, now_ns: int) -> None:
        """A sign of life."""
        self.heard_ns[self.ranks[who]] = now_ns

    def hear_of(self, beats: Vector, now_ns: int) -> None:
        """A neighbour has heard these."""
        for rank in list(compress(range(len(beats)), map(gt, beats, self.beats))):
            self.heard_ns[rank] = now_ns
            self.beats[rank] = beats[rank]

    def suspects(self, now_ns: int) -> tuple[MemberId, ...]:
        """Who was silent for too long."""
        self.hear(self.me, now_ns)
        limit = now_ns - self._silence_ns
        if min(self.heard_ns) >= limit:
            return ()
        return tuple(compress(self.view.members, (heard < limit for heard in self.heard_ns)))

    def within_reach(self, now_ns: int) -> set[MemberId]:
        """Who is not suspected, this member among them."""
        return set(self.view.members).difference(self.suspects(now_ns))

    def doomed(self, now_ns: int) -> set[MemberId]:
        """Who is suspected by enough of those within reach."""
        suspects = self.suspects(now_ns)
        near = self.within_reach(now_ns) if suspects else set()
        return {who for who in suspects if self._is_evident(who, near)}

    def _is_evident(self, who: MemberId, near: Collection[MemberId]) -> bool:
        """This member suspects it already; others within reach must make up the number, as far as there are any."""
        agree = sum(who in suspects for observer, suspects in self.said.items() if observer in near)
        return 1 + agree >= min(self._observers, 1 + sum(other in near for other in self.neighbours))

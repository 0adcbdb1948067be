"""Who is silent, and how many members say so (guo ch. 3; evidence from several observers).

A member suspects whoever it has not heard for `suspect_ns`, and says so in every STATUS. One that is suspected by too
few observers is only waited for: a single bad link excludes nobody. A suspicion ends with the next sign of life.
"""

from __future__ import annotations

from collections.abc import Iterable

from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.views import MemberId, View


class Watch:
    """What one member knows of the health of the others in a view."""

    def __init__(self, me: MemberId, view: View, now_ns: int, settings: MembershipSettings) -> None:
        """Everybody has just been heard."""
        self.me = me
        self.view = view
        self.heard_ns = dict.fromkeys(view.members, now_ns)
        self.said: dict[MemberId, tuple[MemberId, ...]] = {}
        self._settings = settings

    def hear(self, who: MemberId, now_ns: int) -> None:
        """A sign of life."""
        self.heard_ns[who] = now_ns

    def suspects(self, now_ns: int) -> tuple[MemberId, ...]:
        """Who was silent for too long."""
        limit = now_ns - self._settings.suspect_ns
        return tuple(who for who, heard in self.heard_ns.items() if heard < limit and who != self.me)

    def within_reach(self, now_ns: int) -> set[MemberId]:
        """Who is not suspected, this member among them."""
        return set(self.view.members) - set(self.suspects(now_ns))

    def doomed(self, now_ns: int) -> set[MemberId]:
        """Who is suspected by enough of those within reach."""
        near = self.within_reach(now_ns)
        return {who for who in self.view.members if who not in near and self._is_evident(who, near)}

    def _is_evident(self, who: MemberId, near: Iterable[MemberId]) -> bool:
        """This member suspects it already; the others within reach must make up the number."""
        others = [observer for observer in near if observer != self.me]
        agree = sum(who in self.said.get(observer, ()) for observer in others)
        return 1 + agree >= min(self._settings.observers, 1 + len(others))

"""The views that a member installed: their times, and which members joined, left, were excluded or restarted."""

from __future__ import annotations

import time
from collections import deque
from typing import Literal, NamedTuple

import msgspec

from cubecast.protocols.membership.views import MemberId, View

VIEWS_MAX = 64

How = Literal["joined", "left", "excluded", "restarted"]
"""`restarted`: another incarnation has the address, in the view that excludes the one before."""


class MemberChange(NamedTuple):
    """What a view changed for one member."""

    how: How
    address: str


class InstalledView(msgspec.Struct, frozen=True, kw_only=True):
    """One view as a member saw it."""

    number: int
    time_s: float
    """When this member installed it, in seconds since 1970 by its clock."""
    members: int
    changes: list[MemberChange]


class ViewHistory:
    """The last views of one member, the oldest first."""

    def __init__(self) -> None:
        """None yet."""
        self.views: deque[InstalledView] = deque(maxlen=VIEWS_MAX)

    def add(self, before: View | None, view: View) -> None:
        """Note a view; without the one before it, it is unknown who was excluded."""
        changes = _changes_since(before, view) if before is not None else _changes_in(view)
        self.views.append(
            InstalledView(number=view.number, time_s=time.time(), members=len(view.members), changes=changes)
        )

    @property
    def first(self) -> int:
        """The number of the oldest view; 0 if there is none."""
        return self.views[0].number if self.views else 0

    def with_earlier(self, others: list[InstalledView]) -> list[InstalledView]:
        """These views, and before them those that only another member saw."""
        return [*(one for one in others if one.number < self.first), *self.views]


def how_gone(who: MemberId, view: View) -> How:
    """How a member of the view before came to be missing in this one."""
    if any(other.name == who.name for other in view.joined):
        return "restarted"
    return "left" if who in view.left else "excluded"


def _changes_since(before: View, view: View) -> list[MemberChange]:
    gone = [MemberChange(how_gone(who, view), who.name) for who in before.members if who not in view.members]
    restarted = {address for how, address in gone if how == "restarted"}
    return [*gone, *(MemberChange("joined", who.name) for who in view.joined if who.name not in restarted)]


def _changes_in(view: View) -> list[MemberChange]:
    joined = view.members if view.number == 1 else view.joined
    left = [MemberChange("left", who.name) for who in view.left]
    return [*left, *(MemberChange("joined", who.name) for who in joined)]

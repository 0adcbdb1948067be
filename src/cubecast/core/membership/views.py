"""Views: who is in the group, in which order, and how many of them may decide who is next.

A *member* is a process in one life: its name and its incarnation. A process that comes back has the same name and a
higher incarnation, and is a new member. Names are numbers in the simulator and addresses in the live runtime, so that
whoever has a view can reach its members.

**Quorum** (primary partition, guo §2.2.1). The next view is decided by a majority of the last one; of an even number,
one half is enough when the first rank is in it. Any two quorums of a view have a member in common, so no two different
views can follow the same one.

**Ranks stay.** Who stays keeps its rank as long as there is room; a hole is filled by a newcomer, or by the member with
the highest rank. So few links of an overlay over the ranks change with a view.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError

Name = Any
"""Whatever can be compared, ordered and hashed; of one type in a group."""


class MemberId(NamedTuple):
    """One life of a process."""

    name: Name
    incarnation: int


class View(NamedTuple):
    """The members by rank; who of them is new; and the last incarnation of every name there ever was."""

    number: int
    members: tuple[MemberId, ...]
    joined: tuple[MemberId, ...]
    lives: tuple[tuple[Name, int], ...]

    def is_past(self, who: MemberId) -> bool:
        """Was this member in the group once and is no longer?"""
        return who not in self.members and dict(self.lives).get(who.name, -1) >= who.incarnation


def founding_view(members: Sequence[MemberId]) -> View:
    """View 1, which all founders are given alike."""
    if not members:
        raise LocalProtocolError("0 founders: a group is founded by at least one member")
    if len({who.name for who in members}) < len(members):
        raise LocalProtocolError(f"founders {list(members)}: give every member a name of its own")
    return View(1, tuple(members), (), tuple(sorted(members)))


def has_quorum(view: View, who: Collection[MemberId]) -> bool:
    """May these members decide what follows this view?"""
    present = sum(member in who for member in view.members)
    return 2 * present > len(view.members) or (2 * present == len(view.members) and view.members[0] in who)


def next_view(view: View, stay: Collection[MemberId], join: Sequence[MemberId]) -> View:
    """The view of those who stay and those who join."""
    count = len(stay) + len(join)
    ranks: list[MemberId | None] = [who if who in stay else None for who in view.members[:count]]
    ranks += [None] * (count - len(ranks))
    homeless = [*join, *reversed([who for who in view.members[count:] if who in stay])]
    for rank, who in enumerate(ranks):
        if who is None:
            ranks[rank] = homeless.pop(0)
    lives = dict(view.lives)
    for who in join:
        lives[who.name] = max(who.incarnation, lives.get(who.name, -1))
    members = tuple(who for who in ranks if who is not None)
    return View(view.number + 1, members, tuple(join), tuple(sorted(lives.items())))

"""Views: the members of a group by rank, and which sets of them may decide the next view.

A *member* is one incarnation of a process: a name and a number that grows each time the process starts anew. Names are
addresses in the live runtime and numbers in the simulator, so a view is enough to reach its members.

**Quorum** (primary partition, guo §2.2.1). With `majority` the next view is decided by a majority of the last one; of
an even number, one half is enough when the first rank is in it. Any two quorums of a view share a member, so no two
different views can follow the same one. With `any` the remaining members may decide: a partition then splits the group
into branches, and views of two branches share a number but not a tag.

**Stable ranks.** A member that stays keeps its rank as long as the rank exists; a newcomer fills a hole, or else the
member with the highest rank does. So few links of an overlay over the ranks change with a view. If round-trip times
are measured, the coordinator may rank the members differently (`ranked`).

| field     | meaning                                                                                      |
|-----------|----------------------------------------------------------------------------------------------|
| number    | 1 for the founding view, one more with each change                                           |
| tag       | a digest of the view's members, of the cut before it, and of all views before it             |
| group_id  | the tag of the founding view: two foundings of one name differ                               |
| members   | by rank                                                                                      |
| joined    | the new members among them                                                                   |
| left      | members of the view before that left of their own accord; other removed ones were excluded   |
| sent      | how many messages each member had multicast before this view                                 |
| departed  | the last incarnation of names that are no longer members, the most recent last, bounded      |
| forgotten | an incarnation up to this one, under a name that is not listed, is past                      |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError

Name = Any
"""Any type that can be compared, ordered and hashed; all names of a group have the same type."""
Vector = tuple[int, ...]
MAJORITY, ANY = "majority", "any"
DEPARTED_MAX = 256
"""How many names of former members a view remembers; all older ones are past up to `forgotten`."""


class MemberId(NamedTuple):
    """One incarnation of a process."""

    name: Name
    incarnation: int


class ViewId(NamedTuple):
    """A view's place in the history of its group."""

    number: int
    tag: int


NO_VIEW = ViewId(0, 0)


class View(NamedTuple):
    """The members by rank, and what must be known of former members."""

    number: int
    tag: int
    group_id: int
    members: tuple[MemberId, ...]
    joined: tuple[MemberId, ...]
    left: tuple[MemberId, ...]
    sent: Vector
    departed: tuple[MemberId, ...] = ()
    forgotten: int = -1

    @property
    def id(self) -> ViewId:
        """Number and tag."""
        return ViewId(self.number, self.tag)

    def is_past(self, who: MemberId) -> bool:
        """Was this incarnation possibly a member, and is it no longer?"""
        if who in self.members:
            return False
        for known in (*self.members, *self.departed):
            if known.name == who.name:
                return who.incarnation <= known.incarnation
        return who.incarnation <= self.forgotten


def founding_view(members: Sequence[MemberId], group: str = "") -> View:
    """View 1, the same for all founders."""
    if not members:
        raise LocalProtocolError("0 founders: a group is founded by at least one member")
    if len({who.name for who in members}) < len(members):
        raise LocalProtocolError(f"founders {list(members)}: give every member a name of its own")
    tag = _digest(group, 1, members)
    return View(1, tag, tag, tuple(members), (), (), (0,) * len(members))


def has_quorum(view_members: Sequence[Any], present: Collection[Any], quorum: str = MAJORITY) -> bool:
    """May the members in `present` decide what follows a view of these members?"""
    count = sum(member in present for member in view_members)
    return is_quorum(count, len(view_members), view_members[0] in present, quorum)


def is_quorum(count: int, of: int, has_first: bool, quorum: str) -> bool:
    """May `count` members of a view decide what follows it? `has_first`: the first rank is among them."""
    if quorum == ANY:
        return count > 0
    return 2 * count > of or (2 * count == of and has_first)


def next_view(
    view: View,
    stay: Collection[MemberId],
    join: Sequence[MemberId],
    cut: Vector,
    left: Collection[MemberId] = (),
    ranked: Callable[[Sequence[MemberId]], Sequence[MemberId]] = tuple,
) -> View:
    """The view of the members that stay and join, after everything up to the cut is delivered."""
    count = len(stay) + len(join)
    ranks: list[MemberId | None] = [who if who in stay else None for who in view.members[:count]]
    ranks += [None] * (count - len(ranks))
    moved = [*join, *reversed([who for who in view.members[count:] if who in stay])]
    for rank, who in enumerate(ranks):
        if who is None:
            ranks[rank] = moved.pop(0)
    members = tuple(ranked([who for who in ranks if who is not None]))
    before = {who: sent + delivered for who, sent, delivered in zip(view.members, view.sent, cut, strict=True)}
    departed, forgotten = _departed(view, set(members))
    number = view.number + 1
    return View(
        number=number,
        tag=_digest(view.tag, number, members, cut),
        group_id=view.group_id,
        members=members,
        joined=tuple(join),
        left=tuple(who for who in view.members if who in left and who not in members),
        sent=tuple(before.get(who, 0) for who in members),
        departed=departed,
        forgotten=forgotten,
    )


def _departed(view: View, members: set[MemberId]) -> tuple[tuple[MemberId, ...], int]:
    gone = {who.name: who for who in view.departed}
    for who in view.members:
        if who not in members:
            gone.pop(who.name, None)
            gone[who.name] = who
    for who in members:
        gone.pop(who.name, None)
    listed = tuple(gone.values())
    dropped, kept = listed[:-DEPARTED_MAX], listed[-DEPARTED_MAX:]
    return kept, max([view.forgotten, *(who.incarnation for who in dropped)])


def _digest(*parts: object) -> int:
    """A digest of 63 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1

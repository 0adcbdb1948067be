"""A proposal relative to the view that it succeeds: who is removed, who joins, and the cut.

A view lists every member, a change only a few. A member of the old view can construct the next one itself, so it
receives only the change; a process that is not in the old view needs the whole view. So does a founder: no change leads
from view 0 to view 1.

| field   | meaning                                                                                 |
|---------|-----------------------------------------------------------------------------------------|
| tag     | the tag of the next view: a digest with which a reader checks the view it constructed   |
| removed | the ranks of the old view that are not in the next one, ascending                       |
| left    | those of them that left of their own accord                                             |
| joined  | the new members, in this order                                                          |
| cut     | as in a proposal                                                                        |
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from cubecast.errors import RemoteProtocolError
from cubecast.protocols.membership.messages import Message, Proposal, proposal_in
from cubecast.protocols.membership.views import (
    MemberId,
    Vector,
    View,
    next_view,
)


class Change(NamedTuple):
    """The difference between a view and the next one."""

    tag: int
    removed: Vector
    left: Vector
    joined: tuple[MemberId, ...]
    cut: Vector


def change_in(message: Message, base: View | None) -> Change | None:
    """The proposal of a message relative to this view; None if it has none, or one that does not follow this view."""
    proposal = proposal_in(message)
    if proposal is None or base is None or message.view != base.id:
        return None
    return change_to(base, proposal)


def change_to(base: View, proposal: Proposal) -> Change | None:
    """The change from a view to a proposal; None if a change cannot express it."""
    view = proposal.view
    if len(proposal.cut) != len(base.members):
        return None
    stay = set(view.members).difference(view.joined)
    left = set(view.left)
    removed = [rank for rank, who in enumerate(base.members) if who not in stay]
    change = Change(
        tag=view.tag,
        removed=tuple(removed),
        left=tuple(rank for rank in removed if base.members[rank] in left),
        joined=view.joined,
        cut=proposal.cut,
    )
    return change if _next_view(base, change) == view else None


def apply_change(base: View, change: Change) -> Proposal:
    """Reconstruct the proposal; reject a change of another view."""
    members = len(base.members)
    if len(change.cut) != members:
        raise RemoteProtocolError(f"a change with {len(change.cut)} entries in a view of {members} members")
    for ranks in (change.removed, change.left):
        if any(rank >= following for rank, following in pairwise((*ranks, members))):
            raise RemoteProtocolError(
                f"a change of {members} members whose ranks are not in order, or beyond their end"
            )
    view = _next_view(base, change)
    if view.tag != change.tag:
        raise RemoteProtocolError(f"a change of view {base.number} that leads to another view than it says")
    return Proposal(view, change.cut)


def _next_view(base: View, change: Change) -> View:
    removed = set(change.removed)
    stay = {who for rank, who in enumerate(base.members) if rank not in removed}
    return next_view(base, stay, change.joined, change.cut, {base.members[rank] for rank in change.left})

"""Branches of a group: with the quorum `any` both sides of a partition continue, and one yields when they meet again.

| what meets                                  | which one yields                                     |
|---------------------------------------------|------------------------------------------------------|
| a member with the state, one without        | the one without                                      |
| two views of different branches             | fewer views; then fewer members; then the lower tag  |

The members of the branch that yields leave it and join the other branch.
"""

from __future__ import annotations

from typing import Any

from cubecast.member.exits import Exits
from cubecast.member.in_view import FORMING, IN_VIEW, JOINING
from cubecast.member.link import Link
from cubecast.protocols.membership.messages import ChangeReport, Gone
from cubecast.protocols.membership.views import ANY, MemberId, View, ViewId
from cubecast.wire.handshake import Hello


class Branches(Exits):
    """Finds other branches, and decides which one yields."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """No other branch is known yet."""
        super().__init__(*arguments, **named)
        self._branch_probe_ns = self._branch_probes = 0
        self._avoided: set[str] = set()
        self._avoid_until_ns = 0

    def _probe_branches(self) -> None:
        """With `quorum="any"`, check at intervals whether members that went missing continue in another branch."""
        departed = self._members.view.departed
        if self.settings.quorum != ANY or not departed or self._now_ns < self._branch_probe_ns:
            return
        self._branch_probe_ns = self._now_ns + self._members.settings.suspect_ns
        name = departed[self._branch_probes % len(departed)].name
        self._branch_probes += 1
        link = self.links.links.get(name)
        if link is not None and self._members.view.is_past(link.peer):
            self.links.forget(name)  # a new handshake decides which branch yields
        self.links.reach(name, self._now_ns)

    def _is_of_other_branch(self, peer: MemberId, said: ViewId) -> bool:
        """Did a member decide on another view after the last common one? A view can have members of both branches."""
        view = self._members.view
        if self.settings.quorum != ANY or not said.number or view.is_past(peer):
            return False
        return peer not in view.members or (said.number == view.number and said != view.id)

    def _settle_branches(self, link: Link, said: ViewId) -> None:
        """Two branches of the group met: decide which one yields. A member without the state always does."""
        if not self.is_ready:
            self._avoid_branch(link.peer.name)
            self._go_out("another branch of the group has the state")
        elif said < self._members.view.id:
            self.send(link.peer, Gone(self._members.view.id))
        else:
            self.send(link.peer, ChangeReport(self._members.view.id, 0, 0, (), leaves=False, renews=False))

    def last_known(self, who: MemberId, said: Hello) -> int | None:
        """If this incarnation is no longer in the group: the last one of that name that is known."""
        self._is_stirred = True
        view = self._members.view if self.state == IN_VIEW else None
        if view is None or not view.is_past(who):
            return None
        if self.settings.quorum == ANY and said.view_number and self._yields_to(said, view):
            self._avoid_branch(who.name)
            self._go_out("another branch of the group is larger")
            return None
        known = [other.incarnation for other in (*view.members, *view.departed) if other.name == who.name]
        return max([*known, view.forgotten, who.incarnation])

    def _yields_to(self, said: Hello, view: View) -> bool:
        """Of two branches the one with more views continues, then the larger one; an older view is no branch."""
        ours = (view.number, len(view.members), view.tag)
        return (said.view_number, said.view_members, said.view_tag) > ours

    def _avoid_branch(self, other: str) -> None:
        """This branch of the group yields to that of `other`: do not ask members of this branch to join it again."""
        names = {who.name for who in self._members.view.members}
        if self.settings.quorum == ANY and other not in names:
            self._avoided = names
            self._avoid_until_ns = self._now_ns + 2 * self._members.settings.suspect_ns

    def _is_avoided(self, name: str) -> bool:
        return self._now_ns < self._avoid_until_ns and name in self._avoided

    def _on_gone(self, source: MemberId, message: Gone) -> None:
        if self.state in (JOINING, FORMING):
            self._last_incarnation = max(self._last_incarnation, self.me.incarnation)
            self._rejoin()
        elif self.state == IN_VIEW and message.view > self._members.view.id:
            if self.settings.quorum == ANY and self._members.view.is_past(source):
                self.links.forget(source.name)  # two branches met: the handshake decides which one yields
            else:
                self._avoid_branch(source.name)
                self._go_out(f"the group is at view {message.view.number} without this member")

    def refused_as_past(self, by: str, last_incarnation: int) -> None:
        """A member of the group reports that this incarnation is no longer in it."""
        self._is_stirred = True
        self._last_incarnation = max(self._last_incarnation, last_incarnation)
        if self.state in (JOINING, FORMING):
            self._rejoin()
        elif self.state == IN_VIEW:
            self._avoid_branch(by)
            self._go_out("the group continued without this member")

"""Exits from the group: a member leaves, is excluded, or learns that the others continued without it.

Its messages that did not become stable come back. Those that certainly no member delivers are multicast again in the
next incarnation (`Settings.resend`); the others are returned to the application.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cubecast.errors import ExcludedError
from cubecast.member.effects import Excluded, Notice, Outgoing
from cubecast.member.in_transfer import InTransfer
from cubecast.member.in_view import LINGER, OUT
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import Proposal
from cubecast.protocols.membership.views import ANY, MemberId

RIVALS_MAX = 3
"""After this many exclusions by another process of the same name this one fails."""


class Exits(InTransfer):
    """Leaving, exclusion, and the next incarnation."""

    contacts: list[str]
    names: set[str]
    """Names under which the group may be found."""

    _last_incarnation = 0
    """The highest incarnation of this name that is known."""
    _linger_until_ns = 0
    _rivals = 0
    """How often another process of the same name took this one's place."""

    def _begin_incarnation(self, contacts: Sequence[str], founders: Sequence[str]) -> None:
        raise NotImplementedError

    def _start_joining(self) -> None:
        raise NotImplementedError

    def _leave_view(self, proposal: Proposal) -> None:
        """The decided view is without this member."""
        if self._is_passing_gate:  # what is left of it comes before the exclusion
            assert self._gate is not None
            gate, self._gate = self._gate, None
            self._replay(gate)
        view = self._members.view
        rank = self._members.ranks[self.me]
        above = view.sent[rank] + proposal.cut[rank]
        self.record(r.Over(self._members.last_decision, self.wants_to_leave))
        newer = [who.incarnation for who in proposal.view.members if who.name == self.me.name]
        self._last_incarnation = max(self._last_incarnation, *newer, 0)
        if self.wants_to_leave:
            self.own.is_stable(above, self.effects)
        else:
            self._give_back("the others continued without this member", above, certain=self._decides_for_all)
        self.state = LINGER
        self.stack = None
        self.timers.begin_epoch()
        self._gate = self._fetch = None
        self._linger_until_ns = self._now_ns + self._members.settings.takeover_ns
        assert self._members.last_decision is not None
        self._members.send_decision(self._members.last_decision)

    @property
    def _decides_for_all(self) -> bool:
        """Does a decision bind all members? With the quorum `any` another branch may have decided otherwise."""
        return self.settings.quorum != ANY

    def _linger(self) -> None:
        """The members that stay may lack the decision, and may be too few to recover it without those that left."""
        decision = self._members.last_decision
        assert decision is not None
        reached = [self.links.reach(who.name, self._now_ns) for who in decision.proposal.view.members]
        is_acknowledged = all(link is not None and link.acknowledged == link.sent for link in reached)
        if is_acknowledged or self._now_ns >= self._linger_until_ns:
            self._end()

    def _end(self) -> None:
        """Leave the group: for good, or until the next incarnation."""
        if self.leaving:
            self.state = OUT
            self.record(r.Over(self._members.last_decision, has_left=True))
            self._note("left")
            self.effects.notices.append(Notice("left", None))
        elif self.settings.rejoin:
            self._rejoin()
        else:
            self._fail(ExcludedError(f"{self.me.name} was excluded from group {self.group!r}"))

    def _go_out(self, reason: str, *, above: int | None = None, certain: bool = False) -> None:
        """Exit from the group without having taken part in the decision."""
        if above is None:
            above = self.frontier.get(self.me, 0)
        self._give_back(reason, above, certain=certain)
        self._end()

    def _give_back(self, reason: str, above: int, *, certain: bool) -> None:
        """Messages that did not reach the group wait for the next incarnation, or are lost."""
        self._record_pending()  # also what was multicast in this step
        back = self.own.returned(above, self.effects)
        returned = [outgoing for outgoing in back if certain or not outgoing.was_sent]
        self._note("excluded", returned=[outgoing.serial for outgoing in returned], certain=certain)
        lost = self._resend(back, certain) if self.settings.rejoin and not self.leaving else back
        self._recorded_pending = len(self.own.waiting)  # the journal has them, or what they are made of
        self._lose(lost, reason)
        payloads = tuple(outgoing.payload for outgoing in back)
        self.effects.notices.append(Notice("excluded", Excluded(reason, payloads, certain)))

    def _resend(self, back: Iterable[Outgoing], certain: bool) -> list[Outgoing]:
        """Some of the returned messages wait for the next incarnation; the rest goes back to the application."""
        lost = []
        for outgoing in back:
            if self._is_resent(outgoing, certain):
                self.own.again(outgoing)
            else:
                lost.append(outgoing)
        return lost

    def _lose(self, lost: Iterable[Outgoing], reason: str) -> None:
        """Until the application has learned of it, a restart repeats the notice."""
        for outgoing in lost:
            self.own.lose(outgoing, ExcludedError(f"excluded before it was stable: {reason}"), self.effects)
        self._unreported = tuple(outgoing.payload for outgoing in lost)

    def exclusion_reported(self) -> None:
        """The application has learned of its exclusion."""
        if self._unreported:
            self._unreported = ()
            self.record(r.ExclusionReported())

    def _is_resent(self, outgoing: Outgoing, certain: bool) -> bool:
        if self.settings.resend == "certain":
            return certain or not outgoing.was_sent
        return self.settings.resend == "always"

    def _rejoin(self) -> None:
        """A new incarnation of the same name asks the members it knew to join: there is a group, also for a founder."""
        if self._last_incarnation > self.me.incarnation:
            # Newer than any incarnation this process began: another process uses the name, and each excludes the other.
            self._rivals += 1
            if self._rivals >= RIVALS_MAX:
                self._fail(ExcludedError(f"another process uses the name {self.me.name}: give each a name of its own"))
                return
        names = [who.name for who in self.view.members] if self.view is not None else []
        contacts = [*names, *sorted(self.names), *self.contacts]
        self.me = MemberId(self.me.name, max(self.me.incarnation, self._last_incarnation) + 1)
        self.links.close_all("a new incarnation begins")
        self.links.links.clear()
        self._begin_incarnation(contacts, ())
        if self.contacts:
            self._start_joining()
        else:
            self._fail(ExcludedError(f"{self.me.name} knows no member that it could ask to join again: give a contact"))

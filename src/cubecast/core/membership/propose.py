"""A coordinator's part in agreeing on the next view: gather promises, flush, have it accepted, decide.

1. *Gather.* PREPARE to all members of the view. It goes on when every member has promised that is not doomed (watch);
   after `patience_ns` a quorum is enough. Who had not the state of the application when it promised is asked again: the
   state may have come since.
2. If a promise names a proposal that was accepted before, the newest one of these is proposed again, as it is: it may
   have been decided (Paxos). Otherwise the next view is made of those who promised and want to stay, and of those who
   join. The *cut* is the largest `delivered` of each rank among the promises: everything a survivor delivered.
3. *Flush.* Those who stay and lack something ask the member that has it. Nobody accepts before all of them hold
   everything, so a decided view can be installed at once by each of its members, whoever crashes meanwhile.
4. *Accept.* With a quorum of the old view it is decided.

A change needs one member that stays and has the state of the application: without one the group would forget it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cubecast.core.membership.messages import (
    NO_BALLOT,
    Accept,
    Ballot,
    Flush,
    Message,
    Prepare,
    Promise,
    Proposal,
    Vector,
)
from cubecast.core.membership.views import MemberId, View, has_quorum, next_view

GATHER, FLUSH, ACCEPT = range(3)


class Proposer:
    """One ballot of one coordinator."""

    def __init__(self, view: View, ballot: Ballot, now_ns: int) -> None:
        """PREPARE is to be sent."""
        self.view = view
        self.ballot = ballot
        self.phase = GATHER
        self.began_ns = now_ns
        self.promises: dict[MemberId, Promise] = {}
        self.flushed: set[MemberId] = set()
        self.accepted: set[MemberId] = set()
        self.proposal: Proposal | None = None
        self._survivors: list[MemberId] = []
        self._flush: Flush | None = None

    def to_send(self) -> list[tuple[MemberId, Message]]:
        """What is still to be said in this phase, to those who have not answered; repeated every tick."""
        if self.phase == GATHER:
            prepare = Prepare(self.view.number, self.ballot)
            return [(who, prepare) for who in self.view.members if not self._is_answered(who)]
        assert self.proposal is not None
        if self.phase == FLUSH:
            assert self._flush is not None
            return [(who, self._flush) for who in self._survivors if who not in self.flushed]
        accept = Accept(self.view.number, self.ballot, self.proposal)
        return [(who, accept) for who in self.view.members if who not in self.accepted]

    def _is_answered(self, who: MemberId) -> bool:
        return who in self.promises and self.promises[who].ready

    def may_close(self, doomed: Collection[MemberId], is_patient: bool) -> bool:
        """Are there promises enough to go on?"""
        if self.phase != GATHER or not self.has_quorum(self.promises):
            return False
        missing = [who for who in self.view.members if who not in self.promises and who not in doomed]
        return not missing or not is_patient

    def has_quorum(self, who: Collection[MemberId]) -> bool:
        """Are these enough of the old view?"""
        return has_quorum(self.view, who)

    def close(self, joins: Sequence[MemberId], slow: Collection[MemberId], now_ns: int) -> bool:
        """Make the proposal from the promises; False when nobody who stays has the state."""
        earlier = self.newest_accepted()
        if earlier is not None:
            self.proposal = earlier
            self._enter(ACCEPT, now_ns)
            return True
        stay = self._who_stays(joins, slow)
        if not any(self.promises[who].ready for who in stay):
            return False
        self.proposal = Proposal(next_view(self.view, stay, joins), self.cut())
        self._survivors = [who for who in self.view.members if who in stay]
        self._flush = Flush(self.view.number, self.ballot, self.proposal.cut, self._sources())
        self._enter(FLUSH, now_ns)
        return True

    def newest_accepted(self) -> Proposal | None:
        """The proposal that may have been decided already."""
        newest = max(self.promises.values(), key=lambda promise: promise.accepted_ballot)
        return newest.accepted if newest.accepted_ballot > NO_BALLOT else None

    def cut(self) -> Vector:
        """The largest number of each rank that anybody who promised has delivered."""
        vectors = [promise.delivered for promise in self.promises.values()]
        return tuple(max(column) for column in zip(*vectors, strict=True))

    def _sources(self) -> tuple[MemberId, ...]:
        """Who has delivered up to the cut, for each rank."""
        return tuple(
            max(self.promises, key=lambda who: self.promises[who].delivered[sender])
            for sender in range(len(self.view.members))
        )

    def _who_stays(self, joins: Sequence[MemberId], slow: Collection[MemberId]) -> set[MemberId]:
        """Those who promised, but not who wants to leave, who came back in a new life, or who is too slow.

        When none of the others has the state, the first one that has it must wait.
        """
        names = {who.name for who in joins}
        present = [who for who in self.view.members if who in self.promises and who.name not in names]
        stay = {who for who in present if not self.promises[who].leaving and who not in slow}
        if not any(self.promises[who].ready for who in stay):
            stay |= set([who for who in present if self.promises[who].ready][:1])
        return stay

    def take_flushed(self, who: MemberId, now_ns: int) -> None:
        """With the word of all who stay, have it accepted."""
        self.flushed.add(who)
        if self.phase == FLUSH and self.flushed.issuperset(self._survivors):
            self._enter(ACCEPT, now_ns)

    def may_flush(self, doomed: Collection[MemberId]) -> bool:
        """Can all who are to stay still say that they hold everything?"""
        return all(who in self.flushed or who not in doomed for who in self._survivors)

    def is_decided(self) -> bool:
        """Has a quorum of the old view accepted?"""
        return self.phase == ACCEPT and self.has_quorum(self.accepted)

    def _enter(self, phase: int, now_ns: int) -> None:
        self.phase = phase
        self.began_ns = now_ns

"""A coordinator's part in agreeing on the next view: gather promises, flush, have it accepted, decide.

1. *Gather.* Send PREPARE to all members of the view. Continue when every member that is not doomed (suspected by enough
   members) has promised; after `patience_ns` a quorum is enough. A member that promised without the application's state
   is asked again, because the state may have arrived since.
2. If promises name proposals that were accepted before, the newest of these is proposed again, unchanged: it may have
   been decided (Paxos). Otherwise the next view consists of the members that promised and want to stay, and of those
   that join. The *cut* is the largest `delivered` of each rank among the promises: all that any survivor delivered.
3. *Flush.* The members that stay pull what they lack from a member that has it; if none lacks anything, this step is
   skipped. No member accepts before all of them hold everything, so each member of a decided view can install it at
   once, even if others crash meanwhile.
4. *Accept.* A quorum of the old view decides.

A change needs one member that stays and has the application's state: without one the group would forget it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cubecast.protocols.membership.messages import (
    NO_BALLOT,
    Accept,
    Ballot,
    Flush,
    Message,
    Prepare,
    Promise,
    Proposal,
)
from cubecast.protocols.membership.views import (
    MemberId,
    Vector,
    View,
    founding_view,
    is_quorum,
    next_view,
)

GATHER, FLUSH, ACCEPT = range(3)


class Proposer:
    """One ballot of one coordinator."""

    def __init__(self, view: View, ballot: Ballot, now_ns: int, quorum: str, group: str) -> None:
        """Begin with the phase that sends PREPARE."""
        self.view = view
        self.ballot = ballot
        self.phase = GATHER
        self.began_ns = now_ns
        self.promises: dict[MemberId, Promise] = {}
        self.flushed: set[MemberId] = set()
        self.accepted: set[MemberId] = set()
        self.proposal: Proposal | None = None
        self._quorum = quorum
        self._group = group
        self._survivors: list[MemberId] = []
        self._flush: Flush | None = None

    def to_send(self) -> list[tuple[MemberId, Message]]:
        """The messages of this phase to the members that have not answered; repeated every tick."""
        if self.phase == GATHER:
            prepare = Prepare(self.view.id, self.ballot)
            return [(who, prepare) for who in self.view.members if not self._is_answered(who)]
        assert self.proposal is not None
        if self.phase == FLUSH:
            assert self._flush is not None
            return [(who, self._flush) for who in self._survivors if who not in self.flushed]
        accept = Accept(self.view.id, self.ballot, self.proposal)
        return [(who, accept) for who in self.view.members if who not in self.accepted]

    def _is_answered(self, who: MemberId) -> bool:
        return who in self.promises and self.promises[who].ready

    def may_close(self, doomed: Collection[MemberId], is_patient: bool) -> bool:
        """Are there promises enough to continue?"""
        if self.phase != GATHER or not self.has_quorum(self.promises):
            return False
        missing = [who for who in self.view.members if who not in self.promises and who not in doomed]
        return not missing or not is_patient

    def has_quorum(self, who: Collection[MemberId]) -> bool:
        """Are these members of the old view enough?"""
        return is_quorum(len(who), len(self.view.members), self.view.members[0] in who, self._quorum)

    def close(
        self,
        joins: Sequence[MemberId],
        slow: Collection[MemberId],
        now_ns: int,
        ranked: Callable[[Sequence[MemberId]], Sequence[MemberId]],
    ) -> bool:
        """Make the proposal from the promises; False if no member that stays has the state."""
        earlier = self.newest_accepted()
        if earlier is not None:
            self.proposal = earlier
            self._enter(ACCEPT, now_ns)
            return True
        if self.view.number == 0:
            founders = sorted(promise.who for promise in self.promises.values())
            self.proposal = Proposal(founding_view(founders, self._group), ())
            self._enter(ACCEPT, now_ns)
            return True
        stay = self._who_stays(joins, slow)
        if not any(self.promises[who].ready for who in stay):
            return False
        cut = self.cut()
        left = {who for who, promise in self.promises.items() if promise.leaves}
        self.proposal = Proposal(next_view(self.view, stay, joins, cut, left, ranked), cut)
        self._survivors = [who for who in self.view.members if who in stay]
        self.flushed = {who for who in self._survivors if self.promises[who].delivered == cut}
        if self.flushed.issuperset(self._survivors):
            self._enter(ACCEPT, now_ns)
        else:
            self._flush = Flush(self.view.id, self.ballot, cut, self._sources(cut))
            self._enter(FLUSH, now_ns)
        return True

    def newest_accepted(self) -> Proposal | None:
        """The proposal that may have been decided already."""
        newest = max(self.promises.values(), key=lambda promise: promise.accepted_ballot)
        return newest.accepted if newest.accepted_ballot > NO_BALLOT else None

    def cut(self) -> Vector:
        """For each rank, the largest number that a member that promised has delivered."""
        vectors = {promise.delivered for promise in self.promises.values()}
        return tuple(map(max, zip(*vectors, strict=True))) if len(vectors) > 1 else vectors.pop()

    def _sources(self, cut: Vector) -> Vector:
        """For each rank, the rank of a member that has delivered up to the cut; names few different members."""
        delivered = {
            rank: self.promises[who].delivered for rank, who in enumerate(self.view.members) if who in self.promises
        }
        total = {vector: sum(vector) for vector in set(delivered.values())}
        sources = [-1] * len(cut)
        open_ranks = list(range(len(cut)))
        for rank in sorted(delivered, key=lambda rank: -total[delivered[rank]]):
            if not open_ranks:
                break
            vector = delivered[rank]
            for sender in open_ranks:
                if vector[sender] == cut[sender]:
                    sources[sender] = rank
            open_ranks = [sender for sender in open_ranks if sources[sender] < 0]
        return tuple(sources)

    def _who_stays(self, joins: Sequence[MemberId], slow: Collection[MemberId]) -> set[MemberId]:
        """The members that promised, except those that want to leave, returned as a new incarnation, or are too slow.

        If none of the remaining members has the state, the first member that has it must stay for now.
        """
        names = {who.name for who in joins}
        present = [who for who in self.view.members if who in self.promises and who.name not in names]
        stay = {who for who in present if not self.promises[who].leaves and who not in slow}
        if not any(self.promises[who].ready for who in stay):
            stay |= set([who for who in present if self.promises[who].ready][:1])
        return stay

    def take_flushed(self, who: MemberId, now_ns: int) -> None:
        """Note that a member has flushed; when all that stay have, send ACCEPT."""
        self.flushed.add(who)
        if self.phase == FLUSH and self.flushed.issuperset(self._survivors):
            self._enter(ACCEPT, now_ns)

    def may_flush(self, doomed: Collection[MemberId]) -> bool:
        """Are all members that are to stay still able to flush?"""
        return all(who in self.flushed or who not in doomed for who in self._survivors)

    def is_decided(self) -> bool:
        """Has a quorum of the old view accepted?"""
        return self.phase == ACCEPT and self.has_quorum(self.accepted)

    def _enter(self, phase: int, now_ns: int) -> None:
        self.phase = phase
        self.began_ns = now_ns

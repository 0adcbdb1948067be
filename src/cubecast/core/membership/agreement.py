"""The part of a member that changes the view: when to begin, whom to follow, what to do with a decision.

The *coordinator* is the first rank within reach. It begins when somebody is doomed, wants to leave or wants to join,
after it gathered such wishes for `batch_ns`. Whoever is frozen and sees no progress takes over with a newer ballot, the
lower ranks first, so that a coordinator may crash at any point.
"""

from __future__ import annotations

from cubecast.core.membership import records as r
from cubecast.core.membership.accept import Acceptor
from cubecast.core.membership.channel import Channel
from cubecast.core.membership.messages import (
    Accept,
    Accepted,
    Action,
    Decide,
    Flush,
    Flushed,
    Message,
    Prepare,
    Promise,
    Proposal,
    Pull,
    Refusal,
    Send,
    Vector,
)
from cubecast.core.membership.neighbours import hops
from cubecast.core.membership.propose import FLUSH, GATHER, Proposer
from cubecast.core.membership.rumours import Rumours
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.views import MemberId, Name, View
from cubecast.core.membership.watch import Watch

PULLED_MAX = 64  # messages for one PULL


class Agreement:
    """Promises, ballots and decisions of one member; `Member` adds the rest."""

    view: View
    channel: Channel
    watch: Watch

    def __init__(self, me: MemberId, settings: MembershipSettings) -> None:
        """Not in a view yet."""
        self.me = me
        self.settings = settings
        self.acceptor = Acceptor()
        self.proposer: Proposer | None = None
        self.last_decision: Decide | None = None
        self.ranks: dict[MemberId, int] = {}
        self.joins = Rumours(2 * settings.suspect_ns, settings.tick_ns)
        self.blamed = Rumours(settings.suspect_ns, settings.tick_ns)
        self.leavers: set[MemberId] = set()
        self.have_state: set[MemberId] = set()
        self.leaving = False
        self.frozen_ns = 0
        self._attempt = 0
        self._wanted_ns = -1
        self._out: list[Action] = []
        self._to_self: list[Message] = []
        self._records: list[r.Record] = []

    # What `Member` adds.

    @property
    def is_ready(self) -> bool:
        """Does this member have the state of the application?"""
        raise NotImplementedError

    @property
    def wants_to_leave(self) -> bool:
        """Was it told to go, and is nothing left to send?"""
        raise NotImplementedError

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Go over to the decided view."""
        raise NotImplementedError

    # Sending.

    def send(self, to: MemberId, message: Message) -> None:
        """To another member, or to oneself when the present call is done."""
        if to == self.me:
            self._to_self.append(message)
        else:
            self._out.append(Send(to, message))

    def record(self, record: r.Record) -> None:
        """Have it written before anything of the present call is heard."""
        if self.settings.is_durable:
            self._records.append(record)

    # Beginning and driving a change.

    def drive_change(self, now_ns: int) -> None:
        """Every tick: go on with a change, take one over, or begin one."""
        if self.proposer is not None:
            self._drive_proposer(self.proposer, now_ns)
        elif self.acceptor.is_frozen:
            if now_ns - self.acceptor.moved_ns > self.settings.takeover_ns * (1 + self._turn(now_ns)):
                self._begin(now_ns)
        elif not self._is_wanted(now_ns):
            self._wanted_ns = -1
        elif self._wanted_ns < 0:
            self._wanted_ns = now_ns
        elif now_ns - self._wanted_ns >= self.settings.batch_ns and self._turn(now_ns) == 0:
            self._begin(now_ns)

    def _turn(self, now_ns: int) -> int:
        """How many ranks within reach come before this one."""
        near = self.watch.within_reach(now_ns)
        return [who for who in self.view.members if who in near].index(self.me)

    def _is_wanted(self, now_ns: int) -> bool:
        return bool(self.watch.doomed(now_ns) or self._may_leave() or self.wanted_joins(now_ns) or self.slow(now_ns))

    def _may_leave(self) -> set[MemberId]:
        """Who wants to leave and need not stay as the last one that has the state."""
        leavers = self.leavers | ({self.me} if self.wants_to_leave else set())
        if not leavers or self.have_state - leavers:
            return leavers
        keeper = next((who for who in self.view.members if who in self.have_state), None)
        return leavers - {keeper} if keeper is not None else set()

    def wanted_joins(self, now_ns: int) -> list[MemberId]:
        """Who asked lately to be taken in, here or at another member: of each name the last life."""
        newest: dict[Name, int] = {}
        for who, _ in self.joins.lately(now_ns):
            if who not in self.ranks and not self.view.is_past(who):
                newest[who.name] = max(who.incarnation, newest.get(who.name, -1))
        return sorted(MemberId(name, life) for name, life in newest.items())

    def slow(self, now_ns: int) -> set[MemberId]:
        """Of whom it was said lately that it keeps more messages from becoming stable than is allowed."""
        return {who for who, _ in self.blamed.lately(now_ns) if who in self.ranks}

    def behind(self) -> dict[MemberId, int]:
        """How many messages delivered here each neighbour that has the state has not delivered, as far as known."""
        here = self.channel.delivered
        return {
            self.view.members[rank]: sum(max(0, own - theirs) for own, theirs in zip(here, known, strict=True))
            for rank, known in self.channel.known.items()
            if self.view.members[rank] in self.have_state
        }

    def _begin(self, now_ns: int) -> None:
        """A new ballot of this member."""
        self._attempt = 1 + max(self._attempt, self.acceptor.promised[0])
        self.proposer = Proposer(self.view, (self._attempt, self.channel.rank), now_ns)
        self._push()

    def _push(self) -> None:
        if self.proposer is not None:
            for who, message in self.proposer.to_send():
                self.send(who, message)

    def _drive_proposer(self, proposer: Proposer, now_ns: int) -> None:
        is_patient = now_ns - proposer.began_ns <= self.settings.patience_ns
        if proposer.phase == FLUSH and not (is_patient and proposer.may_flush(self.watch.doomed(now_ns))):
            self._begin(now_ns)
        elif proposer.phase != GATHER or not self._close(now_ns):
            self._push()

    def _close(self, now_ns: int) -> bool:
        """Go on from the promises, if there are enough."""
        proposer = self.proposer
        if proposer is None:
            return False
        is_patient = now_ns - proposer.began_ns <= self.settings.patience_ns
        if not proposer.may_close(self.watch.doomed(now_ns), is_patient):
            return False
        if not proposer.close(self.wanted_joins(now_ns), self.slow(now_ns), now_ns):
            return False
        self._push()
        return True

    # Answers of an acceptor.

    def on_prepare(self, source: MemberId, message: Prepare, now_ns: int) -> None:
        """Promise, and deliver nothing more."""
        if not self.acceptor.is_frozen:
            self.frozen_ns = now_ns
        before = self.acceptor.promised
        if not self.acceptor.promises(message, now_ns):
            self.send(source, Refusal(self.view.number, self.acceptor.promised))
            return
        if message.ballot > before:
            self.record(r.Promised(message.ballot))
        self.send(
            source,
            Promise(
                self.view.number,
                message.ballot,
                tuple(self.channel.delivered),
                self.acceptor.accepted_ballot,
                self.acceptor.accepted,
                self.is_ready,
                self.wants_to_leave,
            ),
        )

    def on_flush(self, source: MemberId, message: Flush, now_ns: int) -> None:
        """Gather what is missing up to the cut."""
        if self.acceptor.flushes(message, now_ns):
            self.go_on_flushing()
        else:
            self.send(source, Refusal(self.view.number, self.acceptor.promised))

    def go_on_flushing(self) -> None:
        """Ask for what is still missing, or say that nothing is."""
        flush = self.acceptor.flush
        if flush is not None and not self.say_flushed():
            for sender, first, last in self.channel.lacks(flush.cut):
                self.send(flush.sources[sender], Pull(self.view.number, sender, first, last))

    def say_flushed(self) -> bool:
        """Tell the coordinator that everything is here, if it is."""
        flush = self.acceptor.flush
        if flush is None or self.channel.lacks(flush.cut):
            return False
        self.send(self.view.members[flush.ballot[1]], Flushed(self.view.number, flush.ballot))
        return True

    def on_pull(self, source: MemberId, message: Pull) -> None:
        """Send what another member lacks."""
        for data in self.channel.between(message.sender, message.first, message.last)[:PULLED_MAX]:
            self.send(source, data)

    def on_accept(self, source: MemberId, message: Accept, now_ns: int) -> None:
        """Accept, unless a newer ballot is followed."""
        before = self.acceptor.accepted_ballot
        if self.acceptor.accepts(message, now_ns):
            if message.ballot != before:
                self.record(r.Adopted(message.ballot, message.proposal))
            self.send(source, Accepted(self.view.number, message.ballot))
        else:
            self.send(source, Refusal(self.view.number, self.acceptor.promised))

    # Answers to a coordinator.

    def _own_ballot(self, ballot: tuple[int, int]) -> Proposer | None:
        return self.proposer if self.proposer is not None and self.proposer.ballot == ballot else None

    def on_promise(self, source: MemberId, message: Promise, now_ns: int) -> None:
        """One more promise."""
        proposer = self._own_ballot(message.ballot)
        if proposer is not None and proposer.phase == GATHER:
            proposer.promises[source] = message
            self._close(now_ns)

    def on_flushed(self, source: MemberId, message: Flushed, now_ns: int) -> None:
        """One more member holds everything."""
        proposer = self._own_ballot(message.ballot)
        if proposer is not None and proposer.phase == FLUSH:
            proposer.take_flushed(source, now_ns)
            if proposer.phase != FLUSH:
                self._push()

    def on_accepted(self, source: MemberId, message: Accepted, now_ns: int) -> None:
        """With a quorum it is decided: tell everybody, also those who are out."""
        proposer = self._own_ballot(message.ballot)
        if proposer is None:
            return
        proposer.accepted.add(source)
        if proposer.is_decided():
            assert proposer.proposal is not None
            self.tell_decision(Decide(self.view.number, proposer.proposal))
            self.install(proposer.proposal, now_ns)

    def tell_decision(self, decision: Decide) -> None:
        """To the members of the old view and of the new one."""
        for who in sorted({*self.view.members, *decision.proposal.view.members}):
            if who != self.me:
                self.send(who, decision)

    def on_refusal(self, message: Refusal, now_ns: int) -> None:
        """A newer ballot is on its way: step back, and wait for it."""
        if self.proposer is not None and message.ballot > self.proposer.ballot:
            self._attempt = max(self._attempt, message.ballot[0])
            self.proposer = None
            self.acceptor.moved_ns = now_ns

    def begin_view(self, view: View, now_ns: int) -> None:
        """Everything that belongs to one view, from the start."""
        self.view = view
        self.ranks = {who: rank for rank, who in enumerate(view.members)}
        self.channel = Channel(view.number, view.members.index(self.me), len(view.members))
        self.watch = Watch(self.me, view, now_ns, self.settings)
        self.acceptor = Acceptor()
        self.proposer = None
        away_ns = 3 * hops(len(view.members), self.settings.cube_from) * self.settings.tick_ns
        self.joins.span_ns = 2 * self.settings.suspect_ns + away_ns
        self.joins.forget(self.ranks)
        self.blamed = Rumours(self.settings.suspect_ns + away_ns, self.settings.tick_ns)
        self.leavers = set()
        self.have_state &= set(view.members)
        self._attempt = 0
        self._wanted_ns = -1

    @property
    def frontier(self) -> Vector:
        """What this member has delivered in the present view."""
        return tuple(self.channel.delivered)

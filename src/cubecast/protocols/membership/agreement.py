"""When to change the view, which coordinator to follow, how to act on a decision: one member's part, without I/O.

The *coordinator* is the first rank that is not suspected. It begins a change when a member is doomed, wants to leave,
wants to join, or needs a new view because a link cannot be resumed; it gathers such requests for `batch_ns`, so that
one change serves several. A frozen member that sees no progress takes over with a newer ballot, lower ranks first, so a
coordinator may crash at any point.

**Evidence.** Members report their suspicions to the first ranks that are not suspected. A member is *doomed* when
`observers` members suspect it (fewer if fewer are left). While some suspicion has too few observers, the coordinator
waits a few batches for more, so that members that fail together are excluded together (as in Rapid).

**Probe.** A change pauses all members until all have promised; a member that is down and not suspected yet delays the
change until it is suspected: 200 ms instead of 10. The coordinator therefore probes all members first, while it gathers
requests and no member is paused, and begins when every member that is not doomed has answered. Members that measure
round-trip times report them with their answer; the ranks of the next view may depend on them.

**Founding.** View 0 lists the names of the founders, without incarnations: its members agree on view 1 by the same
rules, and learn each other's incarnations from the promises. View 1 needs a majority of the founders, whatever `quorum`
is.

| field         | meaning                                                                              |
|---------------|--------------------------------------------------------------------------------------|
| view          | the view this member is in                                                           |
| ranks         | its members and their ranks                                                          |
| place         | this member as listed in the view                                                    |
| acceptor      | what it promised and accepted for the next view                                      |
| proposer      | its own ballot, if it coordinates a change                                           |
| last_decision | the decision that led to this view, for members that missed it                       |
| have_state    | members known to have the application's state                                        |
| is_forced     | an operator declared the reachable members to be enough                              |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Protocol

from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.accept import Acceptor
from cubecast.protocols.membership.messages import (
    ANY_INCARNATION,
    Accept,
    Accepted,
    ChangeReport,
    Decide,
    Flush,
    Flushed,
    Join,
    Message,
    Prepare,
    Present,
    Probe,
    Promise,
    Proposal,
    Refusal,
    RoundTrips,
)
from cubecast.protocols.membership.propose import FLUSH, GATHER, Proposer
from cubecast.protocols.membership.settings import MembershipSettings
from cubecast.protocols.membership.views import (
    ANY,
    MAJORITY,
    MemberId,
    Name,
    Vector,
    View,
    ViewId,
    has_quorum,
)

Measured = dict[MemberId, dict[MemberId, int]]
"""Round-trip times in microseconds, as reported by members; 0 for an unmeasured link."""
REPORT_TO = 3
"""Members send reports to this many of the first ranks: the coordinator, and those that would take over."""
EVIDENCE_BATCHES = 8
"""How many batches a coordinator waits for more observers of a suspicion."""


class AgreementHost(Protocol):
    """What the agreement needs from its member."""

    renews: bool
    """Does this member need a new view?"""

    @property
    def is_ready(self) -> bool:
        """Does the application have the group's state?"""

    @property
    def wants_to_leave(self) -> bool:
        """Does the application want to leave, and is nothing left to send?"""

    def send(self, to: MemberId, message: Message) -> None:
        """Send a message."""

    def record(self, record: r.Record) -> None:
        """Write a record before anything that follows is visible outside."""

    def suspects(self) -> Collection[MemberId]:
        """Which members of the view the failure detector suspects now."""

    def behind(self) -> Collection[MemberId]:
        """Which members delay the stability of too many messages."""

    def delivered(self) -> Vector:
        """How many messages of each rank were delivered in this view."""

    def round_trips(self) -> Vector:
        """The round-trip times of the links (`RoundTrips`); empty if ranks do not depend on them."""

    def ranked(self, members: Sequence[MemberId], measured: Measured) -> Sequence[MemberId]:
        """Order the members of the next view by rank; `members` is the order that `next_view` gives."""

    def freeze(self) -> None:
        """Deliver and send nothing more in this view."""

    def lacks(self, cut: Vector) -> bool:
        """Is anything up to the cut neither delivered nor recovered here?"""

    def pull(self, flush: Flush) -> None:
        """Request the missing messages from the sources of a flush."""

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Continue in the decided view, or outside of it."""


class Agreement:
    """Promises, ballots and decisions of one member."""

    view: View

    def __init__(self, me: MemberId, group: str, settings: MembershipSettings, host: AgreementHost) -> None:
        """Not in a view yet."""
        self.me = me
        self.settings = settings
        self.acceptor = Acceptor()
        self.proposer: Proposer | None = None
        self.last_decision: Decide | None = None
        self.ranks: dict[MemberId, int] = {}
        self.place = me
        self.have_state: set[MemberId] = set()
        self.is_forced = False
        self.frozen_ns = 0
        self._group = group
        self._host = host
        self._before: tuple[View, dict[MemberId, int]] | None = None
        self._joins: dict[MemberId, int] = {}
        self._reports: dict[MemberId, tuple[ChangeReport, int]] = {}
        self._reported: ChangeReport | None = None
        self._reported_ns = 0
        self._attempt = 0
        self._wanted_ns = -1
        self._present: set[MemberId] = set()
        self._probed_ns = 0
        self._measured: Measured = {}
        self._to_self: list[Message] = []

    # View.

    def begin_view(self, view: View, now_ns: int) -> None:
        """Reset everything that belongs to one view."""
        self._before = (self.view, self.ranks) if self.ranks else None
        self.view = view
        self.ranks = {who: rank for rank, who in enumerate(view.members)}
        self.place = MemberId(self.me.name, 0) if view.number == 0 else self.me
        self.acceptor = Acceptor()
        self.acceptor.moved_ns = now_ns
        self.proposer = None
        self.have_state &= set(view.members)
        self.is_forced = False
        self._joins = {who: then for who, then in self._joins.items() if self._may_join(who)}
        self._reports = {}
        self._reported = None
        self._attempt = 0
        self._wanted_ns = -1
        self._measured = {}

    @property
    def is_frozen(self) -> bool:
        """Has this member promised to deliver nothing more in this view?"""
        return self.acceptor.is_frozen

    @property
    def quorum(self) -> str:
        """Which sets of members may decide what follows this view."""
        if self.view.number == 0:
            return MAJORITY
        return ANY if self.is_forced else self.settings.quorum

    def shared_view(self, said: ViewId, to: MemberId) -> View | None:
        """The view in which a message was sent, if this member and its sender are in it, or were in it just before."""
        known = [(self.view, self.ranks), *([self._before] if self._before else [])] if self.ranks else []
        return next((view for view, ranks in known if view.id == said and to in ranks), None)

    def within_reach(self) -> set[MemberId]:
        """The members that are not suspected, including this one."""
        return set(self.view.members).difference(self._host.suspects()) | {self.place}

    def has_quorum(self) -> bool:
        """Are enough members reachable?"""
        return has_quorum(self.view.members, self.within_reach(), self.quorum)

    def knows_source(self, source: MemberId) -> MemberId | None:
        """The sender of a message as the view lists it; None if it is not in the view."""
        place = MemberId(source.name, 0) if self.view.number == 0 else source
        return place if place in self.ranks else None

    def _send(self, to: MemberId, message: Message) -> None:
        """Send to another member, or to this member itself when the present call is done."""
        if to == self.place:
            self._to_self.append(message)
        elif self.view.number == 0:
            self._host.send(MemberId(to.name, ANY_INCARNATION), message)
        else:
            self._host.send(to, message)

    # Beginning and driving a change.

    def tick(self, now_ns: int) -> None:
        """Continue a change, take one over, or begin one; report what others should know."""
        self._report(now_ns)
        if self.proposer is not None:
            self._drive_proposer(self.proposer, now_ns)
        elif self.acceptor.is_frozen:
            flush = self.acceptor.flush
            if flush is not None and not self.say_flushed():
                self._host.pull(flush)
            still_ns = now_ns - self.acceptor.moved_ns
            if still_ns > self.settings.takeover_ns and still_ns > self.settings.takeover_ns * (1 + self._turn()):
                self._begin(now_ns)
        elif self.view.number:
            self._consider(now_ns)
        self._answer_self(now_ns)

    def _consider(self, now_ns: int) -> None:
        if not self._is_wanted(now_ns):
            self._wanted_ns = -1
            return
        if self._wanted_ns < 0:
            self._wanted_ns = now_ns
            self._present.clear()
        if not self._is_first():
            return
        self._probe(now_ns)
        waited_ns = now_ns - self._wanted_ns
        is_due = waited_ns >= self.settings.batch_ns
        if is_due and self._has_open_suspicions(now_ns):
            is_due = waited_ns >= EVIDENCE_BATCHES * self.settings.batch_ns
        if is_due and self._is_probed(now_ns, waited_ns):
            self._begin(now_ns)

    def _probe(self, now_ns: int) -> None:
        """Probe the members that have not answered yet, at intervals."""
        if self._present and now_ns - self._probed_ns < self.settings.tick_ns:
            return
        self._present.add(self.place)
        self._probed_ns = now_ns
        self._send_round_trips(self.place)
        for who in self.view.members:
            if who not in self._present:
                self._send(who, Probe(self.view.id))

    def _is_probed(self, now_ns: int, waited_ns: int) -> bool:
        """Have all members answered that will? A silent one is soon doomed, unless only this member cannot hear it."""
        if waited_ns > self.settings.suspect_ns + self.settings.patience_ns:
            return True
        silent = self.ranks.keys() - self._present
        return not silent or silent <= self._mute(now_ns)

    @property
    def is_active(self) -> bool:
        """Is a change in progress, or wanted? If so, `tick` must be called often."""
        return self.acceptor.is_frozen or self.proposer is not None or self._wanted_ns >= 0

    def _is_first(self) -> bool:
        """Is this the first reachable rank?"""
        suspects = set(self._host.suspects())
        return next(who for who in self.view.members if who == self.place or who not in suspects) == self.place

    def _turn(self) -> int:
        """How many reachable ranks come before this one."""
        near = self.within_reach()
        return [who for who in self.view.members if who in near].index(self.place)

    def _is_wanted(self, now_ns: int) -> bool:
        return bool(
            self._host.renews
            or self._fresh_reports(now_ns, "renews")
            or self.doomed(now_ns)
            or self._may_leave(now_ns)
            or self.wanted_joins(now_ns)
            or self.slow(now_ns)
        )

    def _fresh_reports(self, now_ns: int, flag: str) -> set[MemberId]:
        fresh = {
            who
            for who, (report, then) in self._reports.items()
            if getattr(report, flag) and now_ns - then <= self.settings.suspect_ns
        }
        return fresh & self.within_reach() if fresh else fresh

    def _may_leave(self, now_ns: int) -> set[MemberId]:
        """The members that want to leave, except one that must stay as the last member with the state."""
        leavers = self._fresh_reports(now_ns, "leaves") | ({self.place} if self._host.wants_to_leave else set())
        if not leavers or self.have_state - leavers:
            return leavers
        keeper = next((who for who in self.view.members if who in self.have_state), None)
        return leavers - {keeper} if keeper is not None else set()

    def _may_join(self, who: MemberId) -> bool:
        return who not in self.ranks and not self.view.is_past(who)

    def hear_join(self, who: MemberId, now_ns: int) -> None:
        """A process asks to join, here or at another member."""
        if self._may_join(who):
            self._joins[who] = now_ns

    def wanted_joins(self, now_ns: int) -> list[MemberId]:
        """The processes that asked to join recently: the last incarnation of each name."""
        newest: dict[Name, int] = {}
        for who, then in self._joins.items():
            if self._may_join(who) and now_ns - then <= 2 * self.settings.suspect_ns:
                newest[who.name] = max(who.incarnation, newest.get(who.name, -1))
        return sorted(MemberId(name, incarnation) for name, incarnation in newest.items())

    def slow(self, now_ns: int) -> set[MemberId]:
        """Which members delay the stability of too many messages, as this member or a fresh report observed."""
        return set(self._host.behind()) | self._reported_ranks(now_ns, "behind")

    def _reported_ranks(self, now_ns: int, field: str) -> set[MemberId]:
        mask = 0
        for report, then in self._reports.values():
            if now_ns - then <= self.settings.suspect_ns:
                mask |= getattr(report, field)
        return {who for rank, who in enumerate(self.view.members) if mask >> rank & 1} if mask else set()

    def doomed(self, now_ns: int) -> set[MemberId]:
        """Members suspected here and by enough reachable members."""
        suspects = self._host.suspects()
        if not suspects:
            return set()
        near = self.within_reach()
        return {who for who in suspects if self._is_evident(who, near, now_ns)}

    def _is_evident(self, who: MemberId, near: Collection[MemberId], now_ns: int) -> bool:
        rank = self.ranks[who]
        wanted = min(self.settings.observers, len(near)) - 1
        agree = (
            observer
            for observer, (report, then) in self._reports.items()
            if report.suspects >> rank & 1 and observer in near and now_ns - then <= self.settings.suspect_ns
        )
        return len(list(islice(agree, wanted))) == wanted

    def _mute(self, now_ns: int) -> set[MemberId]:
        """The members that will not answer: doomed ones, and those whose process asks to join again."""
        doomed = self.doomed(now_ns)
        names = {who.name for who in self.wanted_joins(now_ns)}
        return doomed | {who for who in self.view.members if who.name in names} if names else doomed

    def _has_open_suspicions(self, now_ns: int) -> bool:
        """Is any member suspected by some members, but not by enough?"""
        suspected = set(self._host.suspects()) | self._reported_ranks(now_ns, "suspects")
        return bool(suspected - self.doomed(now_ns))

    def _report(self, now_ns: int) -> None:
        """Report to the first reachable ranks, when something changed or the last report is old."""
        if self.view.number == 0:
            return
        report = ChangeReport(
            self.view.id,
            sum(1 << self.ranks[who] for who in self._host.suspects()),
            sum(1 << self.ranks[who] for who in self._host.behind()),
            tuple(self.wanted_joins(now_ns)),
            self._host.wants_to_leave,
            self._host.renews,
        )
        nothing = ChangeReport(self.view.id, 0, 0, (), leaves=False, renews=False)
        if report == (self._reported or nothing) and (
            report == nothing or now_ns - self._reported_ns < self.settings.suspect_ns // 4
        ):
            return
        self._reported, self._reported_ns = report, now_ns
        near = self.within_reach()
        first = [who for who in self.view.members if who in near][:REPORT_TO]
        # Report to the first of all ranks too: a member that restarted has not heard from them yet and suspects them.
        for who in dict.fromkeys([*first, *self.view.members[:REPORT_TO]]):
            if who != self.place:
                self._send(who, report)

    def on_report(self, source: MemberId, message: ChangeReport, now_ns: int) -> None:
        """Record the report of another member."""
        self._reports[source] = (message, now_ns)
        for who in message.joins:
            self.hear_join(who, now_ns)

    def force(self, now_ns: int) -> None:
        """Apply an operator's declaration that the reachable members are enough, also for a change in progress."""
        self.is_forced = True
        if self.proposer is not None:
            self._begin(now_ns)
            self._answer_self(now_ns)

    def begin_founding(self, now_ns: int) -> bool:
        """Begin to agree on view 1, if enough founders are reachable and no other one has begun."""
        if self.proposer is not None or self.acceptor.is_frozen:
            return False
        self._begin(now_ns)
        self._answer_self(now_ns)
        return True

    def _begin(self, now_ns: int) -> None:
        """Begin a new ballot of this member."""
        self._attempt = 1 + max(self._attempt, self.acceptor.promised[0])
        ballot = (self._attempt, self.ranks[self.place])
        self.proposer = Proposer(self.view, ballot, now_ns, self.quorum, self._group)
        self._push()

    def _push(self) -> None:
        if self.proposer is not None:
            for who, message in self.proposer.to_send():
                self._send(who, message)

    def _drive_proposer(self, proposer: Proposer, now_ns: int) -> None:
        is_patient = now_ns - proposer.began_ns <= self.settings.patience_ns
        if proposer.phase == FLUSH and not (is_patient and proposer.may_flush(self.doomed(now_ns))):
            self._begin(now_ns)
        elif proposer.phase != GATHER or not self._close(now_ns):
            self._push()

    def _close(self, now_ns: int) -> bool:
        """Continue with the promises, if there are enough."""
        proposer = self.proposer
        if proposer is None:
            return False
        is_patient = now_ns - proposer.began_ns <= self.settings.patience_ns
        mute = self._mute(now_ns)
        if is_patient and len(proposer.promises) + len(mute) < len(self.view.members):
            return False  # quickly seen, once per promise
        if not proposer.may_close(mute, is_patient):
            return False
        if not proposer.close(self.wanted_joins(now_ns), self.slow(now_ns), now_ns, self._ranked):
            return False
        self._push()
        return True

    # Messages of this view.

    def handle(self, source: MemberId, message: Message, now_ns: int) -> None:
        """Handle a message that a member of this view sent in this view."""
        self._handle(source, message, now_ns)
        self._answer_self(now_ns)

    def _answer_self(self, now_ns: int) -> None:
        while self._to_self:
            view = self.view
            message = self._to_self.pop(0)
            if message.view == view.id:
                self._handle(self.place, message, now_ns)

    def _handle(self, source: MemberId, message: Message, now_ns: int) -> None:
        if isinstance(message, ChangeReport):
            self.on_report(source, message, now_ns)
            if self.proposer is None and not self.acceptor.is_frozen:
                self._consider(now_ns)
        elif isinstance(message, Probe):
            self._send_round_trips(source)
            self._send(source, Present(self.view.id))
        elif isinstance(message, Present):
            self._on_present(source, now_ns)
        elif isinstance(message, RoundTrips):
            self._measured[source] = dict(zip(self.view.members, message.microseconds, strict=True))
        elif isinstance(message, Prepare):
            self._on_prepare(source, message, now_ns)
        elif isinstance(message, Promise):
            self._on_promise(source, message, now_ns)
        elif isinstance(message, Refusal):
            self._on_refusal(message, now_ns)
        elif isinstance(message, Flush):
            self._on_flush(source, message, now_ns)
        elif isinstance(message, Flushed):
            self._on_flushed(source, message, now_ns)
        elif isinstance(message, Accept):
            self._on_accept(source, message, now_ns)
        elif isinstance(message, Accepted):
            self._on_accepted(source, message, now_ns)
        elif isinstance(message, Join):
            self.hear_join(message.who, now_ns)

    def _on_present(self, source: MemberId, now_ns: int) -> None:
        """Note that a member answered the probe; begin after the last answer, if it is time."""
        self._present.add(source)
        is_last = len(self._present) + len(self._mute(now_ns)) >= len(self.view.members)
        if is_last and self.proposer is None and not self.acceptor.is_frozen:
            self._consider(now_ns)

    def _send_round_trips(self, to: MemberId) -> None:
        measured = self._host.round_trips()
        if any(measured):
            self._send(to, RoundTrips(self.view.id, measured))

    def _ranked(self, members: Sequence[MemberId]) -> Sequence[MemberId]:
        """The members of the next view by rank."""
        return self._host.ranked(members, self._measured) if self._measured else members

    # Answers of an acceptor.

    def _on_prepare(self, source: MemberId, message: Prepare, now_ns: int) -> None:
        """Promise, and deliver nothing more."""
        if not self.acceptor.is_frozen:
            self.frozen_ns = now_ns
        before = self.acceptor.promised
        if not self.acceptor.promises(message, now_ns):
            self._send(source, Refusal(self.view.id, self.acceptor.promised))
            return
        if message.ballot > before:
            self._host.freeze()
            self._host.record(r.Promised(message.ballot))
        self._send(
            source,
            Promise(
                self.view.id,
                message.ballot,
                self._host.delivered(),
                self.acceptor.accepted_ballot,
                self.acceptor.accepted,
                self.me,
                self._host.is_ready,
                self._host.wants_to_leave,
            ),
        )

    def _on_flush(self, source: MemberId, message: Flush, now_ns: int) -> None:
        """Pull the missing messages up to the cut."""
        is_new = self.acceptor.flush is None
        if not self.acceptor.flushes(message, now_ns):
            self._send(source, Refusal(self.view.id, self.acceptor.promised))
        elif not self.say_flushed() and is_new:
            self._host.pull(message)

    def say_flushed(self) -> bool:
        """Report to the coordinator once everything up to the cut is here; return whether it is."""
        flush = self.acceptor.flush
        if flush is None or self._host.lacks(flush.cut):
            return False
        self._send(self.view.members[flush.ballot[1]], Flushed(self.view.id, flush.ballot))
        return True

    def recovered(self, now_ns: int) -> None:
        """Continue the flush after pulled messages have arrived."""
        self.acceptor.moved_ns = now_ns
        self.say_flushed()
        self._answer_self(now_ns)

    def _on_accept(self, source: MemberId, message: Accept, now_ns: int) -> None:
        """Accept, unless a newer ballot is followed."""
        before = self.acceptor.accepted_ballot
        was_frozen = self.acceptor.is_frozen
        if self.acceptor.accepts(message, now_ns):
            if not was_frozen:
                self.frozen_ns = now_ns
                self._host.freeze()
            if message.ballot != before:
                self._host.record(r.Adopted(message.ballot, message.proposal))
            self._send(source, Accepted(self.view.id, message.ballot))
        else:
            self._send(source, Refusal(self.view.id, self.acceptor.promised))

    # Answers to a coordinator.

    def _own_ballot(self, ballot: tuple[int, int]) -> Proposer | None:
        return self.proposer if self.proposer is not None and self.proposer.ballot == ballot else None

    def _on_promise(self, source: MemberId, message: Promise, now_ns: int) -> None:
        """Count a promise."""
        proposer = self._own_ballot(message.ballot)
        if proposer is not None and proposer.phase == GATHER:
            proposer.promises[source] = message
            self._close(now_ns)

    def _on_flushed(self, source: MemberId, message: Flushed, now_ns: int) -> None:
        """Note that a member holds everything up to the cut."""
        proposer = self._own_ballot(message.ballot)
        if proposer is not None and proposer.phase == FLUSH:
            proposer.take_flushed(source, now_ns)
            if proposer.phase != FLUSH:
                self._push()

    def _on_accepted(self, source: MemberId, message: Accepted, now_ns: int) -> None:
        """Count an acceptance; with a quorum, send the decision to all members, including excluded ones."""
        proposer = self._own_ballot(message.ballot)
        if proposer is None:
            return
        proposer.accepted.add(source)
        if proposer.is_decided():
            assert proposer.proposal is not None
            self.send_decision(Decide(self.view.id, proposer.proposal))
            self._host.install(proposer.proposal, now_ns)

    def send_decision(self, decision: Decide) -> None:
        """Send a decision to the members of the old view and of the new one."""
        if decision.view.number == 0:
            names = {who.name for who in self.view.members} | {who.name for who in decision.proposal.view.members}
            everybody = sorted(MemberId(name, ANY_INCARNATION) for name in names)
        else:
            everybody = sorted({*self.view.members, *decision.proposal.view.members})
        for who in everybody:
            if who.name != self.me.name:
                self._host.send(who, decision)

    def _on_refusal(self, message: Refusal, now_ns: int) -> None:
        """A newer ballot exists: give up this one, and wait for the newer one."""
        if self.proposer is not None and message.ballot > self.proposer.ballot:
            self._attempt = max(self._attempt, message.ballot[0])
            self.proposer = None
            self.acceptor.moved_ns = now_ns

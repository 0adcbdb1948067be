"""One incarnation of a process: what an `Agreement` needs of its member, and how the member handles messages.

| state   | meaning                                                                                |
|---------|----------------------------------------------------------------------------------------|
| JOINING | asks to join                                                                           |
| IN_VIEW | in a view                                                                              |
| LINGER  | excluded by a decision: sends it to others that ask, which may have missed it          |
| OUT     | crashed, left, or continues as another incarnation                                     |

The same rules as in `member.lifecycle`, without journal, state transfer and handshake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cubecast.protocols.membership import records
from cubecast.protocols.membership.agreement import REPORT_TO, Agreement, Measured
from cubecast.protocols.membership.messages import (
    ChangeReport,
    Decide,
    Flush,
    Gone,
    Join,
    Message,
    Missing,
    Proposal,
    Pull,
)
from cubecast.protocols.membership.settings import MembershipSettings
from cubecast.protocols.membership.views import (
    NO_VIEW,
    MemberId,
    Vector,
    View,
    ViewId,
)
from cubecast.sim.views.stacks import ViewStack
from cubecast.trace import schema as tracing

JOINING, IN_VIEW, LINGER, OUT = range(4)
_LINGER_NS = 50_000_000
"""How long an excluded member answers before it starts again; a quorum knows the decision. A member that leaves may be
the only one that knows it."""
_IDLE_TICKS = 4
"""A member that only reports a suspicion ticks as rarely as an idle live member."""


class Surroundings(Protocol):
    """What a simulated member needs from its group."""

    now_ns: int

    def send(self, source: int, to: MemberId, message: Message) -> None:
        """Put a message on the network."""

    def suspects(self, one: SimulatedMember) -> list[MemberId]:
        """The members its failure detector suspects."""

    def contact(self) -> MemberId | None:
        """A member to ask for a join."""

    def wake(self, one: SimulatedMember, delay_ns: int) -> None:
        """Tick after this delay."""

    def freeze(self, one: SimulatedMember) -> None:
        """Stop the stack of its view."""

    def set_blocked(self, one: SimulatedMember, is_blocked: bool) -> None:
        """Too few members are reachable, or enough again."""

    def has_waiting(self, one: SimulatedMember) -> bool:
        """Has its application multicast messages that are not sent yet?"""

    def end_view(self, one: SimulatedMember, cut: Vector) -> None:
        """Deliver what it recovered up to the cut."""

    def enter(self, one: SimulatedMember, decision: Decide) -> None:
        """Begin the decided view."""

    def go_out(self, one: SimulatedMember, event: int) -> None:
        """Handle that the member is no longer in the group."""

    def end(self, one: SimulatedMember) -> None:
        """Stop it."""


class SimulatedMember:
    """One incarnation of a process; see the module."""

    renews = False
    is_ready = True
    stack: ViewStack
    rank: int

    def __init__(self, number: int, me: MemberId, settings: MembershipSettings, group: Surroundings) -> None:
        """Outside of any view."""
        self.number = number
        self.me = me
        self.state = JOINING
        self.leaving = False
        self.is_blocked = False
        self.agreement = Agreement(me, "simulated", settings, self)
        self.tick_ns = -1
        self.entered_ns = 0
        self._settings = settings
        self._group = group
        self._recovered: list[int] = []
        self._pulled: dict[tuple[tuple[int, int], int], int] = {}
        self._alert_until_ns = -1
        self._linger_until_ns = 0

    # What the agreement calls.

    @property
    def wants_to_leave(self) -> bool:
        """Does the application leave, and is nothing left to send?"""
        return self.leaving and not self._group.has_waiting(self)

    def send(self, to: MemberId, message: Message) -> None:
        """Send a message."""
        self._group.send(self.number, to, message)

    def record(self, record: records.Record) -> None:
        """Do nothing: there is no journal."""

    def suspects(self) -> list[MemberId]:
        """The members that the failure detector suspects now."""
        return self._group.suspects(self)

    def behind(self) -> list[MemberId]:
        """No member is too slow."""
        return []

    def delivered(self) -> Vector:
        """How many messages of each rank were delivered in this view; ranks that do not send have none."""
        here = self.stack.group.received[self.rank].tolist()
        return tuple(here + [0] * (len(self.stack.view.members) - len(here)))

    def round_trips(self) -> Vector:
        """Empty: links do not measure round trips."""
        return ()

    def ranked(self, members: Sequence[MemberId], _measured: Measured) -> Sequence[MemberId]:
        """Keep the order."""
        return members

    def freeze(self) -> None:
        """Deliver and send nothing more in this view."""
        self._group.freeze(self)

    def _held(self) -> list[int]:
        """How many messages of each sender were delivered or recovered."""
        here = self.stack.group.received[self.rank].tolist()
        return [max(pair) for pair in zip(here, self._recovered, strict=True)] if self._recovered else here

    def lacks(self, cut: Vector) -> bool:
        """Is anything up to the cut neither delivered nor recovered?"""
        return any(held < wanted for held, wanted in zip(self._held(), cut, strict=False))

    def pull(self, flush: Flush) -> None:
        """Request what is missing from the sources of a flush, again if nothing came for a while."""
        view, held = self.stack.view, self._held()
        here = tuple(held + [0] * (len(view.members) - len(held)))
        sources = {source for source, have, wanted in zip(flush.sources, here, flush.cut, strict=True) if have < wanted}
        again_ns = self._group.now_ns - self._settings.patience_ns
        for source in sorted(sources - {self.rank}):
            if self._pulled.get((flush.ballot, source), -(1 << 62)) <= again_ns:
                self._pulled[flush.ballot, source] = self._group.now_ns
                self.send(view.members[source], Pull(view.id, flush.ballot, here, flush.cut))

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Continue in the decided view, or outside of it."""
        decision = self.agreement.last_decision = Decide(self.agreement.view.id, proposal)
        if self.me in proposal.view.members:
            self._group.end_view(self, proposal.cut)
            self._group.enter(self, decision)
            return
        self._go_out()
        self._linger_until_ns = now_ns + (self._settings.takeover_ns if self.leaving else _LINGER_NS)
        self.agreement.send_decision(decision)
        self._group.wake(self, self._settings.tick_ns)

    def _go_out(self) -> None:
        self._group.go_out(self, tracing.LEAVE if self.wants_to_leave else tracing.EXCLUDED)
        self.state = LINGER

    def begin(self, stack: ViewStack, view: View) -> None:
        """Begin a view."""
        self.stack = stack
        self.rank = view.members.index(self.me)
        self.state = IN_VIEW
        self.is_blocked = False
        self._recovered = []
        self._pulled.clear()
        self.agreement.begin_view(view, self._group.now_ns)
        self.agreement.have_state = set(view.members)
        if self.leaving or self.suspects():
            self._group.wake(self, self._settings.tick_ns)

    # Messages.

    def receive(self, source: MemberId, message: Message) -> None:
        """Handle a message of another process."""
        if self.state == OUT:
            return
        if isinstance(message, Decide):
            self._on_decide(message)
        elif isinstance(message, Gone):
            self._on_gone(message)
        elif self.state == LINGER:
            self._answer_with_decision(source)
        elif self.state == IN_VIEW:
            if isinstance(message, Join):
                self._on_join(message.who)
            elif source not in self.agreement.ranks or message.view != self.agreement.view.id:
                self._catch_up(source, message.view)
            else:
                self._in_view(source, message)
            self._stay_awake()

    def _answer_with_decision(self, source: MemberId) -> None:
        if self.agreement.last_decision is not None:
            self.send(source, self.agreement.last_decision)

    def _in_view(self, source: MemberId, message: Message) -> None:
        if isinstance(message, Pull):
            self._on_pull(source, message)
        elif isinstance(message, Missing):
            self._on_missing(message)
        else:
            if isinstance(message, ChangeReport):
                self._alert_until_ns = self._group.now_ns + 2 * self._settings.suspect_ns
            self.agreement.handle(source, message, self._group.now_ns)

    def _on_join(self, who: MemberId) -> None:
        view = self.agreement.view
        if who in self.agreement.ranks:
            self._answer_with_decision(who)
        elif view.is_past(who):
            self.send(who, Gone(view.id))
        else:
            self._alert_until_ns = self._group.now_ns + 2 * self._settings.suspect_ns
            self.agreement.hear_join(who, self._group.now_ns)
            self.agreement.tick(self._group.now_ns)

    def _catch_up(self, source: MemberId, said: ViewId) -> None:
        """Send the decision, or the exclusion, to a member of an older view; ask a member of a newer view.

        A member of a newer view may be unknown here: it joined with the view whose decision was lost.
        """
        agreement = self.agreement
        decision = agreement.last_decision
        if said.number > agreement.view.number:
            self.send(source, ChangeReport(agreement.view.id, 0, 0, (), leaves=False, renews=False))
        elif source in agreement.ranks:
            if decision is not None and decision.view == said:
                self.send(source, decision)
        elif agreement.view.is_past(source):
            self.send(source, Gone(agreement.view.id))

    def _on_decide(self, message: Decide) -> None:
        view = message.proposal.view
        if self.state == IN_VIEW and message.view == self.agreement.view.id:
            self.install(message.proposal, self._group.now_ns)
        elif self.state == JOINING and self.me in view.members:
            self.agreement.last_decision = message
            self._group.enter(self, message)

    def _on_gone(self, message: Gone) -> None:
        """Handle that the group continues without this incarnation."""
        if self.state == JOINING:
            self._group.end(self)
        elif self.state == IN_VIEW and message.view.number > self.agreement.view.number:
            self._go_out()
            self._group.end(self)

    # Recovery.

    def _on_pull(self, source: MemberId, message: Pull) -> None:
        """Send what another member lacks, as ranges of messages."""
        here = self.stack.group.received[self.rank].tolist()
        ranges: list[int] = []
        for rank, (have, has, wanted) in enumerate(zip(here, message.delivered, message.cut, strict=False)):
            if min(have, wanted) > has:
                ranges += [rank, has + 1, min(have, wanted)]
        if ranges:
            self.send(source, Missing(message.view, np.array(ranges, np.int32).tobytes()))

    def _on_missing(self, message: Missing) -> None:
        if not self.agreement.is_frozen:
            return
        held = self._held()
        numbers = np.frombuffer(message.records, np.int32).tolist()
        for rank, first, last in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            if first <= held[rank] + 1:
                held[rank] = max(held[rank], last)
        self._recovered = held
        self.agreement.recovered(self._group.now_ns)

    def recovered_up_to(self, cut: Vector) -> list[tuple[int, int]]:
        """The messages that were recovered but not delivered, as (rank, number); together they reach the cut."""
        here = self.stack.group.received[self.rank].tolist()
        if self.lacks(cut) or any(have > end for have, end in zip(here, cut, strict=False)):
            raise AssertionError(f"the view ends at {cut}, but {self.me} holds {self._held()} and delivered {here}")
        return [
            (rank, number)
            for rank, (have, end) in enumerate(zip(here, cut, strict=False))
            for number in range(have + 1, end + 1)
        ]

    # Ticks.

    def leave(self) -> None:
        """Leave the group."""
        self.leaving = True
        self._group.wake(self, 0)

    def tick(self) -> None:
        """Ask to join, drive the agreement, or end."""
        if self.state == JOINING:
            contact = self._group.contact()
            if contact is not None:
                self.send(contact, Join(NO_VIEW, self.me))
            self._group.wake(self, self._settings.tick_ns)
        elif self.state == IN_VIEW:
            self._check_quorum()
            self.agreement.tick(self._group.now_ns)
            self._stay_awake()
        elif self.state == LINGER:
            if self._group.now_ns >= self._linger_until_ns:
                self._group.end(self)
            else:
                self._group.wake(self, self._settings.tick_ns)

    def _check_quorum(self) -> None:
        """Check whether enough members are reachable."""
        if not self.is_blocked and not self.suspects():
            return
        is_blocked = not self.agreement.has_quorum()
        if is_blocked != self.is_blocked:
            self.is_blocked = is_blocked
            self._group.set_blocked(self, is_blocked)

    def _stay_awake(self) -> None:
        """Schedule the next tick, as often as there is something to do."""
        if self.state != IN_VIEW:
            return
        agreement, settings = self.agreement, self._settings
        if agreement.proposer is not None:
            self._group.wake(self, settings.tick_ns)
        elif agreement.is_frozen:
            is_flushing = agreement.acceptor.flush is not None
            self._group.wake(self, settings.tick_ns if is_flushing else settings.takeover_ns // 4)
        elif agreement.is_active or self.leaving or self.is_blocked or self._group.now_ns < self._alert_until_ns:
            is_near = self.rank <= REPORT_TO + len(self.suspects()) or self.leaving
            delay_ns = settings.tick_ns if is_near else _IDLE_TICKS * settings.tick_ns
            self._group.wake(self, delay_ns)
        elif self.suspects():
            self._group.wake(self, _IDLE_TICKS * settings.tick_ns)

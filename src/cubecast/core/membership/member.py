"""One member of a group that changes: the whole core, without I/O.

The driver calls `found` or `join` once, `receive` for every message, `on_timer` every `tick_ns`, and `multicast` and
`leave` for the application; each call gives the actions to carry out, in their order. `WantSnapshot` must be answered
by `give_snapshot`, sooner or later, with the state that comes of the actions before it. While the application does not
take what it is given, the driver sets `takes` to False. Nothing is assumed of the network: messages may be lost, come
late, twice or out of order. A crashed process comes back with a higher incarnation, or it resumes: then the driver has
written what `Persist` holds before it carried out anything else of that call, and calls `resume` with what `fold` reads
back.

| phase   | meaning                                                                                  |
|---------|------------------------------------------------------------------------------------------|
| JOINING | asks to be taken in                                                                      |
| MEMBER  | in a view; `_gate` holds what the application gets once the state of the group is here   |
| LINGER  | no longer in the view, tells the others of the decision for a while: they may need it    |
| OUT     | left or excluded                                                                         |
"""

from __future__ import annotations

from collections.abc import Sequence

from cubecast.core.membership import records as r
from cubecast.core.membership.durable import Durable
from cubecast.core.membership.messages import (
    ANY_LIFE,
    Accept,
    Accepted,
    Action,
    AskState,
    Data,
    Decide,
    Excluded,
    Flush,
    Flushed,
    Gone,
    Install,
    Join,
    Left,
    Message,
    NoState,
    Prepare,
    Promise,
    Proposal,
    Pull,
    Refusal,
    State,
    Status,
    Unblocked,
    WantSnapshot,
)
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.talk import Talk
from cubecast.core.membership.transfer import Fetch
from cubecast.core.membership.views import MemberId, Name, View
from cubecast.errors import LocalProtocolError

JOINING, MEMBER, LINGER, OUT = range(4)
OFTEN = (Status, Data)


class Member(Talk):
    """The core of one member."""

    def __init__(self, me: MemberId, settings: MembershipSettings) -> None:
        """Nothing happens before `found` or `join`."""
        super().__init__(me, settings)
        self.phase = OUT
        self._contacts: list[Name] = []
        self._asked = 0
        self._linger_until_ns = 0

    # Calls of the driver.

    def found(self, view: View, now_ns: int) -> list[Action]:
        """Be one of the founders of the group."""
        if self.me not in view.members:
            raise LocalProtocolError(f"{self.me} founds a group of {list(view.members)}: it must be one of them")
        self.phase = MEMBER
        self.have_state = set(view.members)
        self.record(r.Life(self.me))
        self.record(r.Entered(view, None, is_newcomer=False))
        self.begin_view(view, now_ns)
        self._tell(Install(view))
        return self._actions(now_ns)

    def join(self, contacts: Sequence[Name], now_ns: int) -> list[Action]:
        """Ask to be taken in, at members of these names in turn."""
        if not contacts:
            raise LocalProtocolError("no contacts: give the name of at least one member")
        self.phase = JOINING
        self.record(r.Life(self.me))
        self.record(r.Asked(tuple(contacts)))
        self._contacts = list(contacts)
        self._ask_in()
        return self._actions(now_ns)

    def resume(self, durable: Durable, now_ns: int) -> list[Action]:
        """Go on after a crash, in the same life, with the state that was read back from the records."""
        if durable.me != self.me:
            raise LocalProtocolError(f"{self.me} resumes with the records of {durable.me}: they are another member's")
        self.leaving = durable.is_leaving
        self.pending.extend(durable.waiting)
        self._written = len(self.pending)
        self.acquaintances = set(durable.acquaintances)
        self.last_decision = durable.decision
        self._contacts = list(durable.contacts)
        over = durable.over
        if over is not None and over.end is not None:
            self._out.append(over.end)
        elif durable.view is None:
            self.phase = JOINING
            self._ask_in()
        else:
            self.phase = MEMBER if over is None else LINGER
            self._linger_until_ns = now_ns + self.settings.takeover_ns
            self._take_up(durable, now_ns)
        return self._actions(now_ns)

    def receive(self, source: MemberId, message: Message, now_ns: int) -> list[Action]:
        """A message has come."""
        self._handle(source, message, now_ns)
        return self._actions(now_ns)

    def on_timer(self, now_ns: int) -> list[Action]:
        """A tick."""
        if self.phase == JOINING:
            self._ask_in()
        elif self.phase == MEMBER:
            self._look_around(now_ns)
            self._say_status(now_ns)
            self.go_on_flushing()
            self.drive_change(now_ns)
            self._ask_state(now_ns)
            if self.wants_to_leave and self.view.members == (self.me,):
                self._end()
        elif self.phase == LINGER:
            self._linger(now_ns)
        return self._actions(now_ns)

    def multicast(self, payload: object, now_ns: int) -> list[Action]:
        """Send to the group, now or as soon as the view allows; in the order of the calls."""
        if self.leaving or self.phase in (LINGER, OUT):
            raise LocalProtocolError("multicast after leave: this member sends nothing more")
        self.pending.append(payload)
        return self._actions(now_ns)

    def leave(self, now_ns: int) -> list[Action]:
        """Go, when what was multicast is sent and the others have agreed."""
        self.leaving = True
        self.record(r.Leaving())
        if self.phase == JOINING:
            self._end()
        return self._actions(now_ns)

    def checkpoint(self, octets: bytes, now_ns: int) -> list[Action]:
        """The state of the application, after all that it was told so far: a restart begins with it."""
        if self.phase != MEMBER or not self.is_ready:
            raise LocalProtocolError("a checkpoint of a member that is not in a group, or has no state yet: wait")
        self._checkpoint(octets)
        return self._actions(now_ns)

    # Messages.

    def _actions(self, now_ns: int) -> list[Action]:
        """Finish a call: what this member said to itself, deliveries, waiting messages of the application."""
        while self._to_self:
            self._handle(self.me, self._to_self.pop(0), now_ns)
        if self.phase == MEMBER:
            self._deliver_and_send()
            while self._to_self:
                self._handle(self.me, self._to_self.pop(0), now_ns)
        done, self._out = self._out, []
        return [*self._write_down(), *done] if self.settings.is_durable else done

    def _handle(self, source: MemberId, message: Message, now_ns: int) -> None:
        if self.phase == MEMBER and isinstance(message, OFTEN):
            self._handle_in_view(source, message, now_ns)
        elif self.phase == OUT:
            return
        elif isinstance(message, Join):
            self._on_join(message.who, now_ns)
        elif isinstance(message, Decide):
            self._on_decide(message, now_ns)
        elif isinstance(message, Gone):
            self._on_gone(message)
        elif isinstance(message, AskState):
            self.send(source, self._snapshots.answer(message))
        elif isinstance(message, State | NoState):
            self._on_state(source, message, now_ns)
        elif self.phase == MEMBER:
            self._handle_in_view(source, message, now_ns)
        elif self.phase == LINGER and isinstance(message, Status) and self.last_decision is not None:
            self.send(source, self.last_decision)

    def _handle_in_view(self, source: MemberId, message: Message, now_ns: int) -> None:
        if message.view != self.view.number or source not in self.ranks:  # type: ignore[union-attr]
            if isinstance(message, Status):
                self._catch_up(source, message, now_ns)
            return
        self.watch.hear(source, now_ns)
        if isinstance(message, Data):
            if self.channel.take(message):
                self.record(message)
            self.say_flushed()
        elif isinstance(message, Status):
            self._on_status(source, message, now_ns)
        elif isinstance(message, Prepare):
            self.on_prepare(source, message, now_ns)
        elif isinstance(message, Promise):
            self.on_promise(source, message, now_ns)
        elif isinstance(message, Refusal):
            self.on_refusal(message, now_ns)
        elif isinstance(message, Flush):
            self.on_flush(source, message, now_ns)
        elif isinstance(message, Pull):
            self.on_pull(source, message)
        elif isinstance(message, Flushed):
            self.on_flushed(source, message, now_ns)
        elif isinstance(message, Accept):
            self.on_accept(source, message, now_ns)
        elif isinstance(message, Accepted):
            self.on_accepted(source, message, now_ns)

    def _catch_up(self, source: MemberId, message: Status, now_ns: int) -> None:
        """Tell a member of an older view what was decided, or that it is out; ask one of a newer view."""
        if message.view > self.view.number:
            self.send(source, self._status(now_ns)._replace(asks=False))
        elif source in self.ranks:
            if message.view == self.view.number - 1 and self.last_decision is not None:
                self.send(source, self.last_decision)
        elif self.view.is_past(source):
            self.send(source, Gone(self.view.number))

    def begin_view(self, view: View, now_ns: int) -> None:
        """Everything that belongs to one view, from the start."""
        super().begin_view(view, now_ns)
        self.acquaintances |= {who.name for who in view.members if who != self.me}

    # Joining.

    def _ask_in(self) -> None:
        name = self._contacts[self._asked % len(self._contacts)]
        self._asked += 1
        self.send(MemberId(name, ANY_LIFE), Join(self.me))

    def _on_join(self, who: MemberId, now_ns: int) -> None:
        if self.phase != MEMBER:
            return
        if who in self.ranks:
            if self.last_decision is not None:
                self.send(who, self.last_decision)
        elif self.view.is_past(who):
            self.send(who, Gone(self.view.number))
        else:
            self.joins.see(who, now_ns)
            if who.name not in self.acquaintances:
                self.acquaintances.add(who.name)
                self.record(r.Knows(who.name))

    # Going over to another view.

    def _on_decide(self, message: Decide, now_ns: int) -> None:
        view = message.proposal.view
        if self.phase == JOINING and self.me in view.members:
            self.phase = MEMBER
            self._gate = []
            self._fetch = Fetch(view, now_ns, self.settings)
            self.last_decision = message
            self.record(r.Entered(view, message, is_newcomer=True))
            self.begin_view(view, now_ns)
            self._tell(Install(view))
        elif self.phase == MEMBER and message.view == self.view.number:
            self.install(message.proposal, now_ns)

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Deliver up to the cut, then go over to the decided view, or out."""
        self.last_decision = Decide(self.view.number, proposal)
        if self.me not in proposal.view.members:
            self._leave_view(proposal, now_ns)
            return
        self._deliver(proposal.cut)
        self._assert_complete(proposal)
        self.record(r.Entered(proposal.view, self.last_decision, is_newcomer=False))
        if proposal.view.joined:
            self._snapshots.expect(proposal.view)
            self._tell(WantSnapshot(proposal.view.number))
        self._tell(Install(proposal.view, now_ns - self.frozen_ns if self.acceptor.is_frozen else 0))
        self.begin_view(proposal.view, now_ns)
        self._snapshots.retain(self.view.members)
        if self.is_blocked:
            self.is_blocked = False
            self._out.append(Unblocked(self.view.number))

    def _assert_complete(self, proposal: Proposal) -> None:
        assert self.frontier == proposal.cut, "a view is decided when all who stay hold everything up to the cut"

    def _leave_view(self, proposal: Proposal, now_ns: int) -> None:
        """Decided without this member."""
        if not self.wants_to_leave:
            own = self.channel.own_beyond(proposal.cut[self.channel.rank])
            self.go_out("the others went on without this member", own, certain=True)
        else:
            self.record(r.Over(self.last_decision, None))
        self.phase = LINGER
        self._fetch = None
        self._linger_until_ns = now_ns + self.settings.takeover_ns

    def _linger(self, now_ns: int) -> None:
        """Those who stay may not have heard of the decision, and may be too few to find out without those who left."""
        if self.last_decision is not None:
            self.tell_decision(self.last_decision)
        if now_ns >= self._linger_until_ns:
            self._end()

    def _end(self) -> None:
        self.phase = OUT
        if self.leaving:
            self.record(r.Over(self.last_decision, Left()))
            self._out.append(Left())

    def _on_gone(self, message: Gone) -> None:
        if self.phase == JOINING:
            self.go_out("this life of the member is over: come back with a higher incarnation", certain=True)
        elif self.phase == MEMBER and message.view > self.view.number:
            own = self.channel.own_beyond(self.channel.stable[self.channel.rank])
            self.go_out(f"the group is at view {message.view} without this member", own, certain=False)

    def go_out(self, reason: str, own: tuple[object, ...] = (), *, certain: bool) -> None:
        """Out of the group: give back what may not have reached the others."""
        self.phase = OUT
        self._fetch = None
        end = Excluded(reason, (*own, *self.pending), certain)
        self.record(r.Over(self.last_decision, end))
        self._out.append(end)
        self.pending.clear()
        self._written = 0

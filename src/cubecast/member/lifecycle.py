"""The lifecycle of a member: founding, joining, view changes.

| state   | meaning                                                                    |
|---------|----------------------------------------------------------------------------|
| FORMING | one of several founders; they agree on view 1                              |
| JOINING | asks to join                                                               |
| IN_VIEW | in a view; the gate is closed until the application's state is here        |
| LINGER  | no longer in the view; sends the decision to the others until they have it |
| OUT     | left, or failed                                                            |

How a view ends for a member: `member.exits`. A process that restarts: `member.restart`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cubecast.errors import RemoteProtocolError
from cubecast.member.alone import Alone
from cubecast.member.branches import Branches
from cubecast.member.effects import Notice, SnapshotWanted, ViewChange
from cubecast.member.in_view import FORMING, IN_VIEW, JOINING, LINGER
from cubecast.member.link import Link
from cubecast.member.message_log import MessageLog
from cubecast.member.stack import Stack
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.accept import Acceptor
from cubecast.protocols.membership.messages import (
    ANY_INCARNATION,
    AskLevel,
    AskState,
    ChangeReport,
    Decide,
    Gone,
    Join,
    LevelReached,
    Message,
    Missing,
    NoState,
    Proposal,
    Pull,
    Ready,
    State,
)
from cubecast.protocols.membership.views import NO_VIEW, MemberId, View, ViewId
from cubecast.wire.handshake import Hello
from cubecast.wire.membership import Elsewhere, decode_message, require_fit


class Lifecycle(Branches):
    """From the first contact to the last view of one member."""

    founders: list[str]

    def _begin_incarnation(self, contacts: Sequence[str], founders: Sequence[str]) -> None:
        """A new member asks to join, or founds with others."""
        self.contacts = [name for name in dict.fromkeys(contacts) if name != self.me.name]
        self.founders = list(founders)
        self.names = {*self.contacts, *self.founders} - {self.me.name}
        self._members = self._new_agreement()
        self.stack = None
        self.log = MessageLog(0)
        self.timers.begin_epoch()
        self._gate, self._fetch = None, None
        self._early.clear()
        self._early_bytes = 0
        self._next_contact = 0
        self._quorum_ns = -1
        self._linger_until_ns = 0
        self._branch_probe_ns = self._branch_probes = 0
        self._last_incarnation = 0
        self.is_blocked = self.renews = False
        if self._is_durable:
            pending = tuple(outgoing.payload for outgoing in self.own.waiting)
            self._recorded_pending = len(pending)
            self.effects.persist.clear()
            self.effects.checkpoint.clear()
            self.effects.replaces = True
            founding = tuple(self.founders)
            self.record(r.Incarnation(self.me, tuple(self.contacts), founding, pending, self._unreported))
        self._note("incarnation")

    def _start_forming(self) -> None:
        self.state = FORMING
        names = sorted(self.founders)
        members = tuple(MemberId(name, 0) for name in names)
        self._members.begin_view(View(0, 0, 0, members, (), (), ()), self._now_ns)
        self.links.need(set(names), self._now_ns)
        self._heard_ns = {}

    def _start_joining(self) -> None:
        self.state = JOINING
        self.links.need(set(self.contacts), self._now_ns)
        self._ask_to_join()

    # Ticks.

    def _tick(self) -> None:
        """Drive everything about membership."""
        now_ns = self._now_ns
        if self.state == FORMING:
            self._form()
        elif self.state == JOINING:
            self._ask_to_join()
        elif self.state == IN_VIEW:
            self._check_quorum()
            if self.stack is None:
                for who in self._members.view.members:
                    if who != self.me:
                        self.send(who, Ready(self._members.view.id))
            self._members.tick(now_ns)
            if self.state == IN_VIEW:
                self._ask_state()
            if self.state == IN_VIEW:
                self._report_troubles()
                self._watch_cancelled()
                self._ask_unanswered()
                self._probe_branches()
                if self.wants_to_leave and self._members.view.members == (self.me,):
                    self._end()
        elif self.state == LINGER:
            self._linger()

    @property
    def _tick_ns(self) -> int:
        """How long until the next tick."""
        settings = self._members.settings
        if self.state == IN_VIEW and not (
            self._members.is_active or self._fetch is not None or self.stack is None or self.leaving or self.is_blocked
        ):
            return 4 * settings.tick_ns
        if self.state == IN_VIEW and self._members.is_active and not self._members.is_frozen:
            return max(settings.tick_ns // 4, min(settings.tick_ns, settings.batch_ns))
        return settings.tick_ns

    def _report_troubles(self) -> None:
        """Report suspected and slow members, and an application that does not keep up."""
        found = [Notice("suspected", who) for who in self.suspects()]
        if self.settings.slow == "name":
            found += [Notice("slow", who) for who, _ in self.stragglers()]
        self.effects.notices += self._troubles.due(self._now_ns, found)
        backlog = [Notice("backlog", None)] if self.stack is not None and self._is_behind() else []
        self.effects.notices += self._backlog_trouble.due(self._now_ns, backlog)

    def _check_quorum(self) -> None:
        """Check whether enough members are reachable."""
        is_blocked = not self._members.has_quorum()
        if is_blocked != self.is_blocked:
            self._set_blocked(is_blocked)

    def _set_blocked(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked
        self._note("blocked" if is_blocked else "unblocked")
        self.effects.notices.append(Notice("blocked", is_blocked))
        if not is_blocked and self.stack is not None:
            self.stack.unpark()

    # Founding and joining.

    def _form(self) -> None:
        """Announce this founder; begin when enough of them are up."""
        now_ns = self._now_ns
        for name in self.founders:
            if name != self.me.name:
                self.send(MemberId(name, ANY_INCARNATION), Join(NO_VIEW, self.me))
        near = {name for name in self.founders if name == self.me.name or self._is_near(name)}
        founders = sorted(self.founders)
        # More than half, also of two: a member that founds alone would not notice wrong addresses.
        if 2 * len(near) <= len(founders):
            self._quorum_ns = -1
        else:
            if self._quorum_ns < 0:
                self._quorum_ns = now_ns
            waited_ns = now_ns - self._quorum_ns
            is_due = len(near) == len(founders) or waited_ns >= self._members.settings.patience_ns
            if is_due and min(near) == self.me.name and self._members.begin_founding(now_ns):
                return
        self._members.tick(now_ns)

    def _is_near(self, name: str) -> bool:
        return self._now_ns - self._heard_ns.get(name, -(1 << 62)) <= self._members.settings.suspect_ns

    def _ask_to_join(self) -> None:
        if not self.contacts:
            return
        for _ in self.contacts:
            name = self.contacts[self._next_contact % len(self.contacts)]
            self._next_contact += 1
            if not self._is_avoided(name) and self.links.send_message(name, Join(NO_VIEW, self.me), self._now_ns):
                return

    def _on_join(self, who: MemberId) -> None:
        members = self._members
        if self.state == FORMING:
            if who.name in self.founders:
                self._heard_ns[who.name] = self._now_ns
            return
        if self.state != IN_VIEW:
            return
        if who in members.ranks:
            if members.last_decision is not None:
                self.send(who, members.last_decision)
        elif members.view.is_past(who):
            self.send(who, Gone(members.view.id))
        else:
            members.hear_join(who, self._now_ns)
            if who.name not in self.names:
                self.names.add(who.name)
                self.record(r.Knows(who.name))
            self._members.tick(self._now_ns)

    # Messages.

    def _membership_arrived(self, link: Link, body: bytes, now_ns: int) -> None:
        self._is_stirred = True
        self.links.mark(link)
        message = decode_message(body, self.view)
        if isinstance(message, Join) and message.who != link.peer:
            raise RemoteProtocolError(f"it asks for {message.who.name} to join, which is another process")
        self._heard_ns[link.peer.name] = now_ns
        source = link.peer
        if isinstance(message, Join):
            self._on_join(message.who)
        elif isinstance(message, Decide):
            link.confirm()
            self._on_decide(message)
        elif isinstance(message, Elsewhere) and message.kind is Decide:
            link.confirm()
        elif isinstance(message, Gone):
            self._on_gone(source, message)
        elif isinstance(message, AskState):
            for answer in self.snapshots.answer(message, source):
                self.send(source, answer)
        elif isinstance(message, State | NoState):
            self._on_state(source, message)
        elif self.state == LINGER:
            if self._members.last_decision is not None:
                self.send(source, self._members.last_decision)
        elif self.state in (IN_VIEW, FORMING):
            self._in_view(link, message)

    def _in_view(self, link: Link, message: Message | Elsewhere) -> None:
        members = self._members
        place = members.knows_source(link.peer)
        if place is not None and isinstance(message, Ready):
            self._is_served(place)  # true in all views after the one in which it was sent
        if place is None or isinstance(message, Elsewhere) or message.view != members.view.id:
            self._catch_up(link, message.view)
            return
        if members.view.number:
            require_fit(message, len(members.view.members))
        if isinstance(message, Pull):
            self._on_pull(place, message)
        elif isinstance(message, Missing):
            self._on_missing(message)
        elif isinstance(message, AskLevel | LevelReached):
            self._on_level(members.ranks[place], message)
        elif not isinstance(message, Ready):
            members.handle(place, message, self._now_ns)

    def _catch_up(self, link: Link, said: ViewId) -> None:
        """Send the decision, or the exclusion, to a member of an older view; ask a member of a newer view."""
        members = self._members
        if self.state != IN_VIEW:
            return
        is_member = link.peer in members.ranks
        if is_member and members.last_decision is not None and members.last_decision.view == said:
            self.send(link.peer, members.last_decision)
            if self.is_ready:
                self.send(link.peer, Ready(members.view.id))
        elif said.number > members.view.number:
            self.send(link.peer, ChangeReport(members.view.id, 0, 0, (), leaves=False, renews=False))
        elif self._is_of_other_branch(link.peer, said):
            self._settle_branches(link, said)
        elif not is_member:
            self._answer_past(link)

    def _answer_past(self, link: Link) -> None:
        """Inform a process that is no longer in the group."""
        if self.state == IN_VIEW and self._members.view.is_past(link.peer):
            self.send(link.peer, Gone(self._members.view.id))
            link.confirm()

    def link_up(self, link: Link, said: Hello, now_ns: int) -> None:
        """A link has a connection: send immediately what the other side may be waiting for."""
        self._is_stirred = True
        self._heard_ns[link.peer.name] = now_ns
        if self.state in (JOINING, FORMING):
            if not self._is_avoided(link.peer.name):
                self.send(link.peer, Join(NO_VIEW, self.me))
        elif self.state == LINGER and self._members.last_decision is not None:
            self.send(link.peer, self._members.last_decision)
        elif self.state == IN_VIEW:
            view = self._members.view
            if (said.view_number, said.view_tag) != view.id and said.view_number:
                self._catch_up(link, ViewId(said.view_number, said.view_tag))
            if self.is_ready and link.peer in self._members.ranks:
                self.send(link.peer, Ready(view.id))
            if self._fetch is not None:
                self._fetch.link_up(link.peer, said.session, now_ns)
                self._ask_state()

    def link_broken(self, peer: MemberId, now_ns: int) -> None:
        """Frames to this member were lost for good: only a new view can repair that."""
        if self.state == IN_VIEW and peer in self._members.ranks:
            self.renews = True
            self._members.tick(now_ns)

    # The decided view.

    def _on_decide(self, message: Decide) -> None:
        view = message.proposal.view
        if self.state == IN_VIEW and message.view == self._members.view.id:
            require_fit(message, len(self._members.view.members))
            self.install(message.proposal, self._now_ns)
        elif self.state == FORMING and message.view.number == 0:
            if self.me in view.members:
                self.install(message.proposal, self._now_ns)
            else:
                known = dict.fromkeys([*self.founders, *self.contacts])
                self.contacts = [name for name in known if name != self.me.name]
                self._start_joining()
        elif self.state in (FORMING, JOINING) and self.me in view.members:
            self._enter_as_newcomer(message)

    def _enter_as_newcomer(self, message: Decide) -> None:
        view = message.proposal.view
        self.state = IN_VIEW
        self._members.last_decision = message
        if self.me in view.joined:
            self._gate, self._gate_bytes = [], 0
            self._fetch = self._new_fetch(view)
        self.record(r.Entered(view, message, self.me in view.joined))
        self._report_view(view, 0)
        self._begin_view(view)
        self._ask_state()

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Deliver up to the cut, then continue in the decided view, or outside of it."""
        members = self._members
        decision = members.last_decision = Decide(members.view.id, proposal)
        view = proposal.view
        if self.me not in view.members:
            if members.view.number == 0:
                self._on_decide(decision)
            else:
                self._leave_view(proposal)
            return
        if members.view.number == 0:
            members.have_state = set(view.members)
        else:
            self._deliver_recovered(proposal.cut)
            self.own.is_stable(view.sent[view.members.index(self.me)], self.effects)
        self.state = IN_VIEW
        self.record(r.Entered(view, decision, is_newcomer=False))
        if view.joined or self.snapshots.failed_for:
            self.snapshots.expect(view)
            self._add_entry(SnapshotWanted(view.number))
        self._report_view(view, now_ns - members.frozen_ns if members.is_frozen and members.view.number else 0)
        self._begin_view(view)
        self.snapshots.retain(view.members)
        if self.is_ready and view.members[0] != self.me:
            self.send(
                view.members[0], Ready(view.id)
            )  # a coordinator that restarted does not know, and could not leave

    def _report_view(self, view: View, pause_ns: int) -> None:
        self._note("install", view=view, pause_ns=pause_ns)
        self._add_entry(ViewChange(view=view, pause_s=pause_ns / 1e9))
        self.effects.notices.append(Notice("view", view))

    def _begin_view(self, view: View) -> None:
        """A new stack for a new view."""
        if self.view is not None:
            self._past_tags.append(self.view.tag)
        round_s = self.stack.round_s if self.stack is not None else 0.01
        self.timers.begin_epoch()
        self.view = view
        self._begin_levels(view)
        self.names |= {who.name for who in view.members if who != self.me}
        self._members.begin_view(view, self._now_ns)
        self._pulled.clear()
        self._branch_probe_ns = self._now_ns + self._members.settings.suspect_ns
        self.renews = False
        for link in self.links.links.values():
            link.begin_view(view.tag)
        self.stack = (
            Alone(self, view, self.settings)
            if len(view.members) == 1
            else Stack(self, view, view.members.index(self.me), self.settings, round_s)
        )
        self.log = self.stack.log
        self._stragglers.begin_view()
        neighbours = [view.members[other] for other in self.stack.neighbours()]
        self.links.need({who.name for who in neighbours}, self._now_ns)
        for who in neighbours:
            self.links.open(who, self._now_ns).begin_view(view.tag)
        self.stack.start()
        if self.is_blocked:
            self._set_blocked(False)
        if self._is_passing_gate:
            self.later(0, self._pass_gate)
        self._take_early(view)

    def _keep_promise(self, acceptor: Acceptor) -> None:
        """A founder is bound by its promises from before a restart."""
        self._members.acceptor = acceptor
        acceptor.moved_ns = self._now_ns
        if acceptor.accepted is not None:
            self.record(r.Adopted(acceptor.accepted_ballot, acceptor.accepted))
        if acceptor.promised > acceptor.accepted_ballot:
            self.record(r.Promised(acceptor.promised))

"""A process that restarts continues from its journal.

| the journal ends        | the process                                                                     |
|-------------------------|---------------------------------------------------------------------------------|
| in a view               | is the same incarnation in that view, and asks for the next one at once         |
| outside of the group    | is the next incarnation, and asks to join                                       |
| before the first view   | founds with the others, or asks to join, bound by what it promised              |

In its old view it only takes part in the agreement on the next one: its links have lost what they carried. The
application gets its last checkpoint, and then again, in the same order, all later entries. Own messages that were not
stable are sent again or returned, as `Settings.resend` says. A notice that the application did not get before the
crash is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from cubecast.member.durable import Durable, read_back
from cubecast.member.effects import Excluded, Notice, Outgoing
from cubecast.member.in_view import IN_VIEW
from cubecast.member.lifecycle import Lifecycle
from cubecast.member.message_log import SEQUENCE_MASK
from cubecast.protocols.membership.views import MemberId, View
from cubecast.wire.data import payload_of

EXCLUDED_BEFORE = "it was excluded before its restart"


class Restart(Lifecycle):
    """How a member continues from its journal."""

    def _resume(self, batches: list[bytes], contacts: Sequence[str], founders: Sequence[str]) -> None:
        durable = read_back(batches, self.settings)
        self.me = durable.me
        self._note("restart")
        view = durable.view
        if durable.over is not None or view is None:
            self._resume_outside(durable, contacts, founders)
            return
        self.contacts = [*contacts, *durable.contacts]
        self.founders = [*durable.founders]
        self.names = {*durable.names, *contacts, *founders} - {self.me.name}
        self._next_contact, self._quorum_ns, self._linger_until_ns, self._last_incarnation = 0, -1, 0, 0
        self._branch_probe_ns = self._branch_probes = 0
        self._members = self._new_agreement()
        self.state = IN_VIEW
        self.view = view
        self.log = durable.log
        self.renews = True
        self._members.begin_view(view, self._now_ns)
        self._members.acceptor = durable.acceptor
        self._members.acceptor.moved_ns = self._members.frozen_ns = self._now_ns
        self._members.last_decision = durable.decision
        self._heard_ns = {who.name: self._now_ns for who in view.members}
        self._take_back_earlier(durable)
        self._take_up_own(durable, view)
        self._take_up_application(durable)
        self.links.need({who.name for who in view.members}, self._now_ns)
        self._note("restarted")

    def _resume_outside(self, durable: Durable, contacts: Sequence[str], founders: Sequence[str]) -> None:
        """The journal ends outside of the group, or before it: begin again, with the messages that wait to be sent."""
        was_excluded = durable.over is not None and not durable.over.has_left
        if was_excluded:
            self._take_back(durable)
        else:
            self._take_back_earlier(durable)
            for payload in durable.pending:
                self.own.add(payload)
        names = [who.name for who in durable.view.members] if durable.view is not None else []
        known = [*names, *sorted(durable.names), *contacts, *founders]
        has_left = durable.over is not None and durable.over.has_left
        # A member that asked to join knows that there is a group: it must not found another one with its peers.
        founding = durable.founders or (founders if has_left else ())
        is_founder = bool(founding) and durable.view is None and not was_excluded
        if durable.over is not None:
            self.me = MemberId(self.me.name, self.me.incarnation + 1)
        self._begin_incarnation(known, founding if is_founder else ())
        self._note("restarted")
        if is_founder:
            self._start_forming()
            self._keep_promise(durable.acceptor)
        else:
            self._start_joining()

    def _take_back(self, durable: Durable) -> None:
        """Send again, or return, what the last incarnation did not send, or sent without success."""
        if durable.decision is not None and durable.view is not None:
            cut, rank = durable.decision.proposal.cut, durable.view.members.index(durable.me)
            for record in durable.log.in_order(_only(rank, cut[rank], cut), durable.log.delivered()):
                self.own.add(payload_of(record)).was_sent = True
        for payload in durable.pending:
            self.own.add(payload)
        certain = self._decides_for_all
        lost = self._resend(self.own.returned(0, self.effects), certain)
        self._repeat_exclusion(lost, certain, is_reported=durable.is_reported)

    def _take_back_earlier(self, durable: Durable) -> None:
        """The process crashed before its application learned what an earlier exclusion returned."""
        for payload in durable.returned:
            self.own.add(payload)
        self._repeat_exclusion(self.own.returned(0, self.effects), certain=False, is_reported=False)

    def _repeat_exclusion(self, lost: list[Outgoing], certain: bool, *, is_reported: bool) -> None:
        self._lose(lost, EXCLUDED_BEFORE)
        if is_reported:
            self._unreported = ()
        elif lost:
            self.effects.notices.append(Notice("excluded", Excluded(EXCLUDED_BEFORE, self._unreported, certain)))

    def _take_up_own(self, durable: Durable, view: View) -> None:
        rank = view.members.index(self.me)
        first = view.sent[rank] + self.log.stable[rank] + 1
        own = self.log.in_order(_only(rank, self.log.stable[rank], self.log.delivered()), self.log.delivered())
        for record in own:
            self.own.add(payload_of(record))
        self.own.send(len(own), view.number, first)
        for payload in durable.pending:
            self.own.add(payload)
        self._recorded_pending = len(durable.pending)

    def _take_up_application(self, durable: Durable) -> None:
        view = durable.view
        assert view is not None
        for number, needed_by in durable.expected.items():
            self.snapshots.needed_by[number] = set(needed_by)
        for number, state in durable.snapshots.items():
            self.snapshots.kept[number] = self.snapshots.cut_up(state)
        self.snapshots.retain(view.members)
        if durable.joined is not None:
            self._gate = list(durable.replay)
            self._fetch = self._new_fetch(durable.joined)
            for entry in durable.replay:
                self._note_again(entry)
            return
        self._members.have_state.add(self.me)
        if durable.checkpoint is not None:
            self._put_state(self.snapshots.cut_up(durable.checkpoint), is_checkpoint=True)
        self._replay(durable.replay, is_restart=True)


def _only(rank: int, above: int, delivered: Sequence[int]) -> list[int]:
    """A vector above everything except this rank's messages."""
    return [above if other == rank else SEQUENCE_MASK for other in range(len(delivered))]

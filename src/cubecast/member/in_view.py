"""The part of a member that works within a view: it moves messages between application, stack and links.

Entries for the application wait behind a *gate* until the group's state is here. Its multicasts wait, in order, until
the view allows sending: not while the view changes, while too few members are reachable, or while the application has
not yet been given the state that replaces what it had before an exclusion. They also wait while the application is
behind with what it takes, unless it seems to wait for them itself.

| field          | meaning                                                                                     |
|----------------|---------------------------------------------------------------------------------------------|
| view           | the newest view; None before the first one                                                  |
| stack          | the protocols of that view; None before the first one, and after a restart until the next   |
| log            | the messages of that view                                                                   |
| own            | own messages that are not stable                                                            |
| gate           | entries that wait for the state; None when the application has it                           |
| early          | frames of a view that is not installed yet                                                  |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cubecast.errors import CubecastError, RemoteProtocolError
from cubecast.member.alone import Alone
from cubecast.member.arena import Arena
from cubecast.member.data_core import read_records, record_form
from cubecast.member.effects import Delivery, Effects, Entry, Notice, SnapshotWanted
from cubecast.member.history import History
from cubecast.member.levels import Levels
from cubecast.member.link import BATCH_BYTES, RECORDS_BATCH, Link
from cubecast.member.links import Links
from cubecast.member.message_log import SEQUENCE_MASK, Batch, MessageLog
from cubecast.member.own_messages import OwnMessages
from cubecast.member.reranking import Measured, ranked
from cubecast.member.settings import Settings
from cubecast.member.stack import Stack
from cubecast.member.state_transfer import Fetch, Snapshots
from cubecast.member.stragglers import Stragglers
from cubecast.member.timers import Timers
from cubecast.member.troubles import Troubles
from cubecast.member.untaken import Untaken
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.agreement import Agreement
from cubecast.protocols.membership.messages import (
    Flush,
    Message,
    Missing,
    Proposal,
    Pull,
)
from cubecast.protocols.membership.views import (
    NO_VIEW,
    MemberId,
    Vector,
    View,
    ViewId,
)
from cubecast.wire import frame
from cubecast.wire.frame import Frame
from cubecast.wire.handshake import Hello
from cubecast.wire.records import delivered_head, encode_record

GATE_BYTES = 256 << 20
"""Messages that a newcomer holds for its application while the state transfer runs; beyond, it accepts no more."""
EARLY_BYTES = 64 << 20
"""Frames of a view that is not installed yet."""
TAGS_KEPT = 16
FORMING, JOINING, IN_VIEW, LINGER, OUT = range(5)


class MemberTrace(Protocol):
    """Records the events from which the checkers judge the group's guarantees."""

    def note(self, now_ns: int, me: MemberId, event: str, **data: Any) -> None:
        """One event."""

    def deliveries(self, now_ns: int, me: MemberId, senders: list[MemberId], sequences: list[int]) -> None:
        """Messages were handed to the application."""


class InView:
    """Messages of one member; `Lifecycle` adds joining, views and leaving."""

    def __init__(
        self,
        group: str,
        name: str,
        settings: Settings,
        *,
        incarnation: int,
        session: int,
        is_durable: bool,
        makes_snapshots: bool,
        trace: MemberTrace | None = None,
    ) -> None:
        """The member has not begun. `incarnation` and `session` grow with each start of the process."""
        self.group = group
        self.me = MemberId(name, incarnation)
        self.settings = settings
        self.effects = Effects()
        self.view: View | None = None
        self.stack: Stack | Alone | None = None
        self.arena = Arena()
        self.log = MessageLog(0)
        self.links = Links(group, session, self)
        self.own = OwnMessages(bytes_max=settings.window_bytes)
        self.history = History(settings.keep)
        self.snapshots = Snapshots(settings.piece_bytes)
        self.timers = Timers()
        self.is_blocked = False
        self.renews = False
        self.leaving = False
        self.delivered_count = 0
        self.measured_us: dict[str, int] = {}
        """The round-trip times of links in microseconds, by name, as the driver measured them."""
        self.state = OUT
        self._now_ns = 0
        self._tick_at_ns = 0
        self._is_stirred = False
        """Did something happen that a tick should handle soon?"""
        self._is_durable = is_durable
        self._makes_snapshots = makes_snapshots
        self._trace = trace
        self._gate: list[Entry] | None = None
        self._gate_bytes = 0
        self._backlog_bytes = 0
        self._taken_ns = 0
        """When the application last took something, or had nothing to take."""
        self._ahead_bytes = 0
        """Own messages sent while the application was behind, less what it has taken since."""
        self._untaken = Untaken()
        self._fetch: Fetch | None = None
        self._early: deque[tuple[MemberId, Frame]] = deque()
        self._early_bytes = 0
        self._past_tags: deque[int] = deque(maxlen=TAGS_KEPT)
        self._recorded_pending = 0
        self._unreported: tuple[bytes, ...] = ()
        self._restores_due = 0
        suspect_ns = settings.membership().suspect_ns
        self._stragglers = Stragglers(suspect_ns, settings.behind_messages)
        self._troubles, self._backlog_trouble = Troubles(), Troubles(suspect_ns)
        self._pulled: dict[tuple[tuple[int, int], int], int] = {}
        self._heard_ns: dict[str, int] = {}
        self._members = self._new_agreement()

    def _new_agreement(self) -> Agreement:
        return Agreement(self.me, self.group, self.settings.membership(), self)

    # What agreement, links and stack call.

    def now(self) -> int:
        """The time of the present call."""
        return self._now_ns

    def later(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay, unless the view has ended by then."""
        self.timers.at(self._now_ns + delay_ns, function, *arguments)

    def send(self, to: MemberId, message: Message) -> None:
        """Send a membership message, if there is a link; it is repeated as long as it matters."""
        base = self._members.shared_view(message.view, to)
        self.links.send_message(to.name, message, self._now_ns, base)

    def record(self, record: r.Record) -> None:
        """Write a record before anything that follows is visible outside."""
        if self._is_durable:
            self.effects.persist.append(encode_record(record))

    def link_to(self, who: MemberId) -> Link:
        """The link to a member of the view."""
        return self.links.open(who, self._now_ns)

    def open_links(self) -> list[tuple[int, Link]]:
        """The links to members of the view that exist, with their ranks."""
        ranks = self._members.ranks
        return [(ranks[link.peer], link) for link in self.links.links.values() if link.peer in ranks]

    def mark(self, link: Link) -> None:
        """This link has something to write."""
        self.links.mark(link)

    @property
    def keeps_journal(self) -> bool:
        """Does this member have a journal?"""
        return self._is_durable

    @property
    def is_ready(self) -> bool:
        """Does the application have the group's state?"""
        return self._gate is None

    @property
    def awaits_restore(self) -> bool:
        """Must the application restore a state before anything it multicasts may be sent?"""
        return self._restores_due > 0

    @property
    def wants_to_leave(self) -> bool:
        """Is the application leaving, with nothing left to send?"""
        return self.leaving and not self.own.waiting

    def suspects(self) -> list[MemberId]:
        """Which members of the view are suspected now, including those whose process has begun another incarnation."""
        view = self._members.view
        if self.stack is not None:
            silent = {view.members[rank] for rank in self.stack.suspects()}
        else:
            limit_ns = self._now_ns - self._members.settings.suspect_ns
            silent = {who for who in view.members if self._heard_ns.get(who.name, -(1 << 62)) < limit_ns}
        others = [who for who in view.members if who.name != self.me.name]
        return [who for who in others if who in silent or self.links.is_replaced(who)]

    def behind(self) -> list[MemberId]:
        """Which members hold back the stability of too many messages, if those are excluded."""
        return [who for who, _ in self.stragglers()] if self.settings.slow == "exclude" else []

    def stragglers(self) -> list[tuple[MemberId, int]]:
        """The members that hold back the stability of too many messages, and how many each lacks."""
        if self.stack is None or self.view is None:
            return []
        progress = self._progress()
        found = self._stragglers.found(self._now_ns, progress[self.stack.rank], progress)
        return [(self.view.members[rank], lacking) for rank, lacking in found]

    def _progress(self) -> list[int]:
        """How many messages of this view each rank is known to have delivered."""
        assert self.stack is not None
        everywhere = sum(self.log.stable)  # the known progress of others is a little old, but every member has these
        return [max(count, everywhere) for count in self.stack.progress()]

    def laggards(self) -> list[tuple[MemberId, int]]:
        """The members behind the most advanced one, and by how many messages; the slowest first."""
        if self.stack is None or self.view is None:
            return []
        progress = self._progress()
        most = max(progress)
        found = [(who, most - count) for who, count in zip(self.view.members, progress, strict=True) if count < most]
        return sorted(found, key=lambda one: -one[1])

    def delivered(self) -> Vector:
        """How many messages of each rank were delivered in this view."""
        return self.log.delivered()

    def round_trips(self) -> Vector:
        """The measured round-trip times to the members of the view, by rank; empty if they are not used."""
        if not self.settings.rerank_gain:
            return ()
        return tuple(self.measured_us.get(who.name, 0) for who in self._members.view.members)

    def ranked(self, members: Sequence[MemberId], measured: Measured) -> Sequence[MemberId]:
        """The members of the next view by rank."""
        return ranked(members, measured, self.settings)

    def freeze(self) -> None:
        """Deliver and send nothing more in this view."""
        if self.stack is not None:
            self.stack.freeze()

    # Deliveries.

    def takes_data(self) -> bool:
        """May messages be delivered now?"""
        if self.is_blocked:
            return False
        if self._gate is not None:
            return self._gate_bytes <= GATE_BYTES
        return self._backlog_bytes <= self.settings.backlog_bytes

    def deliver(self, delivered: Batch, size: int) -> None:
        """Hand messages of that many bytes to the application, in this order."""
        if self._is_durable:
            self.effects.persist.append(delivered_head(size))
            self.effects.persist += delivered.records
        self._give(delivered, size)

    def _give(self, delivered: Batch, size: int) -> None:
        view = self.view
        assert view is not None
        entries = _deliveries(view, delivered)
        if self._gate is not None:
            self._gate += entries
            self._gate_bytes += size
            self._note_held(entries)
        else:
            self._emit(entries, size)
        self._message_came()

    def _emit(self, batch: list[Delivery], size: int) -> None:
        self.effects.entries += batch
        if not self._backlog_bytes:
            self._taken_ns = self._now_ns
        self._backlog_bytes += size
        self._untaken.add(batch, size)
        self.delivered_count += len(batch)
        if self.history.is_kept:
            self.history.add(batch)
        if self._trace is not None:
            senders = [entry.sender for entry in batch]
            self._trace.deliveries(self._now_ns, self.me, senders, [entry.sequence for entry in batch])

    def _note_held(self, entries: Sequence[Delivery]) -> None:
        if self._trace is not None and self.view is not None:
            for entry in entries:
                self._note("hold", view=self.view.id, sender=entry.sender, sequence=entry.sequence)

    def _note(self, event: str, **data: Any) -> None:
        if self._trace is not None:
            self._trace.note(self._now_ns, self.me, event, **data)

    def _add_entry(self, entry: Entry) -> None:
        """Hand an entry to the application, or hold it until the application has the state."""
        if self._gate is not None:
            self._gate.append(entry)
        elif isinstance(entry, Delivery):
            self._emit([entry], len(entry.record))
        elif isinstance(entry, SnapshotWanted) and not self._makes_snapshots:
            self.snapshots.keep(entry.view, self.history.pieces() or (b"",))
        else:
            self.effects.entries.append(entry)

    def taken(self, octets: int, now_ns: int) -> None:
        """The application has processed deliveries of that many bytes: more are accepted."""
        self._now_ns = self._taken_ns = now_ns
        self._backlog_bytes -= octets
        self._ahead_bytes = max(0, self._ahead_bytes - octets)
        self._untaken.take(octets)
        self._levels_changed()
        if self.stack is not None and self.stack.is_parked and 2 * self._backlog_bytes <= self.settings.backlog_bytes:
            self.stack.unpark()

    # Own messages.

    @property
    def has_room(self) -> bool:
        """May the application multicast one more message now?"""
        return self.own.has_room(self.settings.window_messages)

    def _may_send(self) -> bool:
        return (
            self.state == IN_VIEW
            and self.stack is not None
            and not self.stack.is_frozen
            and not self.is_blocked
            and self._gate is None
            and not self.awaits_restore
            and (self.leaving or not self._is_behind() or self._may_overtake())
        )

    def _is_behind(self) -> bool:
        """Has the application not yet taken what others sent? Its own messages must not overtake theirs for long.

        Otherwise a member that multicasts more than it reads would hold back the windows of all others, not its own.
        """
        assert self.stack is not None
        return self.stack.is_parked or self._backlog_bytes > self.settings.backlog_bytes

    def _may_overtake(self) -> bool:
        """May own messages be sent although the application is behind?

        If it has taken nothing for a heartbeat, the task that reads may itself wait until they are sent, or stable.
        """
        is_idle = self._now_ns - self._taken_ns >= round(1e9 * self.settings.heartbeat_s)
        return is_idle and self._ahead_bytes < self.settings.backlog_bytes

    def _send_own(self) -> None:
        """Publish waiting messages, as far as the view and its window allow."""
        stack, view = self.stack, self.view
        if not self.own.waiting or not self._may_send():
            return
        assert stack is not None
        assert view is not None
        count = min(len(self.own.waiting), stack.window - len(self.own.sent))
        if count <= 0:
            return
        before = view.sent[stack.rank]
        batch = self.own.send(count, view.number, before + len(self.own.sent) + stack.log.stable[stack.rank] + 1)
        self._recorded_pending = max(0, self._recorded_pending - count)
        if self._trace is not None:
            for one in batch:
                self._note("sent", view=view.id, sequence=one.sequence, serial=one.serial)
        if self._is_behind():
            self._ahead_bytes += sum([len(one.payload) for one in batch])
        stack.publish([one.payload for one in batch])

    def _record_pending(self) -> None:
        """Persist the waiting messages: they are sent after a restart."""
        waiting = self.own.waiting
        if len(waiting) > self._recorded_pending:
            for outgoing in list(waiting)[self._recorded_pending :]:
                self.record(r.Pending(outgoing.payload))
            self._recorded_pending = len(waiting)

    # Stability.

    def stable_moved(self, moved: list[tuple[int, int]]) -> None:
        """More messages are stable: (rank, number within the view)."""
        view, stack = self.view, self.stack
        assert view is not None
        assert stack is not None
        for rank, number in moved:
            if rank == stack.rank:
                self.own.is_stable(view.sent[rank] + number, self.effects)
            if self._trace is not None:
                sequence = view.sent[rank] + number
                self._note("stable", view=view.id, sender=view.members[rank], sequence=sequence)
        if self._is_durable:
            self.record(r.Settled(tuple(self.log.stable)))
        self.effects.notices.append(Notice("stable", None))

    @property
    def frontier(self) -> dict[MemberId, int]:
        """Up to which sequence number every member of the view has the messages of each member."""
        stable = self.log.stable
        if self.view is None or len(stable) != len(self.view.members):
            return {}
        return {who: sent + count for who, sent, count in zip(self.view.members, self.view.sent, stable, strict=True)}

    # Frames.

    def frame_arrived(self, link: Link, arrived: Frame, now_ns: int) -> None:
        """A frame of another member, in order."""
        if arrived.kind == frame.MEMBERSHIP:
            self._membership_arrived(link, arrived.body, now_ns)
            return
        view = self.view
        if view is not None and arrived.view == view.tag and self.state == IN_VIEW:
            rank = self._members.ranks.get(link.peer)
            if rank is not None and self.stack is not None:
                self._to_stack(rank, arrived)
            else:
                self._heard_ns[link.peer.name] = now_ns
        elif arrived.view in self._past_tags:
            self._answer_past(link)
        else:
            self._hold_early(link, arrived)

    def _to_stack(self, rank: int, arrived: Frame) -> None:
        assert self.stack is not None
        if arrived.kind == frame.DATA:
            self.stack.receive(rank, arrived.body)
        else:
            self.stack.control(rank, arrived.kind, arrived.body)

    def _hold_early(self, link: Link, arrived: Frame) -> None:
        """Hold a frame of a view that is not installed here yet."""
        if arrived.kind == frame.FAILURE:
            return
        self._early_bytes += len(arrived.body)
        if self._early_bytes > EARLY_BYTES:
            self._early.popleft()
        self._early.append((link.peer, arrived))

    def _take_early(self, view: View) -> None:
        early, self._early = self._early, deque()
        is_whole = self._early_bytes <= EARLY_BYTES
        self._early_bytes = 0
        for peer, arrived in early:
            rank = self._members.ranks.get(peer)
            if arrived.view == view.tag and rank is not None:
                try:
                    self._to_stack(rank, arrived)
                except RemoteProtocolError as error:
                    self.links.fail(peer.name, str(error), self._now_ns)
                    is_whole = False
        if early and not is_whole:
            self.renews = True

    def _membership_arrived(self, link: Link, body: bytes, now_ns: int) -> None:
        raise NotImplementedError

    def _answer_past(self, link: Link) -> None:
        raise NotImplementedError

    # Recovery during a change.

    def lacks(self, cut: Vector) -> bool:
        """Is anything up to the cut neither delivered nor recovered here?"""
        return self.log.lacks(cut)

    def pull(self, flush: Flush) -> None:
        """Request what is missing from the sources of a flush, again if nothing came for a while."""
        view = self._members.view
        here = self.log.delivered()
        sources = {source for source, have, wanted in zip(flush.sources, here, flush.cut, strict=True) if have < wanted}
        again_ns = self._now_ns - self._members.settings.patience_ns
        for source in sorted(sources - {self._members.ranks[self._members.place]}):
            if self._pulled.get((flush.ballot, source), -(1 << 62)) <= again_ns:
                who = view.members[source]
                if self.links.send_message(who.name, Pull(view.id, flush.ballot, here, flush.cut), self._now_ns):
                    self._pulled[flush.ballot, source] = self._now_ns

    def _on_pull(self, source: MemberId, message: Pull) -> None:
        """Send what another member lacks, in the order in which it was delivered here."""
        batch: list[bytes] = []
        size = 0
        for record in self.log.in_order(message.delivered, message.cut):
            batch.append(record)
            size += len(record)
            if size >= BATCH_BYTES or len(batch) >= RECORDS_BATCH:
                self.send(source, Missing(message.view, b"".join(batch)))
                batch, size = [], 0
        if batch:
            self.send(source, Missing(message.view, b"".join(batch)))

    def _on_missing(self, message: Missing) -> None:
        view = self._members.view
        if not self._members.is_frozen:
            return
        found = read_records(message.records, record_form(self.settings, len(view.members)))
        added = self.log.recover(found)
        if added:
            self.record(r.Recovered(b"".join(added)))
            self._members.recovered(self._now_ns)

    def _deliver_recovered(self, cut: Vector) -> None:
        taken = self.log.take_recovered(cut)
        if taken.keys:
            # The journal has them as `Recovered`; installing the view delivers them.
            self._give(taken, self.log.add(taken))
        if self.log.delivered() != cut:
            raise AssertionError(f"the view ends at {cut}, but {self.log.delivered()} was delivered")

    # Diagnostics.

    def position(self) -> tuple[int, ViewId, int]:
        """The group's id, the present view and the number of its members, zeros before there is one."""
        if self.view is None or self.state not in (IN_VIEW, LINGER):
            return 0, NO_VIEW, 0
        return self.view.group_id, self.view.id, len(self.view.members)

    # What `InLevels` adds.

    def contribute(self, levels: Levels) -> None:
        """Set what this member's application and journal contribute to the levels."""
        raise NotImplementedError

    def levels_moved(self) -> None:
        """The known levels of all members have advanced."""
        raise NotImplementedError

    def _levels_changed(self) -> None:
        """The application has processed more, or the disk has stored more."""
        raise NotImplementedError

    def _message_came(self) -> None:
        """Messages were delivered here."""
        raise NotImplementedError

    # What `Lifecycle` adds.

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Continue in the decided view, or outside of it."""
        raise NotImplementedError

    def link_up(self, link: Link, said: Hello, now_ns: int) -> None:
        """A link has a connection."""
        raise NotImplementedError

    def link_broken(self, peer: MemberId, now_ns: int) -> None:
        """Frames to this member were lost for good."""
        raise NotImplementedError

    # What `Exits` and `Branches` add.

    def refused_as_past(self, by: str, last_incarnation: int) -> None:
        """A member of the group reports that this incarnation is no longer in it."""
        raise NotImplementedError

    def last_known(self, who: MemberId, said: Hello) -> int | None:
        """If this incarnation is no longer in the group: the last one of that name that is known."""
        raise NotImplementedError

    def _go_out(self, reason: str, *, above: int | None = None, certain: bool = False) -> None:
        """Exit from the group without having taken part in the decision."""
        raise NotImplementedError

    def _fail(self, error: CubecastError) -> None:
        """This member cannot continue."""
        self.state = OUT
        self.own.end(error, self.effects)
        self.effects.notices.append(Notice("failed", error))


def _deliveries(view: View, delivered: Batch) -> list[Delivery]:
    """The messages as the application gets them."""
    keys, records = delivered
    members, sent, number = view.members, view.sent, view.number
    found: list[Delivery] = []
    for begin, end in delivered.runs():
        rank = keys[begin] >> 32
        sender, first = members[rank], sent[rank] + (keys[begin] & SEQUENCE_MASK)
        found += [
            Delivery(sender, number, sequence, record) for sequence, record in enumerate(records[begin:end], first)
        ]
    return found

"""What a member reports of its levels, and what it learns of those of others: `member.levels`, `member.quorum_levels`.

| field         | meaning                                                                                     |
|---------------|---------------------------------------------------------------------------------------------|
| known         | what was reported to the application last                                                   |
| queued        | calls of `multicast` that wait in the driver for room in the window                         |
| quorum_levels | questions to and from other members of the present view                                     |
"""

from __future__ import annotations

from typing import Any

from cubecast.errors import RemoteProtocolError
from cubecast.member.effects import Notice, Outgoing
from cubecast.member.in_view import InView
from cubecast.member.known_levels import NOTHING_KNOWN, KnownLevels
from cubecast.member.levels import DURABLE, PROCESSED, RECEIVED, Levels
from cubecast.member.quorum_levels import LEVELS, QuorumLevels
from cubecast.protocols.membership.messages import AskLevel, LevelReached
from cubecast.protocols.membership.views import MemberId, Vector, View


class InLevels(InView):
    """Levels of stability, for all members and for a quorum, and causal stability."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Nothing is known yet."""
        self.known = NOTHING_KNOWN
        self.queued = 0
        self.quorum_levels = QuorumLevels(NOTHING_KNOWN.view)
        self._synced: Vector = ()
        """By rank: the messages of the present view that are on the disk; empty: not even all of the earlier views."""
        self._overcounted_ns = 0
        self._causal_before: dict[MemberId, int] = {}
        """What was causally stable here when the present view began."""
        self._causal_view = 0
        """Everything of earlier views than this one is causally stable here."""
        super().__init__(*arguments, **named)

    def _begin_levels(self, view: View) -> None:
        """A view begins."""
        causal = self.known.causal_frontier
        self._causal_before = {who: causal[who] for who in view.members if who in causal}
        self._untaken.begin_view(view)
        self._synced = ()
        self.quorum_levels = QuorumLevels(view)

    def _message_came(self) -> None:
        """Messages were delivered here."""
        if self.quorum_levels.owed:
            self._answer_levels()

    def contribute(self, levels: Levels) -> None:
        """Set what this member's application and journal contribute to the levels."""
        if self._has_dealt_with_earlier:
            levels.block(PROCESSED)[:] = [1 + count for count in self._untaken.processed]
        if self._is_durable and self._gate is None:
            # With `always`, a message that says so is sent after the records are synced.
            durable = self.log.delivered() if self.settings.sync == "always" else self._synced
            if durable:
                levels.block(DURABLE)[:] = [1 + count for count in durable]
        levels.sent(self._multicast_count())

    @property
    def _has_dealt_with_earlier(self) -> bool:
        """Has the application processed everything before this view, including the group's state?"""
        return self._untaken.has_passed and self._gate is None and not self.awaits_restore

    def _multicast_count(self) -> int:
        """How many messages of this view the application has multicast, those that wait to be sent included."""
        stack = self.stack
        assert stack is not None
        return stack.published() + len(self.own.waiting) + self.queued

    def _watch_cancelled(self) -> None:
        """Others wait for messages that were counted and then cancelled: if none follow, a new view ends the wait."""
        stack = self.stack
        if stack is None or not stack.levels.is_overcounted(self._multicast_count()):
            self._overcounted_ns = self._now_ns
        elif self._now_ns - self._overcounted_ns > self._members.settings.suspect_ns:
            self.renews = True

    def _levels_changed(self) -> None:
        """The application has processed more, or the disk has stored more."""
        stack = self.stack
        if stack is None or self.view is None:
            return
        if stack.levels.catch_up(self._untaken.processed):
            self._causal_moved()
        stack.watch_levels()
        if self.quorum_levels.owed:
            self._answer_levels()
        if self.quorum_levels.wanted:
            self._report_levels()

    def levels_moved(self) -> None:
        """The known levels of all members have advanced."""
        assert self.stack is not None
        if self.stack.levels.learn(self._untaken.processed):
            self._causal_moved()
        self._report_levels()

    def _causal_moved(self) -> None:
        assert self.view is not None
        self._causal_view = self.view.number
        self.effects.notices.append(Notice("causally_stable", self._report_levels()))
        if self._trace is not None:
            self._note("causal", view=self.view.id, frontier=self.known.causal_frontier)

    def _report_levels(self) -> KnownLevels:
        """Report the known levels, once the records that they depend on are written."""
        stack, view = self.stack, self.view
        assert stack is not None
        assert view is not None
        asked, levels = self.quorum_levels, stack.levels
        self.known = KnownLevels(
            view=view,
            counts=[levels.of_all(level).tolist() for level in LEVELS],
            quorum=[
                asked.reached(level, stack.rank, self._own_level(level, stack.rank)) if level in asked.wanted else 0
                for level in LEVELS
            ],
            causal=levels.causal,
            causal_before=self._causal_before,
            causal_view=self._causal_view,
        )
        self.effects.notices.append(Notice("levels", self.known))
        return self.known

    def ask_quorum(self, outgoing: Outgoing, level: int, now_ns: int) -> None:
        """Ask all members whether they have reached a level with this own message; a notice `levels` follows."""
        self._now_ns = now_ns
        self._send_own()
        if self.stack is not None and outgoing.was_sent and self.quorum_levels.want(level, self._count_of(outgoing)):
            self._ask_unanswered()
            self._report_levels()

    def _ask_unanswered(self) -> None:
        """Ask the members that have not answered, again if the link was down."""
        asked = self.quorum_levels
        if not asked.wanted or self.stack is None or self.is_blocked:
            return
        for rank, who in enumerate(asked.view.members):
            for level, count in asked.unanswered(rank) if who != self.me else ():
                self.links.open(who, self._now_ns)
                self.send(who, AskLevel(asked.view.id, level, count))

    def _on_level(self, rank: int, message: AskLevel | LevelReached) -> None:
        if self.stack is None:
            return  # after a restart it takes no part in the old view
        if message.level not in LEVELS:
            raise RemoteProtocolError(f"a question about level {message.level}: there are {len(LEVELS)}")
        if isinstance(message, AskLevel):
            self.quorum_levels.owe(rank, message.level, message.number)
            self._answer_levels()
        else:
            self.quorum_levels.answered(rank, message.level, message.number)
            self._report_levels()

    def _answer_levels(self) -> None:
        if self.stack is None:
            return
        view = self.quorum_levels.view
        for rank, level, count in self.quorum_levels.due(self._own_level):
            self.send(view.members[rank], LevelReached(view.id, level, count))

    def _own_level(self, level: int, rank: int) -> int:
        assert self.stack is not None
        if level == RECEIVED:
            return 1 + self.log.delivered()[rank]
        self.contribute(self.stack.levels)
        return int(self.stack.levels.block(level)[rank])

    def _count_of(self, outgoing: Outgoing) -> int:
        assert self.stack is not None
        return 1 + max(0, outgoing.sequence - self.quorum_levels.view.sent[self.stack.rank])

    def synced(self, view_tag: int, delivered: Vector, now_ns: int) -> None:
        """The records up to this place are on the disk: see `journal_place`."""
        self._now_ns = now_ns
        if self.view is not None and view_tag == self.view.tag and delivered != self._synced:
            self._synced = delivered
            self._levels_changed()

    def journal_place(self) -> tuple[int, Vector]:
        """The view and its deliveries that are in the journal when the effects taken so far are."""
        return (self.view.tag, self.log.delivered()) if self.view is not None else (0, ())

    def ask_levels(self, now_ns: int) -> None:
        """Start a stability round to learn the levels of the other members."""
        self._now_ns = now_ns
        if self.stack is not None:
            self.stack.ask_levels()

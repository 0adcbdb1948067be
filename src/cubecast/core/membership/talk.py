"""What a member tells its neighbours every tick, and what it learns from them (STATUS).

A STATUS holds what this member knows of everybody, so that it comes to all members hop by hop: signs of life (`watch`),
which messages are stable (`rounds`), who asks to be taken in and who is too slow (`rumours`), who leaves, and who has
the state. Whoever is silent is also asked directly, and answers though it is no neighbour.
"""

from __future__ import annotations

from cubecast.core.membership.application import Application
from cubecast.core.membership.messages import ANY_LIFE, Behind, Blocked, Status, Unblocked, Vector
from cubecast.core.membership.neighbours import neighbours
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.views import MemberId, has_quorum


class Talk(Application):
    """The part of a member that talks to its neighbours; `Member` adds the rest."""

    def __init__(self, me: MemberId, settings: MembershipSettings) -> None:
        """Nothing said."""
        super().__init__(me, settings)
        self._behind: set[MemberId] = set()
        self._bits: tuple[tuple[int, int], int] = ((0, 0), 0)

    def _look_around(self, now_ns: int) -> None:
        """Who is within reach, and who holds the others back?"""
        is_reached = not self.watch.suspects(now_ns)
        is_blocked = not is_reached and not has_quorum(self.view, self.watch.within_reach(now_ns))
        if is_blocked != self.is_blocked:
            self.is_blocked = is_blocked
            self._out.append(Blocked(self.view.number) if is_blocked else Unblocked(self.view.number))
        self._blame(now_ns)

    def _blame(self, now_ns: int) -> None:
        """Which neighbours are too slow, if that matters?"""
        limit = self.settings.behind_max
        if not limit:
            return
        slow = {who: behind for who, behind in self.behind().items() if behind > limit}
        for who in slow:
            self.blamed.see(who, now_ns)
        for who in sorted(slow.keys() - self._behind):
            self._out.append(Behind(who, slow[who]))
        self._behind = set(slow)

    def _status(self, now_ns: int) -> Status:
        suspects = self.watch.suspects(now_ns)
        rounds = self.channel.rounds
        given = self._given()
        rounds.refresh(given)
        leavers = self.leavers | ({self.me} if self.wants_to_leave else set())
        return Status(
            self.view.number,
            tuple(self.watch.beats),
            rounds.number,
            rounds.counted,
            rounds.minimum,
            rounds.stable,
            tuple(self.channel.received),
            given if self.settings.behind_max else (),
            suspects,
            self.joins.lately(now_ns),
            self.blamed.lately(now_ns),
            tuple(sorted(leavers)),
            self._ready_bits(),
            self.is_blocked or bool(suspects),
        )

    def _given(self) -> Vector:
        """What the application has been given in this view; nothing, as long as it has no state."""
        return self.frontier if self.is_ready else (0,) * len(self.view.members)

    def _say_status(self, now_ns: int) -> None:
        """To the neighbours and to those who are silent; one that is blocked looks under every name it heard of."""
        self.watch.beat()
        status = self._status(now_ns)
        for who in dict.fromkeys((*self.watch.neighbours, *status.suspects)):
            self.send(who, status)
        if self.is_blocked:
            for name in sorted(self.acquaintances):
                self.send(MemberId(name, ANY_LIFE), status)

    def _on_status(self, source: MemberId, message: Status, now_ns: int) -> None:
        rank = self.ranks[source]
        self.watch.hear_of(message.beats, now_ns)
        self.watch.said[source] = message.suspects
        self.joins.hear(message.joins, now_ns)
        self.blamed.hear(message.slow, now_ns)
        self.leavers.update(message.leavers)
        self._hear_ready(message.ready)
        if self.channel.hear(message, self._given()) and self.is_ready:
            self._tell_stable()
        if message.delivered:
            self.channel.known[rank] = message.delivered
        theirs = neighbours(rank, len(self.view.members), self.settings.cube_from)
        if self.channel.rank in theirs:
            is_turn = theirs[message.beats[rank] % len(theirs)] == self.channel.rank
            for data in self.channel.repairs(rank, message.received, is_turn):
                self.send(source, data)
        elif message.asks:
            self.send(source, self._status(now_ns)._replace(asks=False))

    def _hear_ready(self, ready: int) -> None:
        """More members have the state of the application."""
        if ready & ~self._ready_bits():
            for rank, who in enumerate(self.view.members):
                if ready >> rank & 1 and who not in self.have_state:
                    self.have_state.add(who)
                    self._snapshots.is_served(who)

    def _ready_bits(self) -> int:
        """Who has the state; within a view they only become more, so it is counted anew when their number changes."""
        key = (self.view.number, len(self.have_state))
        if self._bits[0] != key:
            self._bits = key, sum(1 << self.ranks[who] for who in self.have_state)
        return self._bits[1]

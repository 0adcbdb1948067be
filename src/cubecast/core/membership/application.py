"""The part of a member that faces its application: messages both ways, the state of the group, and the records of both.

What the application is told waits behind a gate until the state of the group is here. What it multicasts waits, in
order, until the view allows to send it.

**Restart.** `resume` takes up the state that was read back from the records: the application begins with its last
checkpoint, and is told once more, in the same order, what it was told after it. So the application's state must come
from what it is told, and from nothing else.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from cubecast.core.membership import records as r
from cubecast.core.membership.agreement import Agreement
from cubecast.core.membership.durable import Durable
from cubecast.core.membership.messages import (
    Action,
    Deliver,
    NoState,
    Persist,
    Progress,
    Restore,
    Sent,
    Stable,
    State,
    Vector,
)
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.transfer import Fetch, Snapshots
from cubecast.core.membership.views import MemberId, Name
from cubecast.errors import LocalProtocolError


class Application(Agreement):
    """What one member owes its application; `Member` adds the rest."""

    def __init__(self, me: MemberId, settings: MembershipSettings) -> None:
        """Nothing sent, nothing told."""
        super().__init__(me, settings)
        self.pending: deque[object] = deque()
        self.acquaintances: set[Name] = set()
        """Names that were in a view of this member, or that asked it to be taken in."""
        self.is_blocked = False
        self.takes = True
        """Does the application take what it is given? If not, only a change of the view delivers more."""
        self._written = 0
        """How many of the pending payloads, from the first on, are in the records."""
        self._gate: list[Action] | None = None
        self._fetch: Fetch | None = None
        self._snapshots = Snapshots(settings.chunk_bytes)

    def go_out(self, reason: str, own: tuple[object, ...] = (), *, certain: bool) -> None:
        """Out of the group; `Member` knows how."""
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Does this member have the state of the application?"""
        return self._gate is None

    @property
    def wants_to_leave(self) -> bool:
        """Was it told to go, and is nothing left to send?"""
        return self.leaving and not self.pending

    @property
    def may_deliver(self) -> bool:
        """Not while the view changes, too few are within reach, or the application has enough to do."""
        return self.takes and not self.acceptor.is_frozen and not self.is_blocked

    # Messages.

    def _tell(self, action: Action) -> None:
        """Tell the application, or keep it until the application has the state."""
        if self._gate is None:
            self._out.append(action)
        else:
            self._gate.append(action)

    def _deliver_and_send(self) -> None:
        if self.may_deliver:
            if self.channel.received != self.channel.delivered:
                self._deliver(None)
            while self.pending and self.is_ready:
                self._send_data(self.pending.popleft())
        if self.channel.members == 1 and self.is_ready and self.channel.settle_own(self.frontier):
            self._tell_stable()

    def _deliver(self, limit: Vector | None) -> None:
        for data in self.channel.deliverable(limit):
            self.record(r.Delivered(data.sender))
            self._tell(Deliver(self.view.number, self.view.members[data.sender], data.number, data.payload))

    def _send_data(self, payload: object) -> None:
        data = self.channel.multicast(payload)
        self.record(data)
        self._written = max(0, self._written - 1)
        self._out.append(Sent(self.view.number, data.number, payload))
        self._out.append(Deliver(self.view.number, self.me, data.number, payload))
        for who in self.view.members:
            if who != self.me:
                self.send(who, data)

    def _tell_stable(self) -> None:
        stable = tuple(self.channel.stable)
        self.record(r.Settled(stable))
        self._tell(Stable(self.view.number, stable))

    def _write_down(self) -> list[Action]:
        """The records of this call, to be written before anything else of it is carried out."""
        for payload in islice(self.pending, self._written, None):
            self._records.append(r.Waiting(payload))
        self._written = len(self.pending)
        written, self._records = self._records, []
        return [Persist(tuple(written))] if written else []

    # The state of the group, for newcomers.

    def give_snapshot(self, view: int, octets: bytes) -> None:
        """The answer to `WantSnapshot`. The first one counts: a newcomer may have pieces of it."""
        if self._snapshots.keep(view, octets):
            self.record(r.Kept(view, octets, tuple(sorted(self._snapshots.needed_by[view]))))

    def _ask_state(self, now_ns: int) -> None:
        if self._fetch is None:
            return
        asked = self._fetch.ask(self.view.members, now_ns)
        if asked is None:
            self.go_out("everybody who had the state of the group is gone", certain=True)
        else:
            self.send(*asked)

    def _on_state(self, source: MemberId, message: State | NoState, now_ns: int) -> None:
        fetch = self._fetch
        if fetch is None or message.view != fetch.view or not fetch.is_asking(source):
            return
        if isinstance(message, NoState):
            fetch.turn(now_ns)
        elif fetch.take(message, now_ns):
            self._out.append(Progress(len(fetch.pieces), fetch.of))
            if fetch.octets is None:
                self._ask_state(now_ns)
            else:
                self._open_gate(Restore(fetch.view, fetch.octets))

    def _open_gate(self, restore: Restore) -> None:
        """The state is here: hand it over, and then all that waited for it."""
        assert self._gate is not None
        self.record(restore)
        self._out += [restore, *self._gate]
        self._gate = None
        self._fetch = None
        self.have_state.add(self.me)

    # Restart.

    def _checkpoint(self, octets: bytes) -> None:
        """Everything that matters now, in place of all records so far."""
        if not self.settings.is_durable:
            raise LocalProtocolError("a checkpoint of a member that is not durable: set is_durable")
        if self._snapshots.needed_by.keys() != self._snapshots.kept.keys():
            raise LocalProtocolError("a checkpoint before a snapshot that is wanted: call give_snapshot first")
        self._written = len(self.pending)
        self._records = [
            r.Whole(
                self.me,
                tuple(sorted(self.acquaintances)),
                self.view,
                self.last_decision,
                self.acceptor.promised,
                self.acceptor.accepted_ballot,
                self.acceptor.accepted,
                tuple(self.channel.delivered),
                tuple(self.channel.stable),
                tuple(self.channel.store.values()),
                tuple(self.pending),
                self.leaving,
                tuple(
                    r.Kept(view, self._snapshots.kept[view], tuple(sorted(needed_by)))
                    for view, needed_by in self._snapshots.needed_by.items()
                ),
                octets,
            )
        ]

    def _take_up(self, durable: Durable, now_ns: int) -> None:
        """Go on in the view of the records."""
        assert durable.view is not None
        self.begin_view(durable.view, now_ns)
        self.channel = durable.channel
        self.acceptor = durable.acceptor
        self.acceptor.moved_ns = self.frozen_ns = now_ns
        self._snapshots.resume(durable.expected, durable.snapshots)
        self._snapshots.retain(self.view.members)
        if durable.joined is not None:
            self._gate = list(durable.replay)
            self._fetch = Fetch(durable.joined, now_ns, self.settings)
            return
        self.have_state.add(self.me)
        if durable.checkpoint is not None:
            self._out.append(Restore(self.view.number, durable.checkpoint))
        self._out += [*durable.replay, Stable(self.view.number, tuple(self.channel.stable))]

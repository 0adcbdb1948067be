"""The state of a member, read back from its records.

| field         | meaning                                                                                         |
|---------------|-------------------------------------------------------------------------------------------------|
| view          | the view it was in last, and the decision that led there; none while it asks to be taken in     |
| channel       | the messages of that view: what was received, delivered, is stable, and the store               |
| acceptor      | what it promised and accepted                                                                   |
| waiting       | what its application multicast and was not sent                                                 |
| joined        | the view with which it came, while the state of the group is being fetched                      |
| checkpoint    | the last state of the application that was written down; none: the application began empty      |
| replay        | what the application was told since                                                             |
| expected      | who needs the state with which a view began; `snapshots` has it, once the application gave it   |
| over          | how it went out of the group                                                                    |

A step is written before anything of it is heard, so whoever resumes from the records cannot be told from a process that
was slow. A batch of records that was not written completely is left out: nothing of that call was heard by anybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from cubecast.core.membership import records as r
from cubecast.core.membership.accept import Acceptor
from cubecast.core.membership.channel import Channel
from cubecast.core.membership.messages import Action, Data, Decide, Deliver, Install, Restore, Sent, WantSnapshot
from cubecast.core.membership.views import MemberId, Name, View
from cubecast.errors import LocalProtocolError


class Durable:
    """What the records say; `fold` makes it."""

    channel: Channel

    def __init__(self, me: MemberId) -> None:
        """Nothing has happened."""
        self.me = me
        self.contacts: tuple[Name, ...] = ()
        self.acquaintances: set[Name] = set()
        self.view: View | None = None
        self.decision: Decide | None = None
        self.joined: View | None = None
        self.acceptor = Acceptor()
        self.waiting: deque[object] = deque()
        self.is_leaving = False
        self.checkpoint: bytes | None = None
        self.replay: list[Action] = []
        self.expected: dict[int, tuple[MemberId, ...]] = {}
        self.snapshots: dict[int, bytes] = {}
        self.over: r.Over | None = None

    def apply(self, record: r.Record) -> None:
        """One step more."""
        getattr(self, f"_{type(record).__name__.lower()}")(record)

    def _life(self, record: r.Life) -> None:
        self.me = record.me

    def _asked(self, record: r.Asked) -> None:
        self.contacts = record.contacts

    def _entered(self, record: r.Entered) -> None:
        view = record.view
        self.decision = record.decision
        if record.is_newcomer:
            self.joined = view
        elif view.joined:
            self.expected[view.number] = view.joined
            self.replay.append(WantSnapshot(view.number))
        self.replay.append(Install(view))
        self._begin(view)

    def _begin(self, view: View) -> None:
        self.view = view
        self.channel = Channel(view.number, view.members.index(self.me), len(view.members))
        self.acceptor = Acceptor()
        self.acquaintances |= {who.name for who in view.members if who != self.me}

    def _promised(self, record: r.Promised) -> None:
        self.acceptor.promised = record.ballot

    def _adopted(self, record: r.Adopted) -> None:
        self.acceptor.promised = self.acceptor.accepted_ballot = record.ballot
        self.acceptor.accepted = record.proposal

    def _data(self, record: Data) -> None:
        self.channel.take(record)
        if record.sender == self.channel.rank:
            if self.waiting:
                self.waiting.popleft()
            assert self.view is not None
            self.replay.append(Sent(self.view.number, record.number, record.payload))
            self._tell_next(record.sender)

    def _delivered(self, record: r.Delivered) -> None:
        self._tell_next(record.sender)

    def _tell_next(self, sender: int) -> None:
        assert self.view is not None
        self.channel.delivered[sender] += 1
        number = self.channel.delivered[sender]
        payload = self.channel.store[sender, number].payload
        self.replay.append(Deliver(self.view.number, self.view.members[sender], number, payload))

    def _settled(self, record: r.Settled) -> None:
        self.channel.resume_stable(record.stable)

    def _waiting(self, record: r.Waiting) -> None:
        self.waiting.append(record.payload)

    def _leaving(self, _record: r.Leaving) -> None:
        self.is_leaving = True

    def _knows(self, record: r.Knows) -> None:
        self.acquaintances.add(record.name)

    def _restore(self, record: Restore) -> None:
        self.joined = None
        self.checkpoint = record.octets

    def _kept(self, record: r.Kept) -> None:
        self.snapshots[record.view] = record.octets

    def _over(self, record: r.Over) -> None:
        self.over = record
        if record.decision is not None:
            self.decision = record.decision

    def _whole(self, record: r.Whole) -> None:
        self.me = record.me
        self.acquaintances = set(record.acquaintances)
        self._begin(record.view)
        self.decision = record.decision
        self.joined = None
        self.acceptor.promised = record.promised
        self.acceptor.accepted_ballot = record.accepted_ballot
        self.acceptor.accepted = record.accepted
        self.channel.received = list(record.stable)
        for data in record.store:
            self.channel.take(data)
        self.channel.delivered = list(record.delivered)
        self.channel.resume_stable(record.stable)
        self.waiting = deque(record.waiting)
        self.is_leaving = record.is_leaving
        self.expected = {kept.view: kept.needed_by for kept in record.snapshots}
        self.snapshots = {kept.view: kept.octets for kept in record.snapshots}
        self.checkpoint = record.checkpoint
        self.replay = []


def fold(records: Iterable[r.Record]) -> Durable:
    """The state after these records, the oldest first."""
    steps = iter(records)
    first = next(steps, None)
    if not isinstance(first, r.Life | r.Whole):
        raise LocalProtocolError(f"records that begin with {first!r}: they begin with Life or Whole")
    durable = Durable(first.me)
    durable.apply(first)
    for record in steps:
        durable.apply(record)
    return durable

"""The state of a member, read back from the records of its journal.

| field      | meaning                                                                                             |
|------------|-----------------------------------------------------------------------------------------------------|
| me         | the incarnation                                                                                     |
| contacts   | members that it asks to join; `founders`: those with which it founds                                |
| view       | the view it was in last, and the decision that led there; none before the first one                 |
| log        | the messages of that view                                                                           |
| acceptor   | its promises and accepted proposals                                                                 |
| pending    | what its application multicast and was not sent                                                     |
| joined     | the view with which it came, while the application's state is being fetched                         |
| checkpoint | the last state of the application that was written; None: the application began empty               |
| replay     | the view of the checkpoint, and what the application saw since, in order                            |
| expected   | views that began with newcomers; `snapshots` has the state given for them, as far as it was written |
| returned   | what an exclusion returned for good, if the application has not learned of it                       |
| over       | how it left the group, or was excluded                                                              |

A step is written before any effect of it is visible, so to the others a member that resumes looks like a slow one. What
its links carried is lost, so in the view of its journal it only takes part in the agreement on the next view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cubecast.errors import JournalError, RemoteProtocolError
from cubecast.member.data_core import read_records, record_form
from cubecast.member.effects import Delivery, Entry, SnapshotWanted, ViewChange
from cubecast.member.message_log import SEQUENCE_MASK, Batch, MessageLog
from cubecast.member.settings import Settings
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.accept import Acceptor
from cubecast.protocols.membership.messages import Decide
from cubecast.protocols.membership.views import MemberId, Name, View
from cubecast.wire.records import decode_records


class Durable:
    """The state that the records describe; `read_back` constructs it."""

    def __init__(self, me: MemberId, settings: Settings) -> None:
        """The journal is empty."""
        self.me = me
        self.contacts: tuple[Name, ...] = ()
        self.founders: tuple[Name, ...] = ()
        self.names: set[Name] = set()
        self.view: View | None = None
        self.log = MessageLog(0)
        self.decision: Decide | None = None
        self.joined: View | None = None
        self.acceptor = Acceptor()
        self.pending: deque[bytes] = deque()
        self.returned: tuple[bytes, ...] = ()
        self.is_reported = False
        self.checkpoint: bytes | None = None
        self.replay: list[Entry] = []
        self.expected: dict[int, tuple[MemberId, ...]] = {}
        self.snapshots: dict[int, bytes] = {}
        self.over: r.Over | None = None
        self._settings = settings
        self._pieces: list[bytes] = []

    def apply(self, record: r.Record) -> None:
        """Apply one more record."""
        getattr(self, f"_{type(record).__name__.lower()}")(record)

    def _incarnation(self, record: r.Incarnation) -> None:
        self.__init__(record.me, self._settings)  # type: ignore[misc]
        self.contacts, self.founders = record.contacts, record.founders
        self.names = {*record.contacts, *record.founders} - {record.me.name}
        self.pending = deque(record.pending)
        self.returned = record.returned

    def _entered(self, record: r.Entered) -> None:
        view = record.view
        if not record.is_newcomer and self.log.recovered and record.decision is not None:
            self._deliver(self.log.take_recovered(record.decision.proposal.cut))
        self.decision = record.decision
        if record.is_newcomer:
            self.joined = view
        elif view.joined:
            self.expected[view.number] = view.joined
            self.replay.append(SnapshotWanted(view.number))
        self.replay.append(ViewChange(view=view, pause_s=0.0))
        self._begin(view)

    def _begin(self, view: View) -> None:
        self.view = view
        self.log = MessageLog(len(view.members))
        self.acceptor = Acceptor()
        self.names |= {who.name for who in view.members if who != self.me}

    def _promised(self, record: r.Promised) -> None:
        self.acceptor.promised = record.ballot

    def _adopted(self, record: r.Adopted) -> None:
        self.acceptor.promised = self.acceptor.accepted_ballot = record.ballot
        self.acceptor.accepted = record.proposal

    def _read(self, records: bytes) -> Batch:
        assert self.view is not None
        return read_records(records, record_form(self._settings, len(self.view.members)))

    def _delivered(self, record: r.Delivered) -> None:
        self._deliver(self._read(record.records))

    def _deliver(self, batch: Batch) -> None:
        view = self.view
        assert view is not None
        self.log.add(batch)
        for key, octets in zip(*batch, strict=True):
            sender = view.members[key >> 32]
            if sender == self.me and self.pending:
                self.pending.popleft()
            self.replay.append(Delivery(sender, view.number, view.sent[key >> 32] + (key & SEQUENCE_MASK), octets))

    def _recovered(self, record: r.Recovered) -> None:
        self.log.recover(self._read(record.records))

    def _settled(self, record: r.Settled) -> None:
        for sender, stable in enumerate(record.stable):
            self.log.free(sender, stable)

    def _pending(self, record: r.Pending) -> None:
        self.pending.append(record.payload)

    def _knows(self, record: r.Knows) -> None:
        self.names.add(record.name)

    def _restored(self, record: r.Restored) -> None:
        self.joined = None
        self.checkpoint = record.state or b"".join(self._pieces)
        self._pieces = []
        self.replay = list(from_view(self.replay, record.view))

    def _statepiece(self, record: r.StatePiece) -> None:
        if record.number == 0:
            self._pieces = []
        self._pieces.append(record.octets)

    def _kept(self, record: r.Kept) -> None:
        self.expected[record.view] = record.needed_by
        self.snapshots[record.view] = record.state

    def _over(self, record: r.Over) -> None:
        self.over = record
        if record.decision is not None:
            self.decision = record.decision

    def _exclusionreported(self, _: r.ExclusionReported) -> None:
        self.is_reported = True
        self.returned = ()

    def _checkpoint(self, record: r.Checkpoint) -> None:
        self.__init__(record.me, self._settings)  # type: ignore[misc]
        self.names = set(record.names)
        self._begin(record.view)
        self.decision = record.decision
        self.acceptor.promised = record.promised
        self.acceptor.accepted_ballot = record.accepted_ballot
        self.acceptor.accepted = record.accepted
        self.log.stable = list(record.stable)
        self.log.add(self._read(record.unstable))
        self.log.recover(self._read(record.recovered))
        if self.log.delivered() != record.delivered:
            raise JournalError("the journal's checkpoint does not hold what it says was delivered")
        self.pending = deque(record.pending)
        self.expected = {kept.view: kept.needed_by for kept in record.snapshots}
        self.snapshots = {kept.view: kept.state for kept in record.snapshots}
        self.checkpoint = record.state
        self.replay = [ViewChange(view=record.view, pause_s=0.0)]


def from_view(entries: Sequence[Entry], number: int) -> Sequence[Entry]:
    """The entries after the state with which a view began: the view itself, and a snapshot if one is wanted there."""
    for place, entry in enumerate(entries):
        if isinstance(entry, ViewChange | SnapshotWanted):
            found = entry.view.number if isinstance(entry, ViewChange) else entry.view
            if found == number:
                return entries[place:]
    return entries


def read_back(batches: list[bytes], settings: Settings) -> Durable:
    """The state after these batches of the journal, the oldest first."""
    found = decode_records(batches)
    if not found or not isinstance(found[0], r.Incarnation | r.Checkpoint):
        kind = type(found[0]).__name__ if found else "nothing"
        raise JournalError(f"the journal begins with {kind}, not with an incarnation or a checkpoint: it is incomplete")
    durable = Durable(found[0].me, settings)
    try:
        for record in found:
            durable.apply(record)
    except RemoteProtocolError as error:
        raise JournalError(
            f"the journal holds {error}: it was written with another data=, now {settings.data!r}, or with a larger "
            f"payload_bytes_max=, now {settings.payload_bytes_max}; use the settings it was written with"
        ) from error
    return durable

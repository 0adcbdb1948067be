"""The effects that a member asks its driver for, in one contract (etcd/raft's `Ready`): persist, send, deliver, report.

The driver takes the effects after it called the member, and carries them out in this order:

1. `persist`: append these records to the journal as one batch; with `sync="always"`, wait until they are on the disk.
   If `replaces` is set, the batch replaces everything the journal holds. Until that is done, nothing below happens.
   A `checkpoint` stands for everything the journal holds and the first `covered` of these records. It may take their
   place at any later time, with what is appended in the meantime behind it: nothing waits for it.
2. `writes`, then `closes` and `dials`: bytes for connections, connections to end, names to connect to.
3. `entries`: for the application, in order.
4. `settled`: own messages that are stable now, or will never be. `notices`: events for callbacks and the log.

The driver may take effects while an earlier batch is still being synced, as long as it keeps their order. Afterwards
`Member.next_timer_ns` returns when `Member.on_timer` is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from cubecast.errors import CubecastError
from cubecast.protocols.membership.views import MemberId, View
from cubecast.wire.data import payload_of


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message as the application gets it: number `sequence` among all messages of its sender."""

    sender: MemberId
    view: int
    sequence: int
    record: bytes
    is_history: bool = False
    """Was it delivered to the others before this member joined?"""

    @property
    def payload(self) -> bytes:
        """What the sender multicast."""
        return payload_of(self.record)


class ViewChange(msgspec.Struct, frozen=True, kw_only=True):
    """All deliveries after this one are in this view."""

    view: View
    pause_s: float
    """For how long this member delivered nothing because of the change."""


class SnapshotWanted(NamedTuple):
    """Take the application's state when it has processed all entries before this one, and call `give_snapshot`."""

    view: int


class StateArrived(NamedTuple):
    """Replace the application's state by this one, then call `restored`.

    With a snapshot function, the pieces joined are what another member's function gave. Without one they are the kept
    history: `member.history.decode_history` gives its messages one by one, as deliveries with `is_history`.
    """

    pieces: Sequence[bytes]
    is_checkpoint: bool
    """Is it this member's own state from before a restart?"""


Entry = Delivery | ViewChange | SnapshotWanted | StateArrived


class Outgoing(msgspec.Struct, gc=False, eq=False):
    """One message that this member multicast."""

    serial: int
    """Its place among the calls of `multicast`."""
    payload: bytes
    view: int = 0
    """The number of the view in which it was sent; 0 while it waits."""
    sequence: int = 0
    """Its number among all messages of this incarnation; 0 while it waits."""
    was_sent: bool = False
    is_stable: bool = False
    """Does every member of the view have it?"""
    failure: CubecastError | None = None
    """Why it will never be stable."""
    waiters: Any = ()
    """For the driver: the callers that wait for the stability of this message."""


class Excluded(NamedTuple):
    """The group continues without this incarnation. `returned` may not have reached the others."""

    reason: str
    returned: tuple[bytes, ...]
    certain: bool
    """Is it known that no member of the group delivers what is returned?"""


class Notice(NamedTuple):
    """An event for callbacks and the log, reported at once.

    | what      | value                                                                        |
    |-----------|------------------------------------------------------------------------------|
    | view      | a View was installed                                                         |
    | stable    | the frontier moved: {MemberId: sequence}, made on demand: value is None      |
    | levels    | a `KnownLevels`: what is known of the levels of all members                  |
    | causally_stable | the same: more is causally stable here                                 |
    | blocked   | True: too few members reachable; False: enough again                      |
    | excluded  | an `Excluded`                                                                |
    | progress  | (pieces here, pieces of the state)                                           |
    | left      | None: this member has left                                                   |
    | failed    | a CubecastError: this member cannot continue                                 |
    | refused   | (address or name, reason): a handshake failed                                |
    | link      | (name, "up" | "down", reason)                                                |
    | suspected | MemberId: nothing is heard from it                                           |
    | slow      | MemberId: it holds back stability                                            |
    | backlog   | None: this member's application does not take what was delivered             |
    """

    what: str
    value: Any


class Close(NamedTuple):
    """End a connection: after what was written, or at once."""

    connection: int
    reason: str
    at_once: bool = False


@dataclass
class Effects:
    """The work of the driver, in the order of the fields; see the module."""

    persist: list[bytes] = field(default_factory=list)
    """Encoded records, to be joined to one batch."""
    replaces: bool = False
    checkpoint: list[bytes] = field(default_factory=list)
    """Chunks of records that may replace the journal, one batch; empty: none. See the module."""
    covered: int = 0
    writes: list[tuple[int, list[bytes]]] = field(default_factory=list)
    closes: list[Close] = field(default_factory=list)
    dials: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    settled: list[Outgoing] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    is_partial: bool = False
    """Is there more to write? Then take effects again in the next turn of the loop."""

    def replacement(self) -> list[bytes]:
        """What the journal is to hold from now on, for a driver that replaces it at once; empty: it only grows."""
        if self.checkpoint:
            return [*self.checkpoint, *self.persist[self.covered :]]
        return self.persist if self.replaces else []

    def __bool__(self) -> bool:
        """Is there anything to do?"""
        return bool(
            self.persist
            or self.checkpoint
            or self.writes
            or self.entries
            or self.settled
            or self.notices
            or self.closes
            or self.dials
            or self.is_partial
        )

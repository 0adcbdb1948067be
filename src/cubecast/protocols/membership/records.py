"""The records that a member writes to its journal, so that it can continue after a crash as if it had only been slow.

Each record is one change of the state that other members rely on, or that the application saw. `member.durable` reads
the records back.

| record            | written when                                                                                    |
|-------------------|-------------------------------------------------------------------------------------------------|
| Incarnation       | an incarnation begins; what was written before is obsolete                                      |
| Entered           | a view is installed                                                                             |
| Promised          | a ballot is followed; Adopted: a proposal is accepted                                           |
| Delivered         | messages are delivered, own ones included, in this order                                        |
| Recovered         | messages were pulled during a change and wait for its decision                                  |
| Settled           | more messages are known to be stable                                                            |
| Pending           | the application multicast a message that cannot be sent yet                                     |
| Knows             | a name under which the group may be found                                                       |
| ExclusionReported | the application has learned of its exclusion                                                    |
| StatePiece        | a piece of the application's state has arrived; Restored: all of it                             |
| Kept              | the application gave a snapshot for newcomers                                                   |
| Over              | the member is no longer in the group                                                            |
| Checkpoint        | the application gave a checkpoint: everything that matters; what was written before is obsolete |
"""

from __future__ import annotations

from typing import NamedTuple

from cubecast.protocols.membership.messages import Ballot, Decide, Proposal
from cubecast.protocols.membership.views import (
    MemberId,
    Name,
    Vector,
    View,
)


class Incarnation(NamedTuple):
    """The member's identity, the members it asks to join or founds with, and the messages that wait to be sent.

    `returned`: messages that an exclusion returned and that are not sent again, until the application learns of them.
    """

    me: MemberId
    contacts: tuple[Name, ...]
    founders: tuple[Name, ...]
    pending: tuple[bytes, ...]
    returned: tuple[bytes, ...]


class Entered(NamedTuple):
    """A view begins; `decision` led to it."""

    view: View
    decision: Decide | None
    is_newcomer: bool
    """Is the application's state still to be fetched?"""


class Promised(NamedTuple):
    """The member follows no older ballot, and delivers nothing more in this view."""

    ballot: Ballot


class Adopted(NamedTuple):
    """A proposal was accepted."""

    ballot: Ballot
    proposal: Proposal


class Delivered(NamedTuple):
    """Data records, one after the other."""

    records: bytes


class Recovered(NamedTuple):
    """Data records, one after the other."""

    records: bytes


class Settled(NamedTuple):
    """The number of messages of each rank that are stable."""

    stable: Vector


class Pending(NamedTuple):
    """A payload that waits to be sent."""

    payload: bytes


class Knows(NamedTuple):
    """A name that may be in the group."""

    name: Name


class Restored(NamedTuple):
    """The application's state at the beginning of a view: the one in which this member joined, or a later one.

    It is `state`, or, if that is empty, the pieces that were written before.
    """

    view: int
    state: bytes


class StatePiece(NamedTuple):
    """A piece of the state for this member, in order; number 0 begins a new state."""

    number: int
    octets: bytes


class Kept(NamedTuple):
    """The state with which a view began, for the members that joined with it."""

    view: int
    state: bytes
    needed_by: tuple[MemberId, ...]


class Over(NamedTuple):
    """The member is out of the group, by this decision if it is known; `left`: of its own accord."""

    decision: Decide | None
    has_left: bool


class ExclusionReported(NamedTuple):
    """The application has learned of its last exclusion, and of the messages that it returned."""


class Checkpoint(NamedTuple):
    """All that matters of a member when its application gave a checkpoint."""

    me: MemberId
    names: tuple[Name, ...]
    view: View
    decision: Decide | None
    promised: Ballot
    accepted_ballot: Ballot
    accepted: Proposal | None
    delivered: Vector
    stable: Vector
    unstable: bytes
    """Data records of the messages that are delivered and not stable, in the order of delivery."""
    recovered: bytes
    pending: tuple[bytes, ...]
    snapshots: tuple[Kept, ...]
    state: bytes


Record = (
    Incarnation
    | Entered
    | Promised
    | Adopted
    | Delivered
    | Recovered
    | Settled
    | Pending
    | Knows
    | Restored
    | Kept
    | Over
    | Checkpoint
    | StatePiece
    | ExclusionReported
)

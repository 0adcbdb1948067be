"""What a member writes down, so that it can go on after a crash as if it had only been slow.

Each record is one step of the state that others rely on, or that the application was told. `durable.fold` reads them
back. The driver writes what `Persist` holds before it carries out anything else of the same call.

| record      | written when                                                                                        |
|-------------|-----------------------------------------------------------------------------------------------------|
| Life        | a member begins to be                                                                               |
| Asked       | it asks to be taken in                                                                              |
| Entered     | it goes over to a view                                                                              |
| Promised    | it follows a ballot; Adopted: it accepts a proposal                                                 |
| Data        | it multicasts a message, which is delivered at once, or a message of another member comes           |
| Delivered   | a message of another member is delivered                                                            |
| Settled     | more is known to be stable                                                                          |
| Waiting     | the application multicasts what cannot be sent yet                                                  |
| Leaving     | the application leaves                                                                              |
| Knows       | it hears of a name under which the group may be found                                               |
| Restore     | the state of the group is here                                                                      |
| Kept        | the application gave a snapshot for newcomers                                                       |
| Over        | it is no longer in the group                                                                        |
| Whole       | the application gave a checkpoint: everything from here on; what was written before may be deleted  |
"""

from __future__ import annotations

from typing import NamedTuple

from cubecast.core.membership.messages import Ballot, Data, Decide, Excluded, Left, Proposal, Restore, Vector
from cubecast.core.membership.views import MemberId, Name, View


class Life(NamedTuple):
    """Whose records these are."""

    me: MemberId


class Asked(NamedTuple):
    """The names of those who were asked to take this member in."""

    contacts: tuple[Name, ...]


class Entered(NamedTuple):
    """A view begins; `decision` led to it."""

    view: View
    decision: Decide | None
    is_newcomer: bool
    """Is the state of the group still to be fetched?"""


class Promised(NamedTuple):
    """No older ballot is followed, and nothing more is delivered in this view."""

    ballot: Ballot


class Adopted(NamedTuple):
    """A proposal was accepted."""

    ballot: Ballot
    proposal: Proposal


class Delivered(NamedTuple):
    """The next message of this rank was delivered."""

    sender: int


class Settled(NamedTuple):
    """So many messages of each rank are stable."""

    stable: Vector


class Waiting(NamedTuple):
    """A payload that waits to be sent."""

    payload: object


class Leaving(NamedTuple):
    """The application wants to leave."""


class Knows(NamedTuple):
    """A name that may be in the group."""

    name: Name


class Kept(NamedTuple):
    """The state with which a view began, for those who joined with it."""

    view: int
    octets: bytes
    needed_by: tuple[MemberId, ...]


class Over(NamedTuple):
    """Out of the group by this decision, if it is known; `end` is missing while the others are still told of it."""

    decision: Decide | None
    end: Left | Excluded | None


class Whole(NamedTuple):
    """All that matters of a member, at a moment at which its application gave a checkpoint."""

    me: MemberId
    acquaintances: tuple[Name, ...]
    view: View
    decision: Decide | None
    promised: Ballot
    accepted_ballot: Ballot
    accepted: Proposal | None
    delivered: Vector
    stable: Vector
    store: tuple[Data, ...]
    waiting: tuple[object, ...]
    is_leaving: bool
    snapshots: tuple[Kept, ...]
    checkpoint: bytes


Record = (
    Life
    | Asked
    | Entered
    | Promised
    | Adopted
    | Data
    | Delivered
    | Settled
    | Waiting
    | Leaving
    | Knows
    | Restore
    | Kept
    | Over
    | Whole
)

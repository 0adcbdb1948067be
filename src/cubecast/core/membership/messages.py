"""What members say to each other, and what a core asks its driver to do.

Every message names the view in which it was said. A ballot is (attempt, rank of the coordinator): no two coordinators
share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cubecast.core.membership.views import MemberId, View

if TYPE_CHECKING:
    from cubecast.core.membership.records import Record

Ballot = tuple[int, int]
NO_BALLOT: Ballot = (0, -1)
Vector = tuple[int, ...]
Aged = tuple[MemberId, int]
"""A member of whom something was true so many nanoseconds ago."""
ANY_LIFE = -1
"""`MemberId(name, ANY_LIFE)` is the address of whoever lives under that name."""


class Proposal(NamedTuple):
    """The view that is to follow, and how many messages of each rank of the old view are delivered before it."""

    view: View
    cut: Vector


class Data(NamedTuple):
    """A message of the application. `past` is what its sender had delivered when it sent it."""

    view: int
    sender: int
    number: int
    past: Vector
    payload: object


class Status(NamedTuple):
    """To the neighbours, every tick: a sign of life, how far this member is, and what it knows of the others."""

    view: int
    beats: Vector
    """The last sign of life of each rank that was heard of, as a number that grows every tick."""
    round: int
    counted: int
    """A bit for each rank, the first rank's the lowest."""
    minimum: Vector
    stable: Vector
    received: Vector
    delivered: Vector
    """Empty, unless slow members are looked for."""
    suspects: tuple[MemberId, ...]
    joins: tuple[Aged, ...]
    slow: tuple[Aged, ...]
    leavers: tuple[MemberId, ...]
    ready: int
    """A bit for each rank that has the state of the application."""
    asks: bool
    """Is an answer wanted also from those who are no neighbours?"""


class Join(NamedTuple):
    """Take me in."""

    who: MemberId


class Prepare(NamedTuple):
    """A coordinator asks for promises: deliver no more in this view, and follow no older ballot."""

    view: int
    ballot: Ballot


class Promise(NamedTuple):
    """The answer: how far this member is, and the proposal it accepted last, if any."""

    view: int
    ballot: Ballot
    delivered: Vector
    accepted_ballot: Ballot
    accepted: Proposal | None
    ready: bool
    leaving: bool


class Refusal(NamedTuple):
    """There is a newer ballot."""

    view: int
    ballot: Ballot


class Flush(NamedTuple):
    """Hold everything up to the cut; whoever lacks a message of rank s asks `sources[s]`."""

    view: int
    ballot: Ballot
    cut: Vector
    sources: tuple[MemberId, ...]


class Pull(NamedTuple):
    """Send me messages first … last of a rank."""

    view: int
    sender: int
    first: int
    last: int


class Flushed(NamedTuple):
    """I hold everything up to the cut."""

    view: int
    ballot: Ballot


class Accept(NamedTuple):
    """Every member that stays holds what it must: accept this view."""

    view: int
    ballot: Ballot
    proposal: Proposal


class Accepted(NamedTuple):
    """Done."""

    view: int
    ballot: Ballot


class Decide(NamedTuple):
    """A quorum accepted: this view follows."""

    view: int
    proposal: Proposal


class Gone(NamedTuple):
    """You are not in the group any more; it is at this view."""

    view: int


class AskState(NamedTuple):
    """Send me a piece of the state with which this view began."""

    view: int
    piece: int


class State(NamedTuple):
    """A piece of it, of so many."""

    view: int
    piece: int
    pieces: int
    octets: bytes


class NoState(NamedTuple):
    """I do not have it."""

    view: int


Message = (
    Data
    | Status
    | Join
    | Prepare
    | Promise
    | Refusal
    | Flush
    | Pull
    | Flushed
    | Accept
    | Accepted
    | Decide
    | Gone
    | AskState
    | State
    | NoState
)


class Send(NamedTuple):
    """Send a message to a member."""

    to: MemberId
    message: Message


class Deliver(NamedTuple):
    """Give the application a message."""

    view: int
    sender: MemberId
    number: int
    payload: object


class Sent(NamedTuple):
    """A message that the application multicast got its view and number; it is delivered next."""

    view: int
    number: int
    payload: object


class Install(NamedTuple):
    """The application is in this view now."""

    view: View
    pause_ns: int = 0
    """For how long this member delivered nothing because of the change."""


class WantSnapshot(NamedTuple):
    """Take the application's state now, before anything else, and hand it to `give_snapshot`."""

    view: int


class Restore(NamedTuple):
    """Begin with this state of the application."""

    view: int
    octets: bytes


class Progress(NamedTuple):
    """So many pieces of the state are here."""

    pieces: int
    of: int


class Stable(NamedTuple):
    """So many messages of each rank were delivered by every member of the view."""

    view: int
    delivered: Vector


class Blocked(NamedTuple):
    """Too few members are within reach: nothing is sent or delivered until they are."""

    view: int


class Unblocked(NamedTuple):
    """Enough members are within reach again."""

    view: int


class Behind(NamedTuple):
    """This member keeps so many messages from becoming stable."""

    who: MemberId
    messages: int


class Left(NamedTuple):
    """This member has left."""


class Excluded(NamedTuple):
    """The group goes on without this member. `returned` was multicast here and may not have reached the others."""

    reason: str
    returned: tuple[object, ...]
    certain: bool
    """Is it known that nobody in the group delivers what is returned?"""


class Persist(NamedTuple):
    """Write this down before anything else of the same call is carried out: it comes first, or not at all."""

    records: tuple[Record, ...]


Action = (
    Persist
    | Send
    | Deliver
    | Sent
    | Install
    | WantSnapshot
    | Restore
    | Progress
    | Stable
    | Blocked
    | Unblocked
    | Behind
    | Left
    | Excluded
)

"""The messages that members exchange about membership and state.

Every message names the view in which it was sent. A ballot is (attempt, rank of the coordinator): no two coordinators
share one.

| message                | from, to                         | meaning                                                  |
|------------------------|----------------------------------|----------------------------------------------------------|
| Join                   | newcomer, any member             | let me join                                              |
| ChangeReport           | member, likely coordinators      | whom it suspects, who wants to join, whether it leaves   |
| Probe, Present         | coordinator and member           | are you up? sent before PREPARE                          |
| RoundTrips             | member, coordinator              | round-trip times of its links: ranks may depend on them  |
| Prepare, Promise       | coordinator and member           | Paxos, and: deliver no more; delivered so far            |
| Flush, Flushed         | coordinator and member           | hold everything up to the cut                            |
| Pull, Missing          | member and source                | the messages it lacks up to the cut, in causal order     |
| Accept, Accepted       | coordinator and member           | Paxos                                                    |
| Refusal                | member, coordinator              | there is a newer ballot                                  |
| Decide                 | any member, any member           | this view follows                                        |
| Gone                   | member, past member              | the group continues without you                          |
| AskState, State        | newcomer and holder              | pieces of the application's state                        |
| NoState                | holder, newcomer                 | ask another member                                       |
| Ready                  | newcomer, all members            | it has the state                                         |
| AskLevel, LevelReached | sender and member                | report when you have processed, or written, a message    |
"""

from __future__ import annotations

from typing import NamedTuple

from cubecast.protocols.membership.views import (
    MemberId,
    Vector,
    View,
    ViewId,
)

Ballot = tuple[int, int]
NO_BALLOT: Ballot = (0, -1)
ANY_INCARNATION = -1
"""`MemberId(name, ANY_INCARNATION)` addresses the process of that name, whatever its incarnation."""


class Proposal(NamedTuple):
    """A proposed next view, and how many messages of each rank of the old view are delivered before it."""

    view: View
    cut: Vector


class Join(NamedTuple):
    """Let me join."""

    view: ViewId
    who: MemberId


class ChangeReport(NamedTuple):
    """What a member reports to the members that may coordinate the next change."""

    view: ViewId
    suspects: int
    """A bit for each rank that it suspects; the lowest bit is the first rank's."""
    behind: int
    """A bit for each rank that delays the stability of too many messages."""
    joins: tuple[MemberId, ...]
    leaves: bool
    renews: bool
    """Does it need a new view because one of its links cannot be resumed?"""


class Probe(NamedTuple):
    """A coordinator is about to change the view: are you up?"""

    view: ViewId


class Present(NamedTuple):
    """Yes."""

    view: ViewId


class RoundTrips(NamedTuple):
    """The round-trip times of this member's links in microseconds, by rank; 0 where it measured none."""

    view: ViewId
    microseconds: Vector


class Prepare(NamedTuple):
    """A coordinator asks for promises: deliver no more in this view, and follow no older ballot."""

    view: ViewId
    ballot: Ballot


class Promise(NamedTuple):
    """The answer: what this member delivered, and the proposal it accepted last, if any."""

    view: ViewId
    ballot: Ballot
    delivered: Vector
    accepted_ballot: Ballot
    accepted: Proposal | None
    who: MemberId
    """The member itself: founders learn each other's incarnations from it."""
    ready: bool
    leaves: bool


class Refusal(NamedTuple):
    """There is a newer ballot."""

    view: ViewId
    ballot: Ballot


class Flush(NamedTuple):
    """Hold everything up to the cut; a member that lacks a message of rank s pulls it from rank `sources[s]`."""

    view: ViewId
    ballot: Ballot
    cut: Vector
    sources: Vector


class Pull(NamedTuple):
    """Send the messages between these and the cut, in the order in which you delivered them."""

    view: ViewId
    ballot: Ballot
    delivered: Vector
    cut: Vector


class Missing(NamedTuple):
    """Records of messages, one after the other."""

    view: ViewId
    records: bytes


class Flushed(NamedTuple):
    """I hold everything up to the cut."""

    view: ViewId
    ballot: Ballot


class Accept(NamedTuple):
    """Every member that stays holds everything up to the cut: accept this view."""

    view: ViewId
    ballot: Ballot
    proposal: Proposal


class Accepted(NamedTuple):
    """Done."""

    view: ViewId
    ballot: Ballot


class Decide(NamedTuple):
    """A quorum accepted: this view follows."""

    view: ViewId
    proposal: Proposal


class Gone(NamedTuple):
    """You are no longer in the group; this is its current view."""

    view: ViewId


class AskState(NamedTuple):
    """Send pieces `first` … `first + pieces − 1` of the state with which this view began."""

    view: ViewId
    first: int
    pieces: int


class State(NamedTuple):
    """A piece of the state, and the number of pieces."""

    view: ViewId
    piece: int
    pieces: int
    octets: bytes


class NoState(NamedTuple):
    """I do not have the state (yet)."""

    view: ViewId


class Ready(NamedTuple):
    """This member has the state of the application."""

    view: ViewId


class AskLevel(NamedTuple):
    """Answer when this member has reached `number` of my messages at this level (`member.levels`)."""

    view: ViewId
    level: int
    number: int


class LevelReached(NamedTuple):
    """It has."""

    view: ViewId
    level: int
    number: int


Message = (
    Join
    | ChangeReport
    | Prepare
    | Promise
    | Refusal
    | Flush
    | Pull
    | Missing
    | Flushed
    | Accept
    | Accepted
    | Decide
    | Gone
    | AskState
    | State
    | NoState
    | Ready
    | Probe
    | Present
    | AskLevel
    | LevelReached
    | RoundTrips
)


def proposal_in(message: Message) -> Proposal | None:
    """The proposal that a message carries, or None."""
    if isinstance(message, Accept | Decide):
        return message.proposal
    return message.accepted if isinstance(message, Promise) else None

"""A member's part in agreeing on the next view: promise, flush, accept (Paxos, one decree per view).

The members of a view are the acceptors of the next one. A promise also *freezes* the member: it delivers nothing more
in this view until a decision sets the cut (virtual synchrony requires that no member delivers what the cut does not
cover). The freeze lasts beyond the ballot that caused it.

| field           | meaning                                                              |
|-----------------|----------------------------------------------------------------------|
| promised        | the newest ballot this member follows                                |
| accepted        | the proposal it accepted last, and the ballot                        |
| flush           | the flush in progress: cut and sources, until it is answered         |
| moved_ns        | when the change last made progress here                              |
"""

from __future__ import annotations

from cubecast.protocols.membership.messages import (
    NO_BALLOT,
    Accept,
    Ballot,
    Flush,
    Prepare,
    Proposal,
)


class Acceptor:
    """One member's state in the agreement on what follows one view."""

    def __init__(self) -> None:
        """Nothing promised."""
        self.promised: Ballot = NO_BALLOT
        self.accepted_ballot: Ballot = NO_BALLOT
        self.accepted: Proposal | None = None
        self.flush: Flush | None = None
        self.moved_ns = 0

    @property
    def is_frozen(self) -> bool:
        """Has this member promised to deliver nothing more in this view?"""
        return self.promised > NO_BALLOT

    def promises(self, message: Prepare, now_ns: int) -> bool:
        """Follow this ballot, unless a newer one is followed."""
        if message.ballot < self.promised:
            return False
        if message.ballot > self.promised:
            self.moved_ns = now_ns
            self.flush = None
        self.promised = message.ballot
        return True

    def flushes(self, message: Flush, now_ns: int) -> bool:
        """Begin to pull the missing messages up to the cut."""
        if message.ballot != self.promised:
            return False
        if self.flush is None:
            self.moved_ns = now_ns
        self.flush = message
        return True

    def accepts(self, message: Accept, now_ns: int) -> bool:
        """Accept the proposal, unless a newer ballot is followed."""
        if message.ballot < self.promised:
            return False
        if message.ballot != self.accepted_ballot:
            self.moved_ns = now_ns
        self.promised = message.ballot
        self.accepted_ballot = message.ballot
        self.accepted = message.proposal
        self.flush = None
        return True

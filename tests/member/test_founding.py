"""The promises of a founder bind it in every incarnation: otherwise two majorities could found two groups."""

from __future__ import annotations

from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import Accept, Proposal
from cubecast.protocols.membership.views import NO_VIEW, MemberId, founding_view
from cubecast.wire.records import decode_records

NAMES = ("10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000")


def test_a_founder_that_begins_another_incarnation_keeps_what_it_accepted() -> None:
    """It accepted a founding view, the others continued without it, and one of them reports so."""
    member = Member(
        "g", NAMES[1], Settings(), incarnation=5, session=1, is_durable=True, makes_snapshots=True, trace=None
    )
    member.form(NAMES, now_ns=1)
    proposal = Proposal(founding_view([MemberId(NAMES[0], 4), member.me], "g"), ())
    member._members.handle(MemberId(NAMES[0], 0), Accept(NO_VIEW, (1, 0), proposal), 2)
    member.take_effects()
    member.refused_as_past(NAMES[0], 5)
    assert member.me.incarnation > 5
    assert member._members.acceptor.accepted == proposal
    written = decode_records([b"".join(member.take_effects().persist)])
    assert r.Adopted((1, 0), proposal) in written

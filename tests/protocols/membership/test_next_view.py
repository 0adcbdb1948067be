"""Whole members receive changes of a view that they are not in."""

from __future__ import annotations

from typing import Any

from cubecast.member.in_view import LINGER
from cubecast.member.member import Member
from cubecast.protocols.membership.messages import Accept, Decide, Proposal
from cubecast.protocols.membership.views import View, next_view
from cubecast.wire.frame import HEADER_BYTES
from cubecast.wire.membership import KINDS, Elsewhere, decode_message, encode_message
from tests.member.network import NAMES, Network

MS_MAX = 2000


def until(network: Network, is_done: Any) -> None:
    """Small steps of time, until something holds."""
    for _ in range(MS_MAX * 20):
        if is_done():
            return
        network.run(0.05)
    raise AssertionError(f"not within {MS_MAX} ms: {network.describe()}")


# Messages of a view that the reader is not in.


def hears(member: Member, name: str, body: bytes) -> list[str]:
    """Let a member read a message of another one; the kinds of messages that it answers."""
    link = member.links.links[name]
    before = len(link._unacknowledged)
    member._membership_arrived(link, body, member.now())
    return [list(KINDS)[data[HEADER_BYTES]].__name__ for data in list(link._unacknowledged)[before:]]


def changed_group() -> tuple[Network, list[str], View]:
    """Three members that had a fourth one in the view before, and that view."""
    network = Network()
    names = network.form(4)
    before = network.member(names[0]).view
    assert before is not None
    network.leave(names[3])
    network.settle(*names[:3])
    network.run(100)
    return network, names, before


def said_before(before: View) -> tuple[bytes, bytes]:
    """Accept and decision of the view before, as a change of it."""
    cut = (0,) * len(before.members)
    proposal = Proposal(next_view(before, before.members[:3], [], cut), cut)
    messages = (Accept(before.id, (1, 0), proposal), Decide(before.id, proposal))
    accept, decide = (encode_message(message, before) for message in messages)
    assert decode_message(accept) == Elsewhere(Accept, before.id)
    return accept, decide


def test_a_member_of_the_last_view_gets_the_decision_and_a_late_decision_is_ignored() -> None:
    network, names, before = changed_group()
    member = network.member(names[1])
    accept, decide = said_before(before)
    assert hears(member, names[0], accept) == ["Decide", "Ready"]
    assert hears(member, names[0], decide) == []
    assert member.view is not None
    assert member.view.number == before.number + 1


def test_two_that_linger_do_not_answer_each_others_decisions_for_ever() -> None:
    network, names, before = changed_group()
    member = network.member(names[2])
    network.leave(names[2])
    until(network, lambda: member.state == LINGER)
    accept, decide = said_before(before)
    assert hears(member, names[0], accept) == ["Decide"]
    assert hears(member, names[0], decide) == []


def test_a_process_that_joins_cannot_read_a_change_and_waits_for_the_whole_view() -> None:
    network, names, before = changed_group()
    joiner = network.start(NAMES[4], contacts=[names[0]])
    until(network, lambda: names[0] in joiner.links.links and joiner.links.links[names[0]].is_up)
    assert joiner.view is None
    accept, decide = said_before(before)
    assert hears(joiner, names[0], accept) == hears(joiner, names[0], decide) == []
    network.settle(*names[:3], NAMES[4])

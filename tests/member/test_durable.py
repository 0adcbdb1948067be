"""A member's state, read back from the records of its journal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubecast.errors import JournalError
from cubecast.member.durable import Durable, read_back
from cubecast.member.effects import Delivery, SnapshotWanted, ViewChange
from cubecast.member.in_view import IN_VIEW
from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import NO_BALLOT, Decide, Proposal
from cubecast.protocols.membership.views import (
    MemberId,
    View,
    founding_view,
    next_view,
)
from cubecast.wire.data import encode_record as encode_data
from cubecast.wire.data import payload_of
from cubecast.wire.records import KINDS, encode_record
from tests.member.logs import unstable
from tests.member.network import NAMES, SETTINGS, Network, Process

ME, YOU, NEW = MemberId("a:1", 3), MemberId("b:1", 4), MemberId("c:1", 5)
FOUNDING = founding_view([ME, YOU], "g")
STAR = replace(SETTINGS, data="star")
BEGIN: list[r.Record] = [r.Incarnation(ME, ("x:1",), ("a:1", "b:1"), (b"early",), ())]
IN_FIRST: list[r.Record] = [*BEGIN, r.Entered(FOUNDING, None, is_newcomer=False)]


def message(rank: int, sequence: int) -> bytes:
    return encode_data(0, rank, sequence, f"{rank}:{sequence}".encode())


def back(*records: r.Record) -> Durable:
    return read_back([b"".join(map(encode_record, records))], STAR)


def second(cut: tuple[int, ...] = (0, 0)) -> tuple[View, Decide]:
    """The view after the founding one, with a newcomer."""
    view = next_view(FOUNDING, [ME, YOU], [NEW], cut)
    return view, Decide(FOUNDING.id, Proposal(view, cut))


def test_every_kind_of_record_can_be_read_back() -> None:
    for kind in KINDS:
        assert hasattr(Durable(ME, STAR), f"_{kind.__name__.lower()}"), kind


def test_an_incarnation_makes_everything_before_it_obsolete() -> None:
    later = MemberId("a:1", 9)
    durable = back(*IN_FIRST, r.Incarnation(later, (), (), (b"again",), ()))
    assert (durable.me, durable.view, list(durable.pending)) == (later, None, [b"again"])
    assert durable.replay == []


def test_names_under_which_the_group_may_be_found_are_kept() -> None:
    durable = back(*IN_FIRST, r.Knows("d:1"))
    assert durable.names == {"x:1", "b:1", "d:1"}
    assert (durable.contacts, durable.founders) == (("x:1",), ("a:1", "b:1"))


def test_a_view_is_entered_with_an_empty_log_and_no_promise() -> None:
    view, decision = second((1, 0))
    durable = back(
        *IN_FIRST, r.Delivered(message(0, 1)), r.Promised((1, 0)), r.Entered(view, decision, is_newcomer=False)
    )
    assert durable.view == view
    assert durable.decision == decision
    assert durable.log.delivered() == (0, 0, 0)
    assert durable.acceptor.promised == NO_BALLOT
    assert durable.expected == {2: (NEW,)}
    assert durable.replay == [
        ViewChange(view=FOUNDING, pause_s=0.0),
        Delivery(ME, 1, 1, message(0, 1)),
        SnapshotWanted(2),
        ViewChange(view=view, pause_s=0.0),
    ]


def test_sequence_numbers_continue_over_views() -> None:
    view, decision = second((7, 0))
    durable = back(*BEGIN, r.Entered(view, decision, is_newcomer=False), r.Delivered(message(0, 1)))
    assert durable.replay[-1] == Delivery(ME, 2, 8, message(0, 1))


def test_a_newcomer_waits_for_the_state_of_the_view_it_came_with() -> None:
    view, decision = second()
    records = [*BEGIN, r.Entered(view, decision, is_newcomer=True), r.Delivered(message(1, 1))]
    durable = back(*records)
    assert durable.joined == view
    assert durable.expected == {}
    durable = back(*records, r.Restored(2, b"state"))
    assert (durable.joined, durable.checkpoint) == (None, b"state")
    assert durable.replay == [ViewChange(view=view, pause_s=0.0), Delivery(YOU, 2, 1, message(1, 1))]


def test_a_state_of_a_later_view_replaces_what_came_before_that_view() -> None:
    first, decision = second()
    later = next_view(first, first.members, [], (0, 1, 0))
    durable = back(
        *BEGIN,
        r.Entered(first, decision, is_newcomer=True),
        r.Delivered(message(1, 1)),
        r.Entered(later, Decide(first.id, Proposal(later, (0, 1, 0))), is_newcomer=False),
        r.Delivered(message(1, 1)),
        r.Restored(3, b"later state"),
    )
    assert durable.replay == [ViewChange(view=later, pause_s=0.0), Delivery(YOU, 3, 2, message(1, 1))]


def test_promises_and_accepted_proposals_are_kept() -> None:
    view, decision = second()
    durable = back(*IN_FIRST, r.Promised((1, 1)), r.Adopted((2, 0), decision.proposal), r.Promised((3, 1)))
    assert durable.acceptor.promised == (3, 1)
    assert durable.acceptor.accepted_ballot == (2, 0)
    assert durable.acceptor.accepted == Proposal(view, (0, 0))


def test_delivered_messages_are_held_until_they_are_stable() -> None:
    durable = back(*IN_FIRST, r.Delivered(message(0, 1) + message(1, 1)), r.Settled((1, 0)))
    assert durable.log.delivered() == (1, 1)
    assert durable.log.stable == [1, 0]
    assert unstable(durable.log) == [message(1, 1)]


def test_an_own_message_that_is_delivered_waits_no_more() -> None:
    durable = back(*IN_FIRST, r.Pending(b"late"), r.Delivered(message(0, 1)))
    assert list(durable.pending) == [b"late"]


def test_recovered_messages_are_delivered_when_the_view_is_installed() -> None:
    view, decision = second((0, 2))
    records = [*IN_FIRST, r.Delivered(message(1, 1)), r.Promised((1, 1)), r.Recovered(message(1, 2) + message(1, 3))]
    durable = back(*records)
    assert list(durable.log.recovered.values()) == [message(1, 2), message(1, 3)]
    assert sum(isinstance(entry, Delivery) for entry in durable.replay) == 1
    durable = back(*records, r.Entered(view, decision, is_newcomer=False))
    delivered = [entry.sequence for entry in durable.replay if isinstance(entry, Delivery)]
    assert delivered == [1, 2], "what lies beyond the cut is dropped"


def test_how_it_went_out_is_kept() -> None:
    _, decision = second()
    durable = back(*IN_FIRST, r.Over(decision, has_left=True))
    assert durable.over == r.Over(decision, has_left=True)
    assert durable.decision == decision


def test_a_snapshot_for_newcomers_is_kept() -> None:
    durable = back(*IN_FIRST, r.Kept(2, b"state", (NEW,)))
    assert durable.snapshots == {2: b"state"}
    assert durable.expected == {2: (NEW,)}


def checkpoint(**change: Any) -> r.Checkpoint:
    whole = r.Checkpoint(
        me=ME,
        names=("b:1", "d:1"),
        view=FOUNDING,
        decision=None,
        promised=(2, 1),
        accepted_ballot=NO_BALLOT,
        accepted=None,
        delivered=(2, 5),
        stable=(1, 4),
        unstable=message(1, 5) + message(0, 2),
        recovered=message(1, 6),
        pending=(b"p",),
        snapshots=(r.Kept(1, b"s", (YOU,)),),
        state=b"application",
    )
    return whole._replace(**change)


def test_a_checkpoint_makes_everything_before_it_obsolete() -> None:
    durable = back(*IN_FIRST, r.Pending(b"old"), checkpoint())
    assert durable.view == FOUNDING
    assert durable.log.delivered() == (2, 5)
    assert durable.log.stable == [1, 4]
    assert unstable(durable.log) == [message(1, 5), message(0, 2)]
    assert list(durable.log.recovered.values()) == [message(1, 6)]
    assert durable.acceptor.promised == (2, 1)
    assert list(durable.pending) == [b"p"]
    assert durable.snapshots == {1: b"s"}
    assert durable.checkpoint == b"application"
    assert not any(isinstance(entry, Delivery) for entry in durable.replay)
    assert durable.names == {"b:1", "d:1"}


def test_a_checkpoint_that_does_not_hold_what_it_says_is_refused() -> None:
    with pytest.raises(JournalError, match="does not hold what it says was delivered"):
        back(checkpoint(delivered=(2, 9)))


@pytest.mark.parametrize("records", [[], [r.Entered(FOUNDING, None, is_newcomer=False), *BEGIN]])
def test_a_journal_without_its_beginning_is_refused(records: list[r.Record]) -> None:
    with pytest.raises(JournalError, match="not with an incarnation or a checkpoint: it is incomplete"):
        read_back([b"".join(map(encode_record, records))], STAR)


@pytest.mark.parametrize(
    "other",
    [replace(STAR, data="timestamp"), replace(STAR, data="causal_plumtree"), replace(STAR, payload_bytes_max=1)],
)
def test_a_journal_of_other_settings_is_refused_with_the_settings_named(other: Settings) -> None:
    journal = [b"".join(map(encode_record, [*IN_FIRST, r.Delivered(message(0, 1))]))]
    with pytest.raises(JournalError, match="use the settings it was written with"):
        read_back(journal, other)


# Whole members: what a journal says is where the member is.


def own_payloads(member: Member) -> list[bytes]:
    return [outgoing.payload for outgoing in (*member.own.sent, *member.own.waiting)]


def require_same(process: Process) -> None:
    """The journal says the same as the member."""
    member = process.member
    durable = read_back(process.journal, member.settings)
    assert durable.me == member.me
    if member.state != IN_VIEW or durable.over is not None:
        return
    agreement = member._members
    view = durable.view
    assert view is not None
    assert view == agreement.view == member.view
    assert durable.decision == agreement.last_decision
    assert durable.names <= member.names, "the call of a restart may name more"
    assert durable.acceptor.promised == agreement.acceptor.promised
    assert durable.acceptor.accepted_ballot == agreement.acceptor.accepted_ballot
    assert durable.acceptor.accepted == agreement.acceptor.accepted
    assert durable.log.delivered() == member.log.delivered()
    assert durable.log.stable == member.log.stable
    assert unstable(durable.log) == unstable(member.log)
    assert durable.log.recovered == member.log.recovered
    assert (durable.joined is None) == member.is_ready
    rank = view.members.index(durable.me)
    own = durable.log.in_order(
        [durable.log.stable[rank] if other == rank else 1 << 32 for other in range(len(view.members))],
        durable.log.delivered(),
    )
    assert [payload_of(record) for record in own] + list(durable.pending) == own_payloads(member)


def replayed(durable: Durable) -> list[bytes]:
    """The application's state after a restart from this."""
    state = durable.checkpoint.split(b"\n") if durable.checkpoint else []
    return state + [entry.payload for entry in durable.replay if isinstance(entry, Delivery)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("multicast"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("run"), st.just(0), st.sampled_from([1, 1, 5, 30, 400, 1500])),
        st.tuples(st.just("cut"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("heal"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 3), st.sampled_from([0, 20, 1000])),
        st.tuples(st.just("join"), st.just(3), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("checkpoint"), st.integers(0, 3), st.just(0)),
    ),
    max_size=14,
)


@given(st.integers(1, 3), STEPS, st.integers(0, 1 << 20))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_the_journal_always_says_where_the_member_is(
    founders: int, steps: list[tuple[str, int, int]], seed: int
) -> None:
    network = Network(seed=seed, jitter_ns=500_000)
    small = replace(SETTINGS, journal_bytes=1)
    options: dict[str, Any] = {"durable": True, "snapshots": True, "settings": small}
    names = NAMES[:founders]
    for name in names:
        network.start(name, founders=names if founders > 1 else (), **options)
    network.run(100)
    for number, (step, place, value) in enumerate(steps):
        take_step(network, step, NAMES[place], value, number, options)
        for process in network.processes.values():
            require_same(process)
    for process in network.processes.values():
        if process.member.phase == "member" and not process.untaken:
            durable = read_back(process.journal, small)
            assert replayed(durable) == process.application.state


def take_step(network: Network, step: str, name: str, value: int, number: int, options: dict[str, Any]) -> None:
    """One step of a random history."""
    process = network.processes.get(name)
    if step == "run":
        network.run(value)
    elif step == "heal":
        network.heal()
    elif step == "join":
        if process is None:
            network.start(name, contacts=NAMES[:3], **options)
    elif process is None:
        return
    elif step == "multicast":
        if not process.member.leaving and process.member.phase != "out":
            network.multicast(name, *(f"{name} {number} {count}".encode() for count in range(value)))
    elif step == "cut":
        network.cut([name], [other for other in NAMES[:4] if other != name])
    elif step == "restart":
        if process.member.phase != "out":
            network.kill(name)
            network.run(value)
            network.start(name, contacts=NAMES[:3], **options)
    elif step == "leave":
        network.leave(name)
    elif not process.untaken:
        state = b"\n".join(process.application.state)
        network.call(name, lambda member: member.checkpoint(state, network.now_ns))

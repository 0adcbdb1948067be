"""Large states: handed over in slices, written piece by piece, and checkpoints that an application has overtaken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cubecast.member import in_view
from cubecast.member.durable import read_back
from cubecast.member.effects import Delivery, Effects, StateArrived
from cubecast.member.in_transfer import GATE_SLICE
from cubecast.member.member import Member
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import Proposal
from cubecast.protocols.membership.views import MemberId, founding_view, next_view
from cubecast.wire.records import decode_records, encode_record
from tests.member.network import NAMES, SETTINGS, Network, Process
from tests.member.test_member import numbered

A, B, C, D = NAMES[:4]
SMALL = replace(SETTINGS, journal_bytes=1000)


def checkpoint(network: Network, name: str) -> None:
    """The application of a member gives its state, with what the driver has not handed to it yet."""
    process = network.processes[name]
    state = b"\n".join(process.application.state)
    network.call(name, lambda member: member.checkpoint(state, network.now_ns, list(process.untaken)))


def records_of(process: Process) -> list[r.Record]:
    return decode_records(process.journal)


def test_what_the_application_has_not_been_given_follows_its_checkpoint() -> None:
    """Own messages and others', stable ones and not."""
    network = Network()
    names = network.form(3, durable=True, snapshots=True, settings=SMALL)
    network.multicast(A, *numbered("before", 20))
    network.settle(*names)
    network.app(C).is_slow = True
    network.multicast(A, *numbered("stable", 5))
    network.multicast(C, *numbered("own", 5))
    network.run(2000)
    network.cut([C], [A, B])
    network.multicast(C, b"not stable")
    network.run(1)
    assert len(network.processes[C].untaken) == 11
    checkpoint(network, C)
    assert isinstance(records_of(network.processes[C])[0], r.Checkpoint)
    assert not network.app(C).state[20:]
    network.kill(C)
    network.heal()
    network.start(C, durable=True, snapshots=True, settings=SMALL)
    network.settle(*names)
    expected = {*numbered("before", 20), *numbered("stable", 5), *numbered("own", 5), b"not stable"}
    for name in names:
        assert set(network.app(name).state) == expected
        assert len(network.app(name).state) == len(expected)


def test_no_checkpoint_before_the_application_was_given_the_view() -> None:
    network = Network()
    names = network.form(3, durable=True, snapshots=True, settings=SMALL)
    network.multicast(A, *numbered("before", 20))
    network.settle(*names)
    network.app(A).is_slow = True
    network.kill(C)
    network.run_until(lambda: network.in_one_view([A, B]))
    assert network.processes[A].untaken
    checkpoint(network, A)
    assert not isinstance(records_of(network.processes[A])[0], r.Checkpoint)


def test_what_waits_to_be_sent_is_in_the_journal_although_a_checkpoint_has_it() -> None:
    """The checkpoint may take the place of the journal much later, or never."""
    network = Network()
    names = network.form(3, durable=True, snapshots=True, settings=SMALL)
    network.multicast(A, *numbered("before", 20))
    network.settle(*names)
    network.cut([A], [B, C])
    network.run_until(lambda: network.member(A).is_blocked)
    member, seen = network.member(A), Effects()
    member.multicast(b"waiting", network.now_ns)
    member.checkpoint(b"", network.now_ns)
    seen = member.take_effects()
    assert seen.checkpoint
    covered = decode_records([b"".join(seen.persist[: seen.covered])])
    assert [record.payload for record in covered if isinstance(record, r.Pending)] == [b"waiting"]
    held = decode_records([b"".join(seen.checkpoint)])[0]
    assert isinstance(held, r.Checkpoint)
    assert held.pending == (b"waiting",)


@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshot", "history"])
def test_a_state_is_written_as_it_arrives_and_is_there_after_a_kill(snapshots: bool) -> None:
    """No record holds all of it, so none takes long to write."""
    network = Network()
    settings = replace(SETTINGS, piece_bytes=100, keep="none" if snapshots else "all")
    names = network.form(3, settings=settings, snapshots=snapshots)
    for batch in range(20):
        network.multicast(A, *[f"{batch} {number} ".encode() * 40 for number in range(100)])
        network.run(50)
    network.settle(*names)
    largest = 0

    def look(process: Process, effects: Effects) -> None:
        nonlocal largest
        if process is network.processes.get(D):
            largest = max([largest, *map(len, effects.persist)])

    network.on_effects = look
    network.start(D, contacts=[A], settings=settings, snapshots=snapshots, durable=True)
    network.settle(*NAMES[:4])
    state = list(network.app(A).state)
    assert sum(map(len, state)) > 300_000
    assert largest < 150_000
    network.kill(D)
    network.start(D, settings=settings, snapshots=snapshots, durable=True)
    network.settle(*NAMES[:4])
    assert network.app(D).state == state


def test_what_waited_for_the_state_is_handed_over_in_slices() -> None:
    network = Network()
    settings = replace(SETTINGS, piece_bytes=1, window_messages=5 * GATE_SLICE)
    names = network.form(3, settings=settings, snapshots=True)
    network.multicast(B, bytes(2000))
    network.settle(*names)
    slices: list[int] = []

    def look(process: Process, effects: Effects) -> None:
        if process is network.processes.get(D):
            slices.append(sum(isinstance(entry, Delivery) for entry in effects.entries))

    network.start(D, contacts=[B], settings=settings, snapshots=True)
    network.run_until(lambda: len(network.app(D).heard("progress")) > 20)
    sent = numbered("meanwhile", 3 * GATE_SLICE)
    network.multicast(A, *sent)
    network.on_effects = look
    network.settle(*NAMES[:4])
    assert network.app(D).state == network.app(A).state
    assert network.app(D).payloads == sent, "they waited for the state"
    assert isinstance(network.app(D).entries[0], StateArrived)
    assert max(slices) <= GATE_SLICE


def with_a_newcomer_that_hands_over() -> Network:
    """Member D has the state, and has given its application some of the messages that waited for it, but not all."""
    network = Network()
    settings = replace(SETTINGS, piece_bytes=1, window_messages=5 * GATE_SLICE)
    names = network.form(3, settings=settings, snapshots=True)
    network.multicast(B, bytes(2000))
    network.settle(*names)
    network.start(D, contacts=[B], settings=settings, snapshots=True)
    network.run_until(lambda: len(network.app(D).heard("progress")) > 20)
    network.multicast(A, *numbered("meanwhile", 3 * GATE_SLICE))
    network.run_until(lambda: bool(network.app(D).payloads))
    assert not network.member(D).is_ready
    return network


def test_a_member_that_leaves_hands_over_what_still_waited() -> None:
    network = with_a_newcomer_that_hands_over()
    member = network.member(D)
    member._pass_gate = lambda: None  # type: ignore[method-assign]
    network.call(D, lambda member: member.leave(network.now_ns))
    network.run_until(lambda: member.phase == "out")
    assert network.app(D).payloads == numbered("meanwhile", 3 * GATE_SLICE)


class Order:
    """A trace that keeps the order of deliveries and other events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def note(self, now_ns: int, me: MemberId, event: str, **data: Any) -> None:  # noqa: ARG002
        self.events.append(event)

    def deliveries(self, now_ns: int, me: MemberId, senders: list[MemberId], sequences: list[int]) -> None:  # noqa: ARG002
        self.events += ["deliver"] * len(senders)


def test_a_member_that_is_excluded_hands_over_what_still_waited_before_it_says_so() -> None:
    network = with_a_newcomer_that_hands_over()
    member = network.member(D)
    order = member._trace = Order()
    view = member._members.view
    cut = tuple(member.log.delivered())
    others = [who for who in view.members if who != member.me]
    member._leave_view(Proposal(next_view(view, others, (), cut), cut))
    assert order.events.count("deliver") > GATE_SLICE
    assert order.events.index("excluded") > len(order.events) - 1 - order.events[::-1].index("deliver")


def test_pieces_of_a_state_that_was_begun_again_are_not_mixed() -> None:
    """The member that gave the first pieces is gone, or this one was killed in the midst of them."""
    me, you = MemberId("a:1", 1), MemberId("b:1", 2)
    first = founding_view([you], "g")
    view = next_view(first, [you], [me], (0,))
    begun: list[r.Record] = [r.StatePiece(0, b"old "), r.StatePiece(1, b"state")]
    again: list[r.Record] = [r.StatePiece(0, b"new "), r.StatePiece(1, b"one")]
    journal: list[r.Record] = [
        r.Incarnation(me, (), (), (), ()),
        r.Entered(view, None, is_newcomer=True),
        *begun,
        *again,
    ]
    found = read_back([b"".join(map(encode_record, [*journal, r.Restored(view.number, b"")]))], SETTINGS)
    assert found.checkpoint == b"new one"
    assert read_back([b"".join(map(encode_record, journal))], SETTINGS).joined == view


def test_what_was_not_accepted_while_the_state_came_is_accepted_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state is that of a later view: everything that waited is in it, so the application takes nothing."""
    monkeypatch.setattr(in_view, "GATE_BYTES", 1000)
    network = Network()
    settings = replace(SETTINGS, window_messages=50)
    names = network.form(3, settings=settings, snapshots=True)
    network.multicast(B, b"before")
    network.settle(*names)
    for name in names:
        member = network.member(name)
        give = member.give_snapshot

        def fail_once(view: int, state: bytes, now_ns: int, member: Member = member, give: Any = give) -> None:
            if view == 2:
                member.snapshot_failed(view, now_ns)
            else:
                give(view, state, now_ns)

        member.give_snapshot = fail_once  # type: ignore[method-assign]
    network.start(D, contacts=[B], settings=settings, snapshots=True)
    network.run_until(lambda: network.member(D).phase == "fetching")
    network.multicast(A, bytes(2000))
    network.run_until(lambda: network.member(D)._members.view.number == 3)
    network.multicast(A, b"after")
    network.settle(*NAMES[:4])
    assert network.app(D).payloads == [b"after"]

"""Senders that share sequences (guo ch. 7), line by line: submit, number, multicast; what loss and reordering do."""

from __future__ import annotations

from typing import Any

from cubecast.protocols.catalogue import transport_named
from tests.transcripts.exchange import Exchange

WAIT_NS = 1000


def exchange(members: int = 3, sequences: int = 1, **settings: Any) -> Exchange:
    return Exchange(transport_named("sequenced"), members=members, senders=sequences, **settings)


def lossy(members: int = 3, sequences: int = 1) -> Exchange:
    return exchange(members, sequences, repeat_ns=WAIT_NS)


def test_the_sequencer_numbers_the_messages_of_all() -> None:
    talk = exchange()
    talk.publish(2)
    talk.publish(0)
    talk.publish(1)
    talk.deliver_all()
    talk.says(
        """
        2 → 0: SUBMIT 0.1
        0 delivers 0.1
        0 → all: DATA 0.1
        1 → 0: SUBMIT 0.1
        0 delivers 0.2
        0 → all: DATA 0.2
        1 delivers 0.1
        2 delivers 0.1
        0 delivers 0.3
        0 → all: DATA 0.3
        1 delivers 0.2
        2 delivers 0.2
        1 delivers 0.3
        2 delivers 0.3
        """
    )


def test_every_sender_has_one_sequencer() -> None:
    """With two sequences the odd ranks submit to member 1, the even ones to member 0."""
    talk = exchange(members=5, sequences=2)
    for rank in (4, 3, 2):
        talk.publish(rank)
    talk.says(
        """
        4 → 0: SUBMIT 0.1
        3 → 1: SUBMIT 1.1
        2 → 0: SUBMIT 0.1
        """
    )
    talk.deliver_all()
    assert talk.received() == [[2, 1]] * 5


def test_a_submission_that_is_lost_comes_again_until_it_is_accepted() -> None:
    talk = lossy()
    talk.publish(2)
    talk.lose(source=2)
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    talk.says("2 → 0: SUBMIT 0.1")
    talk.deliver(source=2)
    talk.says(
        """
        0 delivers 0.1
        0 → all: DATA 0.1
        0 → 2: ACCEPTED 0.1
        """
    )
    talk.deliver_all()
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    assert not [line for line in talk.lines if "SUBMIT" in line]


def test_a_submission_that_comes_again_is_not_numbered_again() -> None:
    """ACCEPTED is lost: the sender submits again, and the sequencer says again how many it has taken."""
    talk = lossy()
    talk.publish(2)
    talk.deliver(source=2)
    talk.lose(source=0, to=1)
    talk.lose(source=0, to=2)
    talk.lose(source=0, to=2)
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    talk.deliver(source=2)
    assert "2 → 0: SUBMIT 0.1" in talk.lines
    assert "0 → 2: ACCEPTED 0.1" in talk.lines
    assert not [line for line in talk.lines if "delivers" in line or "DATA" in line]


def test_messages_of_one_sender_are_numbered_in_its_order() -> None:
    """The second comes first: it is not taken, and comes again after the first."""
    talk = lossy()
    talk.publish(2)
    talk.publish(2)
    first, second = talk.under_way
    talk.under_way.clear()
    talk.lines.clear()
    talk.receive(second)
    talk.says("0 → 2: ACCEPTED 0.0")
    talk.receive(first)
    talk.says(
        """
        0 delivers 0.1
        0 → all: DATA 0.1
        0 → 2: ACCEPTED 0.1
        """
    )
    talk.deliver_all()
    talk.pass_time(2 * WAIT_NS)
    talk.deliver_all()
    assert talk.received() == [[2], [2], [2]]


def test_what_is_lost_after_it_was_numbered_is_requested_from_the_sequencer() -> None:
    talk = lossy()
    talk.publish(2)
    talk.deliver(source=2)
    talk.lose(source=0, to=1)
    talk.publish(0)
    talk.deliver(source=0, to=1)
    talk.lines.clear()
    talk.pass_time(0)
    talk.says("1 → 0: NAK of 0 to 0 {1}")
    talk.deliver_all()
    assert talk.received() == [[2], [2], [2]]


def test_a_submission_is_as_large_as_its_message_and_an_answer_is_small() -> None:
    talk = lossy()
    talk.publish(1)
    (submitted,) = talk.under_way
    talk.deliver()
    answer = next(one for one in talk.under_way if str(one).startswith("ACCEPTED"))
    data = next(one for one in talk.under_way if str(one).startswith("DATA"))
    assert submitted.size == data.size + 4
    assert answer.size == 32 + 4

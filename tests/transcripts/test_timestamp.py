"""Timestamp by hand: a message waits for its cause, and survivors recover what a sender sent before it crashed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from cubecast.protocols.catalogue import protocol_named
from cubecast.protocols.causal.hold_back import NOTHING_MORE
from cubecast.protocols.causal.timestamp import DATA
from tests.transcripts.exchange import Copy, Exchange

_KINDS = ("DATA", "HAVE", "HAVE_TOO", "ASK")


@dataclass(frozen=True, kw_only=True)
class Stamped(Copy):
    """A message with a vector."""

    def __str__(self) -> str:
        vector = " ".join("–" if number == NOTHING_MORE else str(number) for number in self.numbers)
        return (
            f"{_KINDS[self.kind]} " + (f"{self.sender}.{self.sequence} " if self.kind == DATA else "") + f"[{vector}]"
        )


class Talk(Exchange):
    """Three members that all send."""

    def __init__(self, members: int = 3) -> None:
        super().__init__(protocol_named("timestamp"), members=members, senders=members)

    def _copy(self, slot: int, source: int, to: int) -> Copy:
        return Stamped(**asdict(super()._copy(slot, source, to)))


def test_a_message_waits_until_its_cause_is_delivered() -> None:
    talk = Talk()
    talk.publish(0)
    talk.deliver(0, 1)
    talk.publish(1)
    talk.deliver(1, 2)
    talk.says("""
        0 delivers 0.1
        0 → all: DATA 0.1 [1 0 0]
        1 delivers 0.1
        1 delivers 1.1
        1 → all: DATA 1.1 [1 1 0]
    """)
    assert talk.state.order.waiting.tolist() == [0, 0, 1]
    talk.deliver(0, 2)
    talk.says("""
        2 delivers 0.1
        2 delivers 1.1
    """)
    assert talk.state.order.waiting.tolist() == [0, 0, 0]


def test_a_member_that_lacks_a_message_of_a_crashed_sender_requests_it() -> None:
    """0 crashes when its second message has reached 1 and not 2; 2 learns of the crash first."""
    talk = Talk()
    talk.publish(0)
    talk.publish(0)
    talk.deliver(0, 1)
    talk.deliver(0, 1)
    talk.deliver(0, 2)
    talk.lose(0, 2)
    talk.lines.clear()
    talk.leave(2, 0)
    talk.lose(2, 0)
    talk.deliver(2, 1)  # 1 counts on 0 still, and may hear more of it
    talk.says("2 → all: HAVE [1 0 0]")
    talk.leave(1, 0)
    talk.lose(1, 0)
    talk.deliver_all()
    talk.says("""
        1 → all: HAVE [2 0 0]
        2 → 1: ASK [1 – –]
        1 → 2: DATA 0.2 [2 0 0]
        2 delivers 0.2
    """)


def test_a_member_that_has_more_answers_have_too() -> None:
    """As before, but 1 learns of it first: the later HAVE of 2 shows that 2 lacks something."""
    talk = Talk()
    talk.publish(0)
    talk.deliver(0, 1)
    talk.lose(0, 2)
    talk.leave(1, 0)
    talk.lose(1, 0)
    talk.deliver(1, 2)  # 2 counts on 0 still: the message may be on its way
    talk.lines.clear()
    talk.leave(2, 0)
    talk.lose(2, 0)
    talk.deliver_all()
    talk.says("""
        2 → all: HAVE [0 0 0]
        1 → 2: HAVE_TOO [1 0 0]
        2 → 1: ASK [0 – –]
        1 → 2: DATA 0.1 [1 0 0]
        2 delivers 0.1
    """)


def test_nothing_is_accepted_from_a_crashed_member_after_have() -> None:
    talk = Talk()
    talk.publish(0)
    talk.leave(1, 0)
    talk.lines.clear()
    talk.deliver(0, 1)
    talk.says("")
    assert talk.received()[1] == [0, 0, 0]


def test_when_the_member_that_was_asked_crashes_another_is_asked() -> None:
    talk = Talk(4)
    talk.publish(0)
    talk.deliver(0, 1)
    talk.deliver(0, 2)
    talk.lose(0, 3)
    for rank in (3, 2, 1):
        talk.leave(rank, 0)
    for rank in (1, 2, 3):
        talk.lose(rank, 0)
    talk.lines.clear()
    talk.deliver(2, 3)
    talk.deliver(1, 3)
    talk.says("3 → 2: ASK [0 – – –]")
    talk.under_way.clear()  # 2 dies before it has answered
    talk.leave(3, 2)
    talk.deliver(3, 1)
    talk.deliver(1, 3)
    talk.deliver(3, 1)
    talk.deliver(1, 3)
    talk.says("""
        3 → all: HAVE [0 0 0 0]
        1 → 3: HAVE_TOO [1 0 0 0]
        3 → 1: ASK [0 – – –]
        1 → 3: DATA 0.1 [1 0 0 0]
        3 delivers 0.1
    """)

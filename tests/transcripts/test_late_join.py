"""Late-join handlers (guo §2.2.1, §3.2), line by line: what a newcomer asks for, and what it gets."""

from __future__ import annotations

import numpy as np

from cubecast.protocols.catalogue import transport_named
from cubecast.protocols.transport.repair import REPAIR_BURST
from cubecast.protocols.transport.window import NAK
from tests.transcripts.exchange import Copy, Exchange

WAIT_NS = 1000
NEWCOMER = 3


def group_with_history(messages: int, *, stable: int = 0) -> Exchange:
    """Members 0 to 2 hold so many messages of member 1; member 3 begins now, and has heard nothing."""
    talk = Exchange(transport_named("late_join"), members=4, senders=2, repeat_ns=WAIT_NS)
    talk.start(0, 1, 2)
    for _ in range(messages):
        talk.publish(1)
        talk.lose(to=NEWCOMER)
        talk.deliver_all()
    talk.alarms.clear()
    talk.group.stable[:NEWCOMER, 1] = stable
    talk.now_ns = 1
    talk.start(NEWCOMER)
    talk.lines.clear()
    return talk


def test_a_handler_sends_what_the_newcomer_lacks() -> None:
    talk = group_with_history(2)
    talk.join(NEWCOMER, NEWCOMER)
    talk.deliver(source=NEWCOMER)
    talk.says(
        """
        3 → 0: REQUEST [0 0]
        0 → 3: DATA 1.1
        0 → 3: DATA 1.2
        0 → 3: HISTORY [0 2]
        """
    )
    talk.deliver_all()
    talk.says(
        """
        3 delivers 1.1
        3 delivers 1.2
        3 has caught up
        """
    )


def test_nobody_asks_before_every_member_knows_of_the_newcomer() -> None:
    """Live messages are kept, and no NAK is sent for what came before them."""
    talk = group_with_history(2)
    talk.publish(1)
    talk.deliver_all()
    talk.pass_time(0)
    assert not [line for line in talk.lines if line.startswith("3 →")]
    assert talk.received()[NEWCOMER] == [0, 0]
    talk.join(NEWCOMER, NEWCOMER)
    talk.deliver_all()
    assert talk.received()[NEWCOMER] == [0, 3]
    assert talk.lines[-1] == "3 has caught up"


def test_a_long_history_comes_in_parts() -> None:
    talk = group_with_history(2 * REPAIR_BURST + 1)
    talk.join(NEWCOMER, NEWCOMER)
    talk.deliver_all()
    asked = [line for line in talk.lines if "REQUEST" in line]
    assert asked == [f"3 → 0: REQUEST [0 {held}]" for held in (0, REPAIR_BURST, 2 * REPAIR_BURST)]
    assert talk.received()[NEWCOMER] == [0, 2 * REPAIR_BURST + 1]


def test_a_message_that_is_lost_on_the_way_is_asked_for_again() -> None:
    talk = group_with_history(3)
    talk.join(NEWCOMER, NEWCOMER)
    talk.deliver(source=NEWCOMER)
    talk.deliver(to=NEWCOMER)
    talk.lose(to=NEWCOMER)
    talk.lines.clear()
    talk.deliver_all()
    assert talk.lines[0] == "3 → 0: REQUEST [0 1]"
    assert talk.lines[-1] == "3 has caught up"
    assert talk.received()[NEWCOMER] == [0, 3]


def test_a_handler_that_does_not_answer_is_passed_over() -> None:
    talk = group_with_history(1)
    talk.join(NEWCOMER, NEWCOMER)
    talk.lose(source=NEWCOMER)
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    talk.says("3 → 1: REQUEST [0 0]")
    talk.lose(source=NEWCOMER)
    talk.pass_time(WAIT_NS)
    talk.says("3 → 0: REQUEST [0 0]")


def test_a_handler_that_left_is_not_asked() -> None:
    talk = group_with_history(1)
    talk.leave(NEWCOMER, 0)
    talk.lines.clear()
    talk.join(NEWCOMER, NEWCOMER)
    talk.says("3 → 1: REQUEST [0 0]")


def test_only_handlers_keep_what_is_stable() -> None:
    """Members 0 and 1 are the handlers: 2 has discarded message 1, and repairs message 2 alone."""
    for rank, repaired in ((0, [1, 2]), (2, [2])):
        talk = group_with_history(2, stable=1)
        talk.receive(_nak_for_both(to=rank))
        found = [one.sequence for one in talk.under_way if one.source == rank]
        assert found == repaired


def _nak_for_both(to: int) -> Copy:
    """What the newcomer would request by a NAK, if it sent any."""
    return Copy(source=NEWCOMER, to=to, kind=NAK, sender=1, sequence=1, field_1=to, mask=0b11, numbers=(), size=0)


def test_founders_do_not_ask() -> None:
    talk = Exchange(transport_named("late_join"), members=3, senders=1, repeat_ns=WAIT_NS)
    talk.start()
    talk.join(0, 0)
    talk.says("")
    assert np.array_equal(talk.state.catching, [0, 0, 0])

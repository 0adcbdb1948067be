"""The reliable multicast families, line by line: the example runs of guo Figs 2.1–2.5, and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import list_protocols, transport_named
from tests.transcripts.exchange import Exchange

WAIT_NS = 1000


def exchange(name: str, members: int = 3, **settings: Any) -> Exchange:
    return Exchange(transport_named(name), members=members, **({"repeat_ns": WAIT_NS} | settings))


def with_a_gap_at_2(name: str, **settings: Any) -> Exchange:
    """Of three messages the second reaches member 1 only."""
    talk = exchange(name, **settings)
    talk.publish(0)
    talk.deliver_all()
    talk.publish(0)
    talk.deliver(to=1)
    talk.lose(to=2)
    talk.publish(0)
    talk.deliver_all()
    assert talk.received() == [[3], [3], [1]]
    talk.lines.clear()
    return talk


def test_ack_when_the_message_arrives_everywhere() -> None:
    """guo Fig 2.1: the timer is of no use any more once both ACKs are in."""
    talk = exchange("ack")
    talk.publish(0)
    talk.deliver_all()
    talk.says(
        """
        0 delivers 0.1
        0 → all: DATA 0.1
        1 delivers 0.1
        1 → 0: ACK of 0 up to 1
        2 delivers 0.1
        2 → 0: ACK of 0 up to 1
        0 releases [1]
        0 → all: ANNOUNCE 0.1 released 1
        1 releases [1]
        2 releases [1]
        """
    )
    talk.pass_time(10 * WAIT_NS)
    talk.says("")


def test_ack_when_the_message_does_not_reach_one() -> None:
    """guo Fig 2.2: the timer expires without the ACK of r2, so the sender multicasts again."""
    talk = exchange("ack")
    talk.publish(0)
    talk.lose(to=2)
    talk.deliver_all()
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    talk.deliver_all()
    talk.says(
        """
        0 → all: DATA 0.1
        1 → 0: ACK of 0 up to 1
        2 delivers 0.1
        2 → 0: ACK of 0 up to 1
        0 releases [1]
        0 → all: ANNOUNCE 0.1 released 1
        1 releases [1]
        2 releases [1]
        """
    )


def test_a_lost_ack_brings_the_message_again_and_that_brings_another_ack() -> None:
    talk = exchange("ack", members=2)
    talk.publish(0)
    talk.deliver(to=1)
    talk.lose(to=0)
    talk.pass_time(WAIT_NS)
    talk.deliver_all()
    assert talk.stable() == [[1], [1]]
    assert talk.state.window.duplicates.tolist() == [0, 1]


def test_ack_speaks_of_messages_beyond_a_gap_so_that_only_the_gap_is_sent_again() -> None:
    talk = exchange("ack", members=2, repair="unicast")
    for _ in range(3):
        talk.publish(0)
    talk.lose(to=1)
    talk.lines.clear()
    talk.deliver_all()
    talk.says(
        """
        1 → 0: ACK of 0 up to 0 {2}
        1 → 0: ACK of 0 up to 0 {2 3}
        """
    )
    talk.pass_time(WAIT_NS)
    talk.says("0 → 1: DATA 0.1")


def test_ack_of_a_member_that_left_is_not_waited_for() -> None:
    talk = exchange("ack")
    talk.publish(0)
    talk.lose(to=2)
    talk.deliver_all()
    assert talk.stable()[0] == [0]
    talk.leave(0, 2)
    assert talk.stable()[0] == [1]


def test_nak_for_a_gap() -> None:
    """guo Fig 2.3: m2 does not reach r2, which sends a NAK to the sender; r1 ignores the duplicate."""
    talk = with_a_gap_at_2("nak")
    talk.pass_time(0)
    talk.deliver_all()
    talk.says(
        """
        2 → 0: NAK of 0 to 0 {2}
        0 → all: DATA 0.2
        2 delivers 0.2
        2 delivers 0.3
        """
    )
    assert talk.state.window.duplicates.tolist() == [0, 1, 0]


def test_nak_again_when_nak_or_repair_is_lost() -> None:
    talk = with_a_gap_at_2("nak", repair="unicast")
    talk.pass_time(0)
    talk.lose(to=0)
    talk.pass_time(WAIT_NS - 1)
    talk.says("2 → 0: NAK of 0 to 0 {2}")
    talk.pass_time(1)
    talk.deliver(source=2)
    talk.lose(source=0, to=2)
    talk.lines.clear()
    talk.pass_time(2 * WAIT_NS)
    talk.deliver(source=2)
    assert "2 → 0: NAK of 0 to 0 {2}" in talk.lines
    assert "0 → 2: DATA 0.2" in talk.lines


def test_a_repair_is_multicast_once_for_all_who_ask_at_the_same_time() -> None:
    talk = exchange("nak", members=5)
    talk.publish(0)
    for rank in (1, 2, 3, 4):
        talk.lose(to=rank)
    talk.publish(0)
    talk.deliver_all()
    talk.pass_time(0)
    talk.deliver_all()
    assert sum("NAK" in line for line in talk.lines) == 4
    assert sum("DATA 0.1" in line for line in talk.lines) == 2


def test_a_lost_tail_is_announced() -> None:
    """guo §2.1.2: the sender must multicast the sequence number of the last message periodically."""
    talk = exchange("nak")
    talk.publish(0)
    talk.lose(to=1)
    talk.lose(to=2)
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    talk.deliver_all()
    talk.pass_time(0)
    talk.deliver_all()
    talk.says(
        """
        0 → all: ANNOUNCE 0.1
        1 → 0: NAK of 0 to 0 {1}
        2 → 0: NAK of 0 to 0 {1}
        0 → all: DATA 0.1
        1 delivers 0.1
        2 delivers 0.1
        """
    )


def test_others_are_asked_when_the_sender_has_left() -> None:
    talk = with_a_gap_at_2("nak", repair="unicast")
    for rank in (1, 2):
        talk.leave(rank, 0)
    talk.alarms = [alarm for alarm in talk.alarms if alarm.rank != 0]
    talk.pass_time(0)
    talk.deliver_all()
    talk.says(
        """
        2 → 1: NAK of 0 to 1 {2}
        1 → 2: DATA 0.2
        2 delivers 0.2
        2 delivers 0.3
        """
    )


def test_a_multicast_nak_speaks_for_others() -> None:
    """guo Fig 2.4: m2 reaches nobody; after r2 hears the NAK of r1 it waits as if it had asked itself."""
    talk = exchange("nak_multicast", members=6)
    talk.publish(0)
    for rank in range(1, 6):
        talk.lose(to=rank)
    talk.publish(0)
    talk.deliver_all()
    talk.lines.clear()
    for _ in range(WAIT_NS - 1):
        talk.pass_time(1)
        talk.deliver_all()
    naks = [line for line in talk.lines if "NAK" in line]
    assert len(naks) == 1
    assert naks[0].endswith("→ all: NAK of 0 to 0 {1}")
    assert talk.lines[1] == "0 → all: DATA 0.1"
    assert talk.received() == [[2]] * 6


def test_anyone_who_holds_it_answers_once() -> None:
    """guo Fig 2.5: r1 holds m2 and multicasts it again; the others that hold it hear that and keep silent."""
    talk = exchange("srm", members=6)
    talk.publish(0)
    talk.lose(to=5)
    talk.publish(0)
    talk.deliver_all()
    talk.lines.clear()
    for _ in range(WAIT_NS - 1):
        talk.pass_time(1)
        talk.deliver_all()
    assert [line for line in talk.lines if "NAK" in line] == ["5 → all: NAK of 0 to 0 {1}"]
    assert len([line for line in talk.lines if "DATA" in line]) == 1
    assert talk.received() == [[2]] * 6


def test_srm_needs_no_sender_to_repair() -> None:
    talk = with_a_gap_at_2("srm")
    talk.alarms = [alarm for alarm in talk.alarms if alarm.rank != 0]
    for _ in range(2 * WAIT_NS):
        talk.pass_time(1)
        talk.under_way = [copy for copy in talk.under_way if copy.to != 0]
        talk.deliver_all()
    assert talk.received()[2] == [3]
    assert "1 → all: DATA 0.2" in talk.lines


def test_hybrid_acknowledges_partitions_and_an_announced_tail() -> None:
    """guo §2.1.3: large partitions are ACKed, lost messages within the partition are NAKed."""
    talk = exchange("hybrid", members=2)
    for _ in range(9):
        talk.publish(0)
    talk.lose(to=1)
    talk.lines.clear()
    for _ in range(7):
        talk.deliver(to=1)
    talk.pass_time(0)
    talk.says("1 → 0: NAK of 0 to 0 {1}")
    talk.deliver(to=0)
    talk.deliver(to=1)
    talk.lines.clear()
    talk.deliver(to=1)
    assert talk.lines[-1] == "1 → 0: ACK of 0 up to 9"
    talk.lose(to=0)
    talk.lines.clear()
    talk.pass_time(WAIT_NS)
    talk.deliver_all()
    talk.says(
        """
        0 → all: ANNOUNCE 0.9
        1 → 0: ACK of 0 up to 9
        0 releases [9]
        0 → all: ANNOUNCE 0.9 released 9
        1 releases [9]
        """
    )


def hierarchy() -> Exchange:
    """0 has the children 1 and 2, 1 has 3 and 4. The first of two messages does not reach 3."""
    talk = exchange("hierarchical", members=5, tree_degree=2)
    talk.publish(0)
    talk.lose(to=3)
    talk.publish(0)
    talk.deliver_all()
    talk.lines.clear()
    return talk


def pass_reports(talk: Exchange, periods: int) -> list[str]:
    talk.lines.clear()
    for _ in range(4 * periods):
        talk.pass_time(WAIT_NS // 4)
        talk.deliver_all()
    return talk.lines


def test_a_designated_receiver_repairs_and_reports_for_its_subtree() -> None:
    """guo §2.1.4: a DR collects the ACKs of its subset; the sender hears of its DRs only."""
    talk = hierarchy()
    lines = pass_reports(talk, 4)
    assert "3 → 1: STATUS of 0 all 0, misses {1}" in lines
    assert "1 → 3: DATA 0.1" in lines
    assert not any(line.startswith(("3 → 0", "4 → 0")) for line in lines)
    assert talk.stable() == [[2]] * 5


def test_a_designated_receiver_does_not_speak_for_a_child_it_has_not_heard_from() -> None:
    talk = hierarchy()
    for _ in range(40):
        talk.pass_time(WAIT_NS // 4)
        talk.under_way = [copy for copy in talk.under_way if copy.source != 3]
        talk.deliver_all()
    assert talk.stable() == [[0]] * 5


def test_the_children_of_a_crashed_designated_receiver_report_to_the_next_on_the_way() -> None:
    talk = hierarchy()
    talk.alarms = [alarm for alarm in talk.alarms if alarm.rank != 1]
    for rank in (0, 2, 3, 4):
        talk.leave(rank, 1)
    assert talk.stable() == [[0]] * 5
    talk.lines.clear()
    for _ in range(20):
        talk.pass_time(WAIT_NS // 4)
        talk.under_way = [copy for copy in talk.under_way if copy.to != 1]
        talk.deliver_all()
    assert "3 → 0: STATUS of 0 all 0, misses {1}" in talk.lines
    assert "0 → 3: DATA 0.1" in talk.lines
    assert [row for rank, row in enumerate(talk.stable()) if rank != 1] == [[2]] * 4


@pytest.mark.parametrize("transport", list_protocols("transport"), ids=lambda one: one.name)
def test_nothing_is_repeated_where_nothing_is_lost(transport: Protocol) -> None:
    talk = Exchange(transport, members=4, senders=2)
    for sender in (0, 1, 0):
        talk.publish(sender)
        talk.deliver_all()
    talk.pass_time(100 * WAIT_NS)
    talk.deliver_all()
    assert talk.received() == [[2, 1]] * 4
    assert sum("DATA" in line for line in talk.lines) == 3
    assert not any("NAK" in line for line in talk.lines)

"""S_Train, line by line (guo §4.3.2, Fig 4.12): seven members, two children each."""

from __future__ import annotations

from tests.transcripts.talk import Talk

RECEIVED = [[9], [8], [7], [6], [5], [4], [3]]


def test_a_round() -> None:
    talk = Talk("s_train", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → all: START 1
        1 begins 1
        2 begins 1
        3 begins 1
        3 → 4: ACK1 1 [6]
        4 begins 1
        5 begins 1
        5 → 6: ACK1 1 [4]
        6 begins 1
        4 → 1: ACK2 1 [5]
        6 → 2: ACK2 1 [3]
        1 → 2: ACK1 1 [5]
        2 → 0: ACK2 1 [3]
        0 knows 1: [3]
        0 → all: INFO 1 [3]
        1 knows 1: [3]
        2 knows 1: [3]
        3 knows 1: [3]
        4 knows 1: [3]
        5 knows 1: [3]
        6 knows 1: [3]
        """
    )
    assert [(timer.rank, timer.name, timer.tag) for timer in talk.timers] == [(0, "NEXT_ROUND", 1)]


def test_sizes() -> None:
    talk = Talk("s_train", RECEIVED)
    talk.start()
    assert {message.size for message in talk.under_way} == {32}
    talk.deliver(0, 3)
    assert talk.under_way[-1].size == 36


def test_a_member_waits_for_its_elder_sibling_and_its_last_child() -> None:
    talk = Talk("s_train", RECEIVED)
    talk.start()
    for to in (2, 5, 6):
        talk.deliver(0, to)
    talk.deliver(5, 6)
    talk.deliver(6, 2)
    assert not [message for message in talk.under_way if message.source == 2]  # its elder, 1, has not reported
    for to in (1, 3, 4):
        talk.deliver(0, to)
    talk.deliver(3, 4)
    talk.deliver(4, 1)
    talk.deliver(1, 2)
    assert str(talk.under_way[-1]) == "ACK2 1 [3]"


def test_orphans_report_to_their_grandparent_in_the_train_of_its_children() -> None:
    """Without member 1 its children 3 and 4 follow member 2 in the train of the root's children."""
    talk = Talk("s_train", RECEIVED)
    talk.start()
    talk.crash(1)
    talk.deliver_all()
    assert talk.done == [0] * 7
    for rank in (0, 2, 3, 4, 5, 6):
        talk.leave(rank, 1)
    talk.said()
    talk.deliver_all()
    assert [talk.done[rank] for rank in (0, 2, 3, 4, 5, 6)] == [1] * 6
    assert "4 → 0: ACK2 1 [3]" in talk.said()
    assert talk.stable(0) == [3]


def test_an_ack_of_another_view_does_not_count() -> None:
    """Member 2 still sees member 1 and speaks for fewer than the root, which does not, believes."""
    talk = Talk("s_train", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.deliver_all_but("ACK2")
    assert talk.done[0] == 1
    talk.crash(1)
    talk.leave(0, 1)
    talk.deliver_all()
    assert talk.done[0] == 1  # 3 and 4 have not been heard in the new view
    for rank in (2, 3, 4, 5, 6):
        talk.leave(rank, 1)
    talk.deliver_all()
    assert talk.done[0] == 2


def test_a_new_root_opens_the_next_round() -> None:
    talk = Talk("s_train", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.crash(0)
    for rank in range(1, 7):
        talk.leave(rank, 0)
    talk.deliver_all()
    assert talk.done[1:] == [2] * 6
    assert talk.stable(6) == [3]


def test_what_is_lost_is_repeated_and_a_late_member_is_told() -> None:
    talk = Talk("s_train", RECEIVED, lossy=True)
    talk.start()
    talk.lose(0, 3)
    talk.deliver_all()
    assert talk.done == [0] * 7
    talk.wake(0, "REPEAT")
    talk.deliver_all_but("INFO")
    talk.lose(0, 5, "INFO")
    talk.deliver_all()
    assert talk.done == [1, 1, 1, 1, 1, 0, 1]
    talk.said()
    talk.wake(5, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        5 → 6: ACK1 1 [4]
        6 → 5: INFO 1 [3]
        5 knows 1: [3]
        """
    )


def test_a_request_brings_a_member_into_a_round_whose_start_never_arrives() -> None:
    """The parent asks its last child, and that asks its elder sibling."""
    talk = Talk("s_train", RECEIVED, lossy=True)
    talk.start()
    for rank in (5, 6):
        talk.lose(0, rank, "START")
    talk.deliver_all()
    talk.said()
    talk.wake(2, "REPEAT")
    talk.deliver_all()
    talk.wake(6, "REPEAT")
    talk.deliver(6, 5)
    talk.deliver(5, 6)
    talk.deliver(6, 2)
    talk.says(
        """
        2 → 1: ASK 1
        2 → 6: ASK 1
        1 → 2: ACK1 1 [5]
        6 begins 1
        6 → 5: ASK 1
        5 begins 1
        5 → 6: ACK1 1 [4]
        6 → 2: ACK2 1 [3]
        2 → 0: ACK2 1 [3]
        """
    )
    talk.deliver_all()
    assert talk.done == [1] * 7


def test_siblings_go_by_their_place_not_by_their_rank() -> None:
    """A two-level tree (guo §5.5): sub-groups 0 1 2 and 3 4 5; the root's children are 1, 2 and the head 3."""
    talk = Talk("s_train", RECEIVED[:6], group_size=3)
    talk.start()
    talk.deliver_all()
    said = talk.said()
    lines = ["1 → 2: ACK1 1 [8]", "2 → 3: ACK1 1 [7]", "4 → 5: ACK1 1 [5]", "5 → 3: ACK2 1 [4]", "3 → 0: ACK2 1 [4]"]
    assert [line for line in lines if line not in said] == []
    assert talk.done == [1] * 6

"""Coord, line by line (cube §2.1, Fig 1; lossy form cube §3.5)."""

from __future__ import annotations

from tests.transcripts.talk import Message, Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5]]


def test_a_round() -> None:
    talk = Talk("coord", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → all: START 1
        1 begins 1
        1 → 0: ACK 1 [4 4]
        2 begins 1
        2 → 0: ACK 1 [6 2]
        3 begins 1
        3 → 0: ACK 1 [5 5]
        0 knows 1: [4 2]
        0 → all: INFO 1 [4 2]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        3 knows 1: [4 2]
        """
    )
    assert [(timer.rank, timer.name, timer.tag) for timer in talk.timers] == [(0, "NEXT_ROUND", 1)]


def test_sizes_are_a_header_and_an_array() -> None:
    """Header 32 B, 4 B a sequence number; a round number of 4 B only where messages can be lost (MODELS §1)."""
    for lossy, extra in ((False, 0), (True, 4)):
        talk = Talk("coord", RECEIVED, lossy=lossy)
        talk.start()
        sizes = {}
        while talk.under_way:
            message = talk.under_way.pop(0)
            sizes[message.kind] = message.size
            talk.receive(message)
        assert sizes["START"] == 32 + extra
        assert sizes["ACK"] == sizes["INFO"] == 32 + 2 * 4 + extra


def test_the_next_round_certifies_what_arrived_in_between() -> None:
    talk = Talk("coord", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.group.received[2, 1] = 4
    talk.wake(0, "NEXT_ROUND")
    talk.deliver_all()
    assert talk.done == [2, 2, 2, 2]
    assert talk.stable(3) == [4, 3]


def test_lost_messages_are_repeated_to_those_who_miss_them_only() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.lose(0, 2, "START")
    talk.deliver_all()
    talk.said()
    talk.wake(0, "REPEAT")
    talk.says("0 → 2: START 1")
    talk.deliver(0, 2)
    talk.lose(2, 0, "ACK")
    talk.wake(0, "REPEAT")
    talk.deliver_all_but("INFO")
    talk.says(
        """
        2 begins 1
        2 → 0: ACK 1 [6 2]
        0 → 2: START 1
        2 → 0: ACK 1 [6 2]
        0 knows 1: [4 2]
        0 → all: INFO 1 [4 2]
        """
    )
    talk.lose(0, 1, "INFO")
    talk.deliver(0, 2, "INFO")
    talk.deliver(0, 3, "INFO")
    talk.lose(3, 0, "ACK_INFO")
    talk.deliver_all()
    assert not talk.has_timer(0, "NEXT_ROUND")
    talk.said()
    talk.wake(0, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        0 → 1: INFO 1 [4 2]
        0 → 3: INFO 1 [4 2]
        1 knows 1: [4 2]
        1 → 0: ACK_INFO 1
        3 → 0: ACK_INFO 1
        """
    )
    assert talk.has_timer(0, "NEXT_ROUND")


def test_a_repeat_of_a_round_that_is_over_is_silent() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.said()
    talk.wake(0, "REPEAT")
    talk.says("")
    assert not talk.has_timer(0, "REPEAT")


def test_an_ack_of_an_earlier_round_does_not_count() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.under_way.clear()
    for rank in (1, 2, 3):
        talk.receive(Message(source=rank, to=0, kind="ACK", round=1, numbers=(9, 9)))
    assert talk.done[0] == 1


def test_an_old_ack_info_does_not_count() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.deliver_all_but("INFO")
    for rank in (1, 2, 3):
        talk.receive(Message(source=rank, to=0, kind="ACK_INFO", round=1))
    assert not talk.has_timer(0, "NEXT_ROUND")


def test_old_news_does_not_take_stability_back() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.said()
    talk.receive(Message(source=0, to=3, kind="INFO", round=1, numbers=(1, 1)))
    talk.says("3 → 0: ACK_INFO 1")
    assert talk.stable(3) == [4, 2]


def test_the_next_lowest_rank_runs_the_unfinished_round_again() -> None:
    talk = Talk("coord", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.deliver(0, 2)
    talk.crash(0)
    talk.said()
    talk.leave(2, 0)
    talk.says("")
    talk.leave(1, 0)
    talk.deliver_all()
    talk.says(
        """
        1 begins 1
        1 → all: START 1
        3 begins 1
        3 → 0: ACK 1 [5 5]
        2 → 1: ACK 1 [6 2]
        3 → 1: ACK 1 [5 5]
        1 knows 1: [4 2]
        1 → all: INFO 1 [4 2]
        2 knows 1: [4 2]
        3 knows 1: [4 2]
        """
    )


def test_without_the_one_that_left_the_minimum_may_be_higher() -> None:
    """Member 2 alone holds only 2 of sender 1; the cover test is against the current membership (guo §3.2)."""
    talk = Talk("coord", RECEIVED)
    talk.start()
    talk.lose(0, 2, "START")
    talk.deliver_all()
    assert talk.done == [0, 0, 0, 0]
    talk.crash(2)
    talk.said()
    talk.leave(0, 2)
    talk.says("0 knows 1: [4 3]\n0 → all: INFO 1 [4 3]")


def test_a_member_that_acknowledged_and_left_still_bounds_its_round() -> None:
    talk = Talk("coord", RECEIVED)
    talk.start()
    talk.deliver(0, 2)
    talk.deliver(2, 0)
    talk.leave(0, 2)
    talk.deliver_all()
    assert talk.stable(0) == [4, 2]


def test_the_last_word_of_a_departed_coordinator_does_not_stop_its_successor() -> None:
    """INFO is still under way when the detector reports the coordinator."""
    talk = Talk("coord", RECEIVED)
    talk.start()
    talk.deliver_all_but("INFO")
    late = [talk.lose(0, rank, "INFO") for rank in (1, 2, 3)]
    talk.crash(0)
    for rank in (1, 2, 3):
        talk.leave(rank, 0)
    for message in late:
        talk.receive(message)
    talk.deliver_all()
    assert talk.done == [1, 1, 1, 1]
    assert talk.has_timer(1, "NEXT_ROUND")
    talk.wake_all("NEXT_ROUND")
    talk.deliver_all()
    assert talk.done[1:] == [2, 2, 2]


def test_a_round_that_a_departed_coordinator_opened_is_taken_up() -> None:
    """1 collects round 1 in place of 0, when START 2 of 0 reaches it late."""
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.under_way.clear()
    talk.crash(0)
    talk.leave(1, 0)
    talk.receive(Message(source=0, to=1, kind="START", round=2))
    for rank in (2, 3):
        talk.leave(rank, 0)
    talk.deliver_all()
    assert talk.done[1:] == [2, 2, 2]


def test_a_new_coordinator_tells_the_last_result_again_where_it_may_be_lost() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.lose(0, 3, "INFO")
    talk.deliver_all()
    talk.crash(0)
    talk.said()
    talk.leave(1, 0)
    talk.lose(1, 3, "INFO")
    talk.deliver_all()
    talk.wake(1, "REPEAT")
    talk.leave(2, 0)
    talk.leave(3, 0)
    talk.deliver_all()
    talk.says(
        """
        1 → all: INFO 1 [4 2]
        2 → 1: ACK_INFO 1
        1 → 3: INFO 1 [4 2]
        3 knows 1: [4 2]
        3 → 1: ACK_INFO 1
        """
    )
    assert talk.has_timer(1, "NEXT_ROUND")


def test_a_member_that_is_ahead_says_so_and_the_newcomer_takes_up_its_round() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.lose(0, 1, "START")
    talk.deliver(0, 2)
    talk.under_way.clear()
    talk.crash(0)
    for rank in (1, 2, 3):
        talk.leave(rank, 0)
    talk.deliver_all()  # 1 repeats the result of round 1
    talk.wake(1, "NEXT_ROUND")
    talk.deliver_all()
    assert talk.done[1:] == [2, 2, 2]


def test_the_round_goes_on_when_whoever_was_to_be_informed_leaves() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.lose(0, 3, "INFO")
    talk.deliver_all()
    assert not talk.has_timer(0, "NEXT_ROUND")
    talk.crash(3)
    talk.leave(0, 3)
    assert talk.has_timer(0, "NEXT_ROUND")


def test_two_members_and_then_one() -> None:
    talk = Talk("coord", [[2], [1]])
    talk.start()
    talk.crash(0)
    talk.said()
    talk.leave(1, 0)
    talk.wake(1, "NEXT_ROUND")
    talk.says("1 begins 1\n1 → all: START 1\n1 knows 1: [1]\n1 → all: INFO 1 [1]")


def test_an_ack_of_a_later_round_makes_the_coordinator_take_it_up() -> None:
    talk = Talk("coord", RECEIVED, lossy=True)
    talk.start()
    talk.said()
    talk.receive(Message(source=2, to=0, kind="ACK", round=3, numbers=(6, 2)))
    talk.says("0 begins 3\n0 → all: START 3")
    talk.receive(Message(source=3, to=1, kind="ACK", round=5, numbers=(6, 2)))
    talk.says("")  # 1 coordinates nothing

"""FullDist, line by line (cube §2.2, Fig 2; lossy form cube §3.5)."""

from __future__ import annotations

from tests.transcripts.talk import Message, Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5]]


def info(source: int, to: int, number: int, *numbers: int) -> Message:
    return Message(source=source, to=to, kind="INFO", round=number, numbers=numbers)


def test_a_round() -> None:
    talk = Talk("full_dist", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → all: INFO 1 [5 3]
        1 begins 1
        1 → all: INFO 1 [4 4]
        2 begins 1
        2 → all: INFO 1 [6 2]
        3 begins 1
        3 → all: INFO 1 [5 5]
        3 knows 1: [4 2]
        0 knows 1: [4 2]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        """
    )
    assert [(timer.rank, timer.name, timer.tag) for timer in talk.timers] == [(0, "NEXT_ROUND", 1)]


def test_any_first_info_sets_a_member_going() -> None:
    talk = Talk("full_dist", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.said()
    talk.deliver(1, 3)
    talk.says("3 begins 1\n3 → all: INFO 1 [5 5]")
    talk.deliver(0, 3)
    talk.says("")


def test_a_row_is_counted_once() -> None:
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    for _ in range(3):
        talk.receive(info(1, 0, 1, 4, 4))
    assert talk.done[0] == 0
    talk.receive(info(2, 0, 1, 6, 2))
    assert talk.done[0] == 0
    talk.receive(info(3, 0, 1, 5, 5))
    assert talk.done[0] == 1


def test_an_older_row_does_not_replace_a_newer_one() -> None:
    """With no FIFO, keep the last message per peer and drop an older one (cube §3.5)."""
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.receive(info(1, 0, 2, 8, 8))
    talk.receive(info(1, 0, 1, 4, 4))
    talk.receive(info(2, 0, 2, 8, 8))
    talk.receive(info(3, 0, 2, 8, 8))
    assert talk.done[0] == 2
    assert talk.stable(0) == [5, 3]  # its own row
    talk.group.received[0] = [9, 9]
    talk.wake(0, "NEXT_ROUND")
    talk.receive(info(2, 0, 3, 9, 9))
    talk.receive(info(3, 0, 3, 9, 9))
    talk.receive(info(1, 0, 2, 0, 0))
    assert talk.done[0] == 2


def test_a_row_of_the_next_round_counts_for_this_one_too() -> None:
    """A node in round r that receives an INFO of round r+1 treats it as one of round r (cube §3.5)."""
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.receive(info(1, 0, 1, 4, 4))
    talk.receive(info(2, 0, 1, 6, 2))
    talk.said()
    talk.receive(info(3, 0, 2, 7, 7))
    talk.says(
        """
        0 begins 2
        0 → all: INFO 2 [5 3]
        0 knows 1: [4 2]
        """
    )


def test_missing_rows_are_requested_from_those_who_owe_them() -> None:
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.deliver(0, 1)
    talk.deliver(0, 2)
    talk.deliver(0, 3)
    talk.lose(2, 0)
    talk.lose(1, 3)
    talk.deliver_all()
    talk.said()
    talk.wake(0, "REPEAT")
    talk.wake(3, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        0 → 2: REQUEST 1 [5 3]
        3 → 1: REQUEST 1 [5 5]
        2 → 0: INFO 1 [6 2]
        1 → 3: INFO 1 [4 4]
        0 knows 1: [4 2]
        3 knows 1: [4 2]
        """
    )
    talk.said()
    for rank in range(4):
        if talk.has_timer(rank, "REPEAT"):
            talk.wake(rank, "REPEAT")
    talk.says("")


def test_a_finished_member_answers_with_its_newest_row() -> None:
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.said()
    talk.receive(Message(source=3, to=0, kind="REQUEST", round=1, numbers=(5, 5)))
    talk.says("0 → 3: INFO 2 [5 3]")


def test_rounds_that_follow_faster_than_repeats_leave_nobody_behind() -> None:
    """3 never gets a row of 1 at first; its repeat for round 1 rings when round 2 has begun, and still asks."""
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.deliver(0, 1)
    talk.lose(1, 3)
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.deliver(0, 1)
    talk.lose(1, 3)
    talk.deliver_all()
    assert talk.done == [2, 2, 2, 0]
    talk.said()
    talk.wake(3, "REPEAT")
    talk.deliver_all()
    talk.says("3 → 1: REQUEST 2 [5 5]\n1 → 3: INFO 2 [4 4]\n3 knows 2: [4 2]")
    assert sum(timer.rank == 3 for timer in talk.timers) == 1


def test_the_row_of_one_that_left_is_not_waited_for() -> None:
    talk = Talk("full_dist", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.deliver(0, 3)
    talk.crash(2)
    talk.deliver_all()
    assert talk.done == [0, 0, 0, 0]
    talk.said()
    for rank in (0, 1, 3):
        talk.leave(rank, 2)
    talk.says("0 knows 1: [4 3]\n1 knows 1: [4 3]\n3 knows 1: [4 3]")


def test_a_late_row_of_one_that_left_is_not_counted() -> None:
    talk = Talk("full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.leave(0, 3)
    talk.receive(info(1, 0, 1, 4, 4))
    talk.receive(info(3, 0, 1, 0, 0))
    assert talk.done[0] == 0
    talk.receive(info(2, 0, 1, 6, 2))
    assert talk.stable(0) == [4, 2]


def test_the_next_lowest_rank_leads() -> None:
    talk = Talk("full_dist", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.crash(0)
    for rank in (1, 2, 3):
        talk.leave(rank, 0)
    talk.said()
    talk.wake(1, "NEXT_ROUND")
    talk.deliver_all()
    talk.says(
        """
        1 begins 2
        1 → all: INFO 2 [4 4]
        2 begins 2
        2 → all: INFO 2 [6 2]
        3 begins 2
        3 → all: INFO 2 [5 5]
        3 knows 2: [4 2]
        1 knows 2: [4 2]
        2 knows 2: [4 2]
        """
    )


def test_leader_that_crashes_before_it_speaks_is_replaced() -> None:
    talk = Talk("full_dist", RECEIVED)
    talk.start(1, 2, 3)
    talk.says("")
    talk.crash(0)
    for rank in (1, 2, 3):
        talk.leave(rank, 0)
    talk.deliver_all()
    assert talk.done[1:] == [1, 1, 1]


def test_the_row_of_a_newcomer_is_waited_for() -> None:
    talk = Talk("full_dist", RECEIVED)
    talk.group.members.sets[0] = 0b0111
    talk.state.missing[:] = 3
    talk.start(0, 1, 2)
    talk.deliver(0, 1)
    talk.deliver(0, 2)
    talk.join(0, 3)
    talk.deliver(1, 0)
    talk.deliver(2, 0)
    assert talk.done[0] == 0
    talk.said()
    talk.receive(info(3, 0, 1, 5, 1))
    assert talk.said().startswith("0 knows 1: [4 1]")

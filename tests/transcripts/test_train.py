"""Train, line by line (guo §4.2.3, Fig 4.3)."""

from __future__ import annotations

from cubecast.protocol import shared_sets
from tests.transcripts.talk import Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5]]


def test_a_round_goes_round_twice() -> None:
    talk = Talk("train", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → 1: ACK 1 [5 3]
        1 begins 1
        1 → 2: ACK 1 [4 3]
        2 begins 1
        2 → 3: ACK 1 [4 2]
        3 begins 1
        3 → 0: ACK 1 [4 2]
        0 knows 1: [4 2]
        0 → 1: INFO 1 [4 2]
        1 knows 1: [4 2]
        1 → 2: INFO 1 [4 2]
        2 knows 1: [4 2]
        2 → 3: INFO 1 [4 2]
        3 knows 1: [4 2]
        3 → 0: INFO 1 [4 2]
        """
    )
    assert [(timer.rank, timer.name, timer.tag) for timer in talk.timers] == [(0, "NEXT_ROUND", 1)]


def test_a_train_is_a_header_and_an_array() -> None:
    for lossy, size in ((False, 40), (True, 44)):
        talk = Talk("train", RECEIVED, lossy=lossy)
        talk.start()
        assert [message.size for message in talk.under_way] == [size]


def test_the_train_takes_another_route_around_a_member_that_is_gone() -> None:
    talk = Talk("train", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.crash(2)  # with the train on its way to it
    talk.said()
    talk.leave(0, 2)
    talk.leave(3, 2)
    talk.says("")
    talk.leave(1, 2)
    talk.says("1 → 3: ACK 1 [4 3]")
    talk.deliver_all()
    assert talk.done == [1, 1, 0, 1]
    assert talk.stable(0) == [4, 3]


def test_a_train_that_comes_again_is_ignored() -> None:
    """Member 2 had passed the train on before it crashed, so member 3 gets it twice."""
    talk = Talk("train", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.deliver(1, 2)
    talk.crash(2)
    talk.deliver(2, 3)
    for rank in (0, 1, 3):
        talk.leave(rank, 2)
    talk.said()
    talk.deliver(1, 3)
    talk.says("")
    talk.deliver_all()
    assert talk.done == [1, 1, 0, 1]
    assert talk.stable(1) == [4, 2]  # what was on the train of a member that is gone does no harm


def test_the_next_lowest_rank_takes_over_and_opens_the_next_round() -> None:
    talk = Talk("train", RECEIVED)
    talk.start()
    talk.deliver(0, 1)
    talk.deliver(1, 2)
    talk.crash(0)
    talk.said()
    for rank in (1, 2, 3):
        talk.leave(rank, 0)
    talk.says(
        """
        1 begins 2
        1 → 2: ACK 2 [4 4]
        """
    )
    talk.deliver_all()
    assert talk.done == [0, 2, 2, 2]
    assert talk.stable(3) == [4, 2]


def test_an_old_train_of_the_same_number_has_not_come_home() -> None:
    """Member 0 is gone before its train reaches member 1, which opens round 1 itself."""
    talk = Talk("train", RECEIVED)
    talk.start()
    talk.crash(0)
    talk.leave(1, 0)
    talk.deliver(0, 1)
    assert talk.done == [0, 0, 0, 0]
    talk.leave(2, 0)
    talk.leave(3, 0)
    talk.deliver_all()
    assert talk.stable(1) == [4, 2]


def test_a_lost_train_is_sent_again() -> None:
    talk = Talk("train", RECEIVED, lossy=True)
    talk.start()
    talk.deliver(0, 1)
    talk.lose(1, 2)
    talk.said()
    talk.wake(0, "REPEAT")
    talk.wake(1, "REPEAT")
    talk.says(
        """
        0 → 1: ACK 1 [5 3]
        1 → 2: ACK 1 [4 3]
        """
    )
    talk.deliver_all()
    assert talk.done == [1, 1, 1, 1]
    talk.said()
    talk.wake(0, "REPEAT")
    talk.says("")  # INFO came home, the trainmaster rests


def test_the_last_one_goes_on_alone() -> None:
    talk = Talk("train", RECEIVED[:2])
    talk.start()
    talk.crash(1)
    talk.leave(0, 1)
    assert talk.done == [2, 0]
    talk.wake(0, "NEXT_ROUND")
    assert talk.done == [3, 0]


def test_a_newcomer_is_the_last_on_the_way() -> None:
    talk = Talk("train", RECEIVED, lossy=True)
    talk.group.members.sets[0] = 0b0111
    talk.start(0, 1, 2)
    talk.deliver(0, 1)
    talk.deliver(1, 2)
    talk.lose(2, 0)
    shared_sets.add(talk.group.members, 3, 3)
    talk.start(3)
    talk.join(2, 3)
    talk.said()
    talk.wake(2, "REPEAT")
    talk.deliver_all()
    assert talk.said().startswith("2 → 3: ACK 1 [4 2]\n3 begins 1\n3 → 0: ACK 1 [4 2]")
    assert talk.done == [1, 1, 1, 1]

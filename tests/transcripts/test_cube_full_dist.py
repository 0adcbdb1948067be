"""CubeFullDist, line by line (cube §3.2, Fig 5; lossy form cube §3.5).

Four members form a square: 0–1, 0–2, 1–3, 2–3.
"""

from __future__ import annotations

from tests.transcripts.talk import Message, Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5]]
ALL = (0, 1, 2, 3)


def stability(source: int, to: int, number: int, iteration: int, heard: tuple[int, ...], *numbers: int) -> Message:
    kind = {"source": source, "to": to, "kind": "STABILITY", "round": number, "iteration": iteration}
    return Message(heard=heard, numbers=numbers, **kind)  # type: ignore[arg-type]


def test_a_round() -> None:
    talk = Talk("cube_full_dist", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → 1: STABILITY 1.1 {0} [5 3]
        0 → 2: STABILITY 1.1 {0} [5 3]
        1 begins 1
        1 → 0: STABILITY 1.1 {1} [4 4]
        1 → 3: STABILITY 1.1 {1} [4 4]
        2 begins 1
        2 → 0: STABILITY 1.1 {2} [6 2]
        2 → 3: STABILITY 1.1 {2} [6 2]
        3 begins 1
        3 → 1: STABILITY 1.1 {3} [5 5]
        3 → 2: STABILITY 1.1 {3} [5 5]
        0 → 1: STABILITY 1.2 {0 1 2} [4 2]
        0 → 2: STABILITY 1.2 {0 1 2} [4 2]
        3 → 1: STABILITY 1.2 {1 2 3} [4 2]
        3 → 2: STABILITY 1.2 {1 2 3} [4 2]
        1 → 0: STABILITY 1.2 {0 1 3} [4 3]
        1 → 3: STABILITY 1.2 {0 1 3} [4 3]
        2 → 0: STABILITY 1.2 {0 2 3} [5 2]
        2 → 3: STABILITY 1.2 {0 2 3} [5 2]
        1 → 0: STABILITY 1.2 {0 1 2 3} [4 2]
        1 → 3: STABILITY 1.2 {0 1 2 3} [4 2]
        1 knows 1: [4 2]
        2 → 0: STABILITY 1.2 {0 1 2 3} [4 2]
        2 → 3: STABILITY 1.2 {0 1 2 3} [4 2]
        2 knows 1: [4 2]
        0 → 1: STABILITY 1.2 {0 1 2 3} [4 2]
        0 → 2: STABILITY 1.2 {0 1 2 3} [4 2]
        0 knows 1: [4 2]
        3 → 1: STABILITY 1.2 {0 1 2 3} [4 2]
        3 → 2: STABILITY 1.2 {0 1 2 3} [4 2]
        3 knows 1: [4 2]
        """
    )
    assert sorted((timer.rank, timer.name) for timer in talk.timers) == [(rank, "NEXT_ROUND") for rank in range(4)]


def test_the_size_is_header_round_array_and_bitmap() -> None:
    """36 + 4m + ceil(n/8) (MODELS §1); an iteration number of 4 B where messages can be lost."""
    for lossy, extra in ((False, 0), (True, 4)):
        talk = Talk("cube_full_dist", RECEIVED, lossy=lossy)
        talk.start(0)
        assert talk.under_way[0].size == 36 + 4 * 2 + 1 + extra


def test_a_neighbour_is_heard_once_in_an_iteration() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(0)
    talk.said()
    for _ in range(3):
        talk.receive(stability(1, 0, 1, 1, (1,), 4, 4))
    talk.says("")
    talk.receive(stability(2, 0, 1, 1, (2,), 6, 2))
    assert talk.said().startswith("0 → 1: STABILITY 1.2 {0 1 2} [4 2]")


def test_a_neighbour_one_iteration_ahead_is_not_waited_for_twice() -> None:
    """Member 1 heard from 0 and 3 and is in iteration 2 when 0 hears it; its iteration 1 was lost."""
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(0)
    talk.receive(stability(1, 0, 1, 2, (0, 1), 4, 3))
    talk.said()
    talk.receive(stability(2, 0, 1, 1, (2,), 6, 2))
    talk.says("0 → 1: STABILITY 1.2 {0 1 2} [4 2]\n0 → 2: STABILITY 1.2 {0 1 2} [4 2]")
    talk.receive(stability(2, 0, 1, 2, (0, 2), 5, 2))
    talk.says("0 → 1: STABILITY 1.3 {0 1 2} [4 2]\n0 → 2: STABILITY 1.3 {0 1 2} [4 2]")


def test_an_earlier_iteration_does_not_take_progress_back() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(0)
    talk.receive(stability(1, 0, 1, 2, (0, 1), 4, 3))
    talk.receive(stability(1, 0, 1, 1, (1,), 4, 4))
    talk.receive(stability(2, 0, 1, 1, (2,), 6, 2))
    talk.said()
    talk.receive(stability(2, 0, 1, 2, (0, 2), 5, 2))
    assert talk.said().startswith("0 → 1: STABILITY 1.3")


def test_who_joins_a_later_round_adds_what_it_holds() -> None:
    """Without its own R it would certify a round it took no part in."""
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(2)
    talk.said()
    talk.receive(stability(0, 2, 4, 1, (0, 1, 3), 4, 3))
    talk.says(
        """
        2 begins 4
        2 → 0: STABILITY 4.1 {0 1 2 3} [4 2]
        2 → 3: STABILITY 4.1 {0 1 2 3} [4 2]
        2 → 0: STABILITY 4.1 {0 1 2 3} [4 2]
        2 → 3: STABILITY 4.1 {0 1 2 3} [4 2]
        2 knows 4: [4 2]
        """
    )


def test_joining_forgets_what_was_heard_in_the_round_before() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(0)
    talk.receive(stability(1, 0, 1, 1, (1,), 4, 4))
    talk.receive(stability(2, 0, 2, 1, (2,), 6, 2))
    assert talk.under_way[-1].heard == (0, 2)
    talk.said()
    talk.receive(stability(2, 0, 2, 1, (2,), 6, 2))
    talk.says("")  # 1 has not been heard in round 2


def test_a_round_joined_during_delta_is_not_opened_again() -> None:
    talk = Talk("cube_full_dist", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.wake(3, "NEXT_ROUND")
    talk.deliver_all()
    assert talk.done == [2, 2, 2, 2]
    talk.said()
    for rank in (0, 1, 2):
        talk.wake(rank, "NEXT_ROUND")
    talk.says("")


def test_an_earlier_round_is_stale() -> None:
    talk = Talk("cube_full_dist", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.said()
    talk.receive(stability(1, 0, 1, 1, ALL, 0, 0))
    talk.says("")
    talk.deliver_all()
    assert talk.stable(0) == [4, 2]


def test_an_unfinished_member_repeats_its_state() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(0)
    talk.receive(stability(1, 0, 1, 1, (1,), 4, 4))
    talk.said()
    talk.wake(0, "REPEAT")
    talk.says("0 → 1: STABILITY 1.1 {0 1} [4 3]\n0 → 2: STABILITY 1.1 {0 1} [4 3]")
    assert talk.has_timer(0, "REPEAT")


def test_rounds_that_follow_faster_than_repeats_leave_nobody_behind() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(0)
    talk.receive(stability(1, 0, 2, 1, (1,), 4, 4))
    talk.said()
    talk.wake(0, "REPEAT")  # of round 1
    talk.says("0 → 1: STABILITY 2.1 {0 1} [4 3]\n0 → 2: STABILITY 2.1 {0 1} [4 3]")
    assert [timer.tag for timer in talk.timers] == [2]


def test_a_finished_member_answers_one_that_lags_and_no_result() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start()
    talk.deliver_all()
    talk.said()
    talk.receive(stability(1, 0, 1, 1, (1,), 4, 4))
    talk.says("0 → 1: RESULT 1.2 {0 1 2 3} [4 2]")
    talk.receive(stability(1, 0, 1, 2, ALL, 4, 2))
    talk.says("")
    result = Message(source=1, to=0, kind="RESULT", round=1, iteration=2, heard=(0, 1), numbers=(4, 2))
    talk.receive(result)
    talk.says("")


def test_a_result_ends_the_round_of_one_that_lags() -> None:
    talk = Talk("cube_full_dist", RECEIVED, lossy=True)
    talk.start(2)
    talk.said()
    talk.receive(Message(source=0, to=2, kind="RESULT", round=1, iteration=2, heard=ALL, numbers=(4, 2)))
    assert talk.said().endswith("2 knows 1: [4 2]")


def test_neither_bit_nor_message_of_one_that_left_is_waited_for() -> None:
    talk = Talk("cube_full_dist", RECEIVED)
    talk.crash(3)
    talk.start(0, 1, 2)
    talk.deliver_all()
    assert talk.done == [0, 0, 0, 0]
    talk.said()
    for rank in (0, 1, 2):
        talk.leave(rank, 3)
    talk.deliver_all()
    assert talk.done[:3] == [1, 1, 1]
    assert {tuple(talk.stable(rank)) for rank in (0, 1, 2)} == {(4, 2)}
    assert "→ 3" not in talk.said()


def test_what_one_that_left_said_still_bounds_the_round() -> None:
    talk = Talk("cube_full_dist", [[5], [4], [6], [1]])
    talk.start()
    talk.deliver(3, 1)
    talk.crash(3)
    for rank in (0, 1, 2):
        talk.leave(rank, 3)
    talk.deliver_all()
    assert talk.stable(1) == [1]


def test_without_a_live_neighbour_nothing_goes_on() -> None:
    talk = Talk("cube_full_dist", RECEIVED)
    talk.start(0)
    talk.said()
    talk.leave(0, 1)
    talk.leave(0, 2)
    talk.says("")
    talk.leave(0, 3)
    talk.says("0 knows 1: [5 3]")

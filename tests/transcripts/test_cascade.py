"""Cascade, line by line: five members in a tree, along the dissemination pattern, and on a hypercube."""

from __future__ import annotations

from tests.transcripts.talk import Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5], [7, 3]]


def test_a_wave_over_a_tree_climbs_and_comes_down() -> None:
    talk = Talk("cascade", RECEIVED, overlay="tree")
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        1 begins 1
        2 begins 1
        2 → 0: MINIMUM 1 [6 2]
        3 begins 1
        3 → 1: MINIMUM 1 [5 5]
        4 begins 1
        4 → 1: MINIMUM 1 [7 3]
        1 → 0: MINIMUM 1 [4 3]
        0 → 1: MINIMUM 1 [4 2]
        0 → 2: MINIMUM 1 [4 2]
        0 knows 1: [4 2]
        1 → 3: MINIMUM 1 [4 2]
        1 → 4: MINIMUM 1 [4 2]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        3 knows 1: [4 2]
        4 knows 1: [4 2]
        """
    )


def test_a_wave_over_a_hypercube_with_one_member_beyond_its_corners() -> None:
    """0 … 3 are the corners of a square; 4 reports to 0, and hears from it at the end."""
    talk = Talk("cascade", RECEIVED, overlay="hypercube")
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        1 begins 1
        1 → 0: MINIMUM 1 [4 4]
        2 begins 1
        2 → 3: MINIMUM 1 [6 2]
        3 begins 1
        3 → 2: MINIMUM 1 [5 5]
        4 begins 1
        4 → 0: MINIMUM 1 [7 3]
        3 → 1: MINIMUM 1 [5 2]
        2 → 0: MINIMUM 1 [5 2]
        0 → 1: MINIMUM 1 [5 3]
        0 → 2: MINIMUM 1 [4 3]
        0 → 4: MINIMUM 1 [4 2]
        0 knows 1: [4 2]
        1 → 3: MINIMUM 1 [4 3]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        4 knows 1: [4 2]
        3 knows 1: [4 2]
        """
    )


def test_a_wave_along_the_dissemination_pattern() -> None:
    talk = Talk("cascade", RECEIVED[:3], overlay="dissemination")
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → 1: MINIMUM 1 [5 3]
        1 begins 1
        1 → 2: MINIMUM 1 [4 4]
        2 begins 1
        2 → 0: MINIMUM 1 [6 2]
        1 → 0: MINIMUM 1 [4 3]
        2 → 1: MINIMUM 1 [4 2]
        0 → 2: MINIMUM 1 [5 2]
        0 knows 1: [4 2]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        """
    )


def test_own_messages_count_up_to_the_moment_of_sending() -> None:
    """There is no array of a round: an inner member reads its R when its last child has reported."""
    talk = Talk("cascade", RECEIVED, overlay="tree")
    talk.start()
    talk.deliver(source=3)
    talk.group.received[1] = [9, 9]
    talk.said()
    talk.deliver(source=4)
    talk.says("1 → 0: MINIMUM 1 [5 3]")


def test_late_doubled_and_reordered_minima_are_harmless() -> None:
    talk = Talk("cascade", RECEIVED[:2], overlay="tree")
    talk.start()
    old = talk.lose(source=1)
    talk.receive(old)
    talk.deliver_all()
    talk.group.received[:] = 8
    for rank in (1, 0):
        talk.wake(rank, "NEXT_ROUND")
    talk.deliver_all()
    talk.said()
    for _ in range(3):
        talk.receive(old)
    talk.says("")
    assert [talk.stable(rank) for rank in (0, 1)] == [[8, 8], [8, 8]]


def test_a_lost_minimum_is_asked_for() -> None:
    talk = Talk("cascade", RECEIVED[:3], lossy=True, overlay="tree")
    talk.start()
    talk.lose(source=2, to=0)
    talk.deliver_all()
    talk.said()
    talk.wake(0, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        0 → 2: ASK 1
        2 → 0: MINIMUM 1 [6 2]
        0 → 1: MINIMUM 1 [4 2]
        0 → 2: MINIMUM 1 [4 2]
        0 knows 1: [4 2]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        """
    )


def test_an_ask_repeats_what_may_have_been_lost() -> None:
    """1 waits for the frontier, which never left, since the minimum of 1 was lost."""
    talk = Talk("cascade", RECEIVED[:2], lossy=True, overlay="tree")
    talk.start()
    talk.lose(source=1, to=0)
    talk.said()
    talk.wake(1, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        1 → 0: ASK 1 [4 4]
        0 → 1: MINIMUM 1 [4 3]
        0 knows 1: [4 3]
        1 knows 1: [4 3]
        """
    )


def test_where_nothing_is_lost_a_late_child_is_waited_for() -> None:
    talk = Talk("cascade", [[1], [1], [1]], overlay="tree", delta_ns=0)
    talk.start()
    talk.now_ns = 20
    talk.deliver_all()
    talk.group.received[:] = 2
    for rank in (0, 1, 2):
        talk.wake(rank, "NEXT_ROUND")
    talk.deliver(source=1)
    talk.now_ns = 100
    for _ in range(2):
        talk.wake(0, "REPEAT")
    assert talk.done[0] == 1
    talk.deliver_all()
    assert talk.stable(0) == [2]


def test_a_wave_goes_on_without_a_child_that_is_overdue() -> None:
    """What the child said before counts, and its minimum of this wave in the next."""
    talk = Talk("cascade", [[1], [1], [1]], lossy=True, overlay="tree", delta_ns=0)
    talk.start()
    talk.now_ns = 20
    talk.deliver_all()
    talk.group.received[:] = 2
    talk.said()
    for rank in (0, 1, 2):
        talk.wake(rank, "NEXT_ROUND")
    talk.deliver(source=1)
    talk.now_ns = 100
    for _ in range(2):  # the first one is of the first wave
        talk.wake(0, "REPEAT")
    talk.says(
        """
        0 begins 2
        1 begins 2
        1 → 0: MINIMUM 2 [2]
        2 begins 2
        2 → 0: MINIMUM 2 [2]
        0 → 1: MINIMUM 2 [1]
        0 → 2: MINIMUM 2 [1]
        0 knows 2: [1]
        """
    )
    talk.deliver_all()
    assert [talk.stable(rank) for rank in range(3)] == [[1]] * 3
    talk.wake(0, "NEXT_ROUND")
    talk.wake(1, "NEXT_ROUND")
    talk.wake(2, "NEXT_ROUND")
    talk.deliver_all()
    assert [talk.stable(rank) for rank in range(3)] == [[2]] * 3


def test_a_member_with_nothing_unstable_sends_nothing_until_it_is_asked() -> None:
    talk = Talk("cascade", [[1], [1], [1]], overlay="tree")
    talk.start()
    talk.deliver_all()
    talk.said()
    talk.wake(1, "NEXT_ROUND")
    talk.says(
        """
        1 begins 2
        1 knows 2: [1]
        """
    )
    talk.group.received[0] = talk.group.received[2] = 2
    talk.wake(2, "NEXT_ROUND")
    talk.deliver_all()
    talk.says(
        """
        2 begins 2
        2 → 0: MINIMUM 2 [2]
        0 begins 2
        """
    )
    for _ in range(2):  # the first one is of the first wave
        talk.wake(0, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        0 → 1: ASK 2 [1]
        1 begins 3
        1 → 0: MINIMUM 2 [1]
        0 → 1: MINIMUM 2 [1]
        0 → 2: MINIMUM 2 [1]
        0 knows 2: [1]
        1 knows 3: [1]
        2 knows 2: [1]
        """
    )


def test_children_that_come_early_are_told_to_linger() -> None:
    """The minimum of 1 comes 10 ns after the wave began, that of 2 after 50 ns; 1 then waits for the difference."""
    talk = Talk("cascade", [[1], [1], [1]], overlay="tree")
    talk.start()
    talk.now_ns = 10
    talk.deliver(source=1)
    talk.now_ns = 50
    talk.deliver(source=2)
    lingers = {one.to: one.remark for one in talk.under_way}
    assert lingers == {1: (50 + 50) - (10 + 10), 2: 0}
    talk.now_ns = 60
    talk.deliver_all()
    delays = {timer.rank: timer.delay_ns for timer in talk.timers if timer.name == "NEXT_ROUND"}
    assert delays == {0: 1000, 1: 1000, 2: 1000}, "not before a lap was measured"
    talk.group.received[:] = 2
    for rank in (1, 2, 0):
        talk.wake(rank, "NEXT_ROUND")
    talk.deliver_all()
    delays = {timer.rank: timer.delay_ns for timer in talk.timers if timer.name == "NEXT_ROUND"}
    assert delays[0] == delays[2] == 1000
    assert delays[1] > 1000


def test_an_excluded_member_is_skipped_and_minima_start_again_from_r() -> None:
    """Over the tree, 3 moves up to the place of 2 and reports to 0; what was stable stays stable."""
    talk = Talk("cascade", RECEIVED[:4], overlay="tree")
    talk.start()
    talk.deliver_all()
    assert talk.stable(0) == [4, 2]
    talk.crash(2)
    talk.said()
    for rank in (0, 1, 3):
        talk.leave(rank, 2)
    talk.says(
        """
        0 → 1: ASK 1
        0 → 3: ASK 1
        1 → 0: ASK 1 [4 4]
        1 → 0: MINIMUM 1 [4 4]
        3 → 0: ASK 1 [5 5]
        3 → 0: MINIMUM 1 [5 5]
        """
    )
    talk.deliver_all()
    assert [talk.stable(rank) for rank in (0, 1, 3)] == [[4, 3]] * 3

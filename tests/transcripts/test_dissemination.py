"""Dissemination, line by line: five members on a ring, in strides of 1, 2 and 4; or, with radix 3, of 1, 2 and 3."""

from __future__ import annotations

import dataclasses

from tests.transcripts.talk import Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5], [7, 3]]


def test_a_round() -> None:
    talk = Talk("dissemination", RECEIVED)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → 1: MINIMUM 1 [5 3]
        1 begins 1
        1 → 2: MINIMUM 1 [4 4]
        2 begins 1
        2 → 3: MINIMUM 1 [6 2]
        3 begins 1
        3 → 4: MINIMUM 1 [5 5]
        4 begins 1
        4 → 0: MINIMUM 1 [7 3]
        1 → 3: MINIMUM 1 [4 3]
        2 → 4: MINIMUM 1 [4 2]
        3 → 0: MINIMUM 1 [5 2]
        4 → 1: MINIMUM 1 [5 3]
        0 → 2: MINIMUM 1 [5 3]
        3 → 2: MINIMUM 1 [4 2]
        4 → 3: MINIMUM 1 [4 2]
        0 → 4: MINIMUM 1 [5 2]
        1 → 0: MINIMUM 1 [4 3]
        2 → 1: MINIMUM 1 [4 2]
        2 knows 1: [4 2]
        3 knows 1: [4 2]
        4 knows 1: [4 2]
        0 knows 1: [4 2]
        1 knows 1: [4 2]
        """
    )
    assert sorted((timer.rank, timer.name) for timer in talk.timers) == [(rank, "NEXT_ROUND") for rank in range(5)]


def test_a_larger_radix_needs_fewer_steps() -> None:
    talk = Talk("dissemination", RECEIVED, radix=3)
    talk.start()
    assert [(one.source, one.to) for one in talk.under_way][:4] == [(0, 1), (0, 2), (1, 2), (1, 3)]
    talk.said()
    talk.deliver_all()
    talk.says(
        """
        2 → 0: MINIMUM 1 [4 2]
        3 → 1: MINIMUM 1 [4 2]
        4 → 2: MINIMUM 1 [5 2]
        0 → 3: MINIMUM 1 [5 3]
        1 → 4: MINIMUM 1 [4 3]
        0 knows 1: [4 2]
        1 knows 1: [4 2]
        2 knows 1: [4 2]
        3 knows 1: [4 2]
        4 knows 1: [4 2]
        """
    )


def test_the_size_does_not_depend_on_the_group() -> None:
    """A header of 32 B, the round, the view and the array."""
    for members in (2, 40):
        talk = Talk("dissemination", [[1, 2]] * members)
        talk.start(0)
        assert talk.under_way[0].size == 32 + 4 + 4 + 4 * 2


def test_a_lost_minimum_is_asked_for() -> None:
    talk = Talk("dissemination", RECEIVED[:3], lossy=True)
    talk.start()
    talk.lose(source=0, to=1)
    talk.deliver_all()
    talk.said()
    talk.wake(1, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        1 → 0: ASK 1
        0 → 1: MINIMUM 1 [5 3]
        1 → 0: MINIMUM 1 [4 3]
        1 knows 1: [4 2]
        0 knows 1: [4 2]
        """
    )


def test_an_excluded_member_is_skipped_and_the_round_runs_again_from_r() -> None:
    """Ranks 0, 1 and 3 stand at places 0, 1 and 2; what 1 and 3 know to be stable stays so."""
    talk = Talk("dissemination", RECEIVED[:4])
    talk.start()
    talk.crash(2)
    talk.deliver_all()
    assert [talk.stable(rank) for rank in (0, 1, 3)] == [[0, 0], [4, 2], [4, 2]]
    talk.said()
    talk.leave(0, 2)
    talk.leave(1, 2)
    talk.deliver_all()
    talk.says(
        """
        0 → 3: ASK 1
        0 → 1: ASK 1 [5 3]
        0 → 1: MINIMUM 1 [5 3]
        1 → 0: ASK 1
        1 → 3: ASK 1 [4 4]
        1 → 3: MINIMUM 1 [4 4]
        1 → 0: MINIMUM 1 [4 3]
        0 → 1: MINIMUM 1 [5 3]
        """
    )
    talk.leave(3, 2)
    talk.deliver_all()
    talk.says(
        """
        3 → 1: ASK 1
        3 → 0: ASK 1 [5 5]
        3 → 0: MINIMUM 1 [5 5]
        1 → 3: MINIMUM 1 [4 4]
        0 → 3: MINIMUM 1 [5 3]
        0 knows 1: [4 3]
        3 → 1: MINIMUM 1 [4 4]
        """
    )
    assert [talk.stable(rank) for rank in (0, 1, 3)] == [[4, 3]] * 3


def test_while_nothing_is_unstable_a_round_ends_without_a_message() -> None:
    talk = Talk("dissemination", [[1], [1]])
    talk.start()
    talk.deliver_all()
    talk.said()
    talk.wake(0, "NEXT_ROUND")
    talk.says(
        """
        0 begins 2
        0 knows 2: [1]
        """
    )
    talk.group.received[:] = 2
    talk.wake(0, "NEXT_ROUND")
    talk.says(
        """
        0 begins 3
        0 → 1: MINIMUM 2 [2]
        """
    )
    talk.deliver_all()
    talk.says(
        """
        1 begins 2
        1 → 0: MINIMUM 2 [2]
        1 knows 2: [2]
        0 knows 3: [2]
        """
    )


def test_a_round_ends_also_at_a_member_that_has_heard_of_the_next() -> None:
    """Otherwise one that always hears of the next round first would end none."""
    talk = Talk("dissemination", [[1], [2], [3]])
    talk.start()
    first, second = talk.lose(source=0, to=1), talk.lose(source=1, to=2)
    talk.receive(dataclasses.replace(first, round=2))
    assert talk.begun[1] == 2
    talk.receive(dataclasses.replace(second, source=2, to=1, round=1, numbers=(1,)))
    assert talk.done[1] == 1

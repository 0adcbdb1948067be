"""Scheduled calls: in order of time, then of scheduling, and never after their epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cubecast.member.timers import Timers


def test_calls_come_by_time_and_ties_in_the_order_of_scheduling() -> None:
    timers = Timers()
    called: list[str] = []
    for time_ns, what in ((20, "late"), (10, "first"), (10, "second"), (5, "early")):
        timers.at(time_ns, called.append, what)
    assert timers.next_ns == 5
    timers.run(10)
    assert called == ["early", "first", "second"]
    assert timers.next_ns == 20
    timers.run(100)
    assert called == ["early", "first", "second", "late"]
    assert timers.next_ns is None


def test_what_a_call_schedules_is_due_at_the_next_run() -> None:
    timers = Timers()
    called: list[int] = []

    def again(count: int) -> None:
        called.append(count)
        timers.at(0, again, count + 1)

    timers.at(0, again, 0)
    timers.run(10)
    assert called == [0]
    assert timers.next_ns == 0
    timers.run(10)
    assert called == [0, 1]


def test_calls_of_an_earlier_epoch_are_forgotten() -> None:
    timers = Timers()
    called: list[str] = []
    timers.at(1, called.append, "old")
    timers.begin_epoch()
    timers.at(1, called.append, "new")
    timers.run(1)
    assert called == ["new"]


def test_a_call_that_begins_an_epoch_ends_the_calls_that_were_due_with_it() -> None:
    timers = Timers()
    called: list[str] = []
    timers.at(1, lambda: timers.at(1, called.append, "asked before"))
    timers.at(1, timers.begin_epoch)
    timers.at(1, called.append, "due with it")
    timers.at(2, called.append, "later")
    timers.run(1)
    timers.run(9)
    assert called == []


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 60)))
def test_every_call_is_made_once_at_the_first_run_that_is_late_enough(times: list[int], runs: list[int]) -> None:
    timers = Timers()
    called: list[tuple[int, int]] = []
    for place, time_ns in enumerate(times):
        timers.at(time_ns, lambda *one: called.append(one), time_ns, place)
    for now_ns in sorted(runs):
        timers.run(now_ns)
        assert called == sorted((time_ns, place) for place, time_ns in enumerate(times) if time_ns <= now_ns)

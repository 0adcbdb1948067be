"""When stability rounds begin: after messages and a pause, unless a buffer or the application requests one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubecast.member.rounds import NS, Rounds

ROUND_7 = (0, 7)


class Bench:
    """A stack as its rounds see it, with a clock that is moved by hand."""

    def __init__(self) -> None:
        """Nothing published, nothing held."""
        self.now_ns = 0
        self.window = 4096
        self.window_bytes = 1 << 20
        self.round_every_s = 0.1
        self.began: list[tuple[int, int]] = []
        self.unstable_messages = 0
        self.unstable_bytes = 0
        self.own_count = 0
        self.own_settled = 0
        self.others_unstable = False
        self.behind = False
        self._timers: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []

    def later(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Set a timer."""
        self._timers.append((self.now_ns + delay_ns, function, arguments))

    def begin_round(self, timer: int, tag: int) -> None:
        """A round begins."""
        self.began.append((timer, tag))

    def own_unstable(self) -> tuple[int, int]:
        """Own messages that are not stable."""
        return self.unstable_messages, self.unstable_bytes

    def published(self) -> int:
        """Own messages."""
        return self.own_count

    def own_stable(self) -> int:
        """Own stable messages."""
        return self.own_settled

    def is_unstable(self) -> bool:
        """Is anything held?"""
        return self.others_unstable or self.unstable_messages > 0

    def is_behind(self) -> bool:
        """Is an application or a disk behind?"""
        return self.behind

    def publish(self, count: int, size: int = 10) -> None:
        """Own messages."""
        self.own_count += count
        self.unstable_messages += count
        self.unstable_bytes += count * size

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        until_ns = self.now_ns + round(seconds * NS)
        while due := [one for one in self._timers if one[0] <= until_ns]:
            first = min(due, key=lambda one: one[0])
            self._timers.remove(first)
            self.now_ns = first[0]
            first[1](*first[2])
        self.now_ns = until_ns


def test_a_message_after_a_quiet_time_has_a_head_start_before_the_round() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    rounds.rest(*ROUND_7, NS // 10)
    bench.wait(1)
    assert bench.began == [], "everything is stable"
    bench.others_unstable = True
    rounds.watch()
    bench.wait(0.9 * rounds.round_s)
    assert bench.began == [], "the round overtakes the message"
    bench.wait(2 * rounds.round_s)
    assert bench.began == [ROUND_7]


def test_while_messages_flow_a_round_begins_when_the_pause_is_over() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    bench.others_unstable = True
    rounds.rest(*ROUND_7, NS // 10)
    rounds.watch()
    bench.wait(0.099)
    assert bench.began == []
    bench.wait(0.001)
    assert bench.began == [ROUND_7]


def test_no_round_begins_while_everything_is_stable() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    rounds.rest(*ROUND_7, NS // 10)
    for _ in range(50):
        rounds.watch()
        bench.wait(1)
    assert bench.began == []


def test_a_full_buffer_calls_for_a_round_at_once() -> None:
    for count, size in ((4096, 1), (1, 1 << 19)):
        bench = Bench()
        rounds = Rounds(bench)
        rounds.rest(*ROUND_7, 10 * NS)
        bench.publish(count, size)
        rounds.watch()
        bench.wait(0)
        assert bench.began == [ROUND_7]


def test_a_buffer_that_a_round_did_not_empty_waits_before_it_calls_for_the_next() -> None:
    """What it waits for is a slow member: rounds that follow each other at once would cost all members time."""
    bench = Bench()
    rounds = Rounds(bench, round_s=0.01)
    bench.publish(4096)
    for tag, released in ((1, 0), (2, 500), (3, 0)):
        rounds.note(done=False)
        bench.wait(0.01)
        bench.own_settled += released
        bench.publish(released)
        bench.unstable_messages -= released
        rounds.note(done=True)
        rounds.rest(0, tag, NS // 10)
        bench.wait(3 * rounds.round_s)
        assert len(bench.began) == tag - 1
        bench.wait(rounds.round_s)
        assert bench.began[-1] == (0, tag)
    rounds.note(done=False)
    bench.own_settled += 4000
    bench.publish(4000)
    bench.unstable_messages -= 4000
    rounds.note(done=True)
    rounds.rest(0, 9, NS // 10)
    bench.wait(0)
    assert bench.began[-1] == (0, 9), "it released much: the next one begins at once"


def test_the_application_may_ask_for_rounds_until_its_message_is_stable() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    rounds.rest(*ROUND_7, 10 * NS)
    bench.publish(1)
    rounds.ask(1)
    assert bench.began == []
    bench.wait(0.01)
    assert bench.began == [ROUND_7]
    rounds.note(done=False)
    bench.wait(0.01)
    rounds.note(done=True)
    rounds.rest(0, 8, 10 * NS)
    bench.wait(0)
    assert bench.began == [ROUND_7, (0, 8)], "it is not stable yet: another round follows at once"
    rounds.note(done=True)
    bench.own_settled, bench.unstable_messages = 1, 0
    rounds.rest(0, 9, 10 * NS)
    bench.wait(1)
    assert bench.began == [ROUND_7, (0, 8)]


def test_a_round_that_others_began_needs_no_wake() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    bench.others_unstable = True
    rounds.rest(*ROUND_7, NS // 10)
    rounds.note(done=False)
    bench.wait(1)
    assert bench.began == []


def test_the_length_of_a_round_is_measured_and_smoothed() -> None:
    bench = Bench()
    rounds = Rounds(bench, round_s=0.01)
    for _ in range(40):
        rounds.note(done=False)
        bench.wait(0.05)
        rounds.note(done=True)
    assert rounds.count == 40
    assert abs(rounds.round_s - 0.05) < 0.001


def test_rounds_for_an_application_that_is_behind_are_ever_longer_apart_until_there_is_news() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    bench.behind = True
    gaps = []
    for tag in range(1, 8):
        began_ns = bench.now_ns
        rounds.rest(0, tag, NS // 10)
        while len(bench.began) < tag:
            bench.wait(0.01)
        gaps.append((bench.now_ns - began_ns) / NS)
        rounds.note(done=False)
        rounds.note(done=True)
    assert gaps[0] == pytest.approx(0.1, abs=0.02)
    assert gaps[1:] == pytest.approx([0.2, 0.3, 0.5, 0.9, 1.7, 2.1], abs=0.03)
    rounds.news()
    rounds.rest(0, 8, NS // 10)
    bench.wait(0.12)
    assert bench.began[-1] == (0, 8)


def test_news_begin_a_round_after_the_usual_pause_and_nothing_happens_when_nobody_is_behind() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    rounds.rest(*ROUND_7, NS // 10)
    bench.wait(5)
    rounds.news()
    bench.wait(5)
    assert bench.began == []
    bench.behind = True
    rounds.news()
    bench.wait(0.09)
    assert bench.began == []
    bench.wait(0.02)
    assert bench.began == [ROUND_7]


def test_a_message_does_not_wait_for_a_round_that_is_only_for_levels() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    bench.behind = True
    for tag in range(1, 7):
        rounds.rest(0, tag, NS // 10)
        bench.wait(3)
        rounds.note(done=False)
        rounds.note(done=True)
    rounds.rest(0, 7, NS // 10)
    bench.wait(0.2)
    bench.others_unstable = True
    rounds.watch()
    bench.wait(0.11)
    assert bench.began[-1] == (0, 7)


def test_a_round_can_be_asked_for_once() -> None:
    bench = Bench()
    rounds = Rounds(bench)
    rounds.rest(*ROUND_7, NS // 10)
    rounds.ask_once()
    bench.wait(0.001)
    assert bench.began == [ROUND_7]
    rounds.note(done=False)
    rounds.note(done=True)
    rounds.rest(0, 8, NS // 10)
    bench.wait(5)
    assert bench.began == [ROUND_7]

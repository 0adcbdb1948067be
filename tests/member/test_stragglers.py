"""Who lacks messages that were delivered here a while ago."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cubecast.member.effects import Notice
from cubecast.member.stragglers import Stragglers
from cubecast.member.troubles import AGAIN_NS, Troubles

AFTER_NS = 3_000_000_000
STEP_NS = 200_000_000


def test_a_member_that_stops_is_found_after_a_while() -> None:
    stragglers = Stragglers(AFTER_NS, 100)
    found = [stragglers.found(step * STEP_NS, 50 * step, [50 * step, 50 * min(step, 20)]) for step in range(60)]
    first = next(step for step, one in enumerate(found) if one)
    assert 20 + 3 + 15 <= first <= 20 + 3 + 15 + 2, "100 messages take two steps, and 3 s fifteen"
    assert found[-1] == [(1, 50 * 59 - 50 * 20)]


@given(
    rates=st.lists(st.integers(0, 100_000), min_size=1, max_size=80),
    age=st.integers(0, 14),
    messages=st.integers(1, 1000),
)
def test_a_member_whose_known_progress_is_less_old_is_never_found(rates: list[int], age: int, messages: int) -> None:
    stragglers = Stragglers(AFTER_NS, messages)
    own = [0] * (age + 1)
    for step, rate in enumerate(rates):
        own.append(own[-1] + rate)
        assert stragglers.found(step * STEP_NS, own[-1], [own[-1], own[-1 - age]]) == []


def test_a_new_view_counts_from_zero() -> None:
    stragglers = Stragglers(AFTER_NS, 10)
    for step in range(30):
        stragglers.found(step * STEP_NS, 1000, [1000, 1000])
    stragglers.begin_view()
    for step in range(30, 60):
        assert stragglers.found(step * STEP_NS, 0, [0, 0]) == []


def test_a_trouble_is_reported_when_it_has_lasted_and_again_at_intervals() -> None:
    troubles = Troubles(after_ns=AFTER_NS)
    slow = Notice("slow", 3)
    assert [ns for ns in range(0, 2 * AGAIN_NS + AFTER_NS, STEP_NS) if troubles.due(ns, [slow])] == [
        AFTER_NS,
        AFTER_NS + AGAIN_NS,
    ]
    later_ns = 4 * AGAIN_NS
    assert troubles.due(later_ns, []) == troubles.due(later_ns + 1, [slow]) == []
    assert troubles.due(later_ns + 1 + AFTER_NS, [slow]) == [slow]

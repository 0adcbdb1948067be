"""A trace that is divided anywhere is judged as one that is not: by every checker, whole or broken, with and without
views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError
from cubecast.trace.checkers import CHECKERS, causal_stability
from cubecast.trace.checkers.facts import facts_of
from cubecast.trace.checkers.fold import judge
from cubecast.trace.files import Trace
from cubecast.trace.schema import (
    CAUSAL,
    DELIVER,
    EVENT_NAMES,
    EVERYONE,
    MULTICAST,
    NOBODY,
    RETURNED,
    SEND,
    SENT,
    Events,
    blank_events,
)
from tests.property import test_checkers, test_view_checkers
from tests.support.checkers import check_by

MEMBERS = 4
MEMBERSHIP_KINDS = [4, 5, 6, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]
KINDS = [list(range(len(EVENT_NAMES))), MEMBERSHIP_KINDS, [4, 11, 12, 13, 14, 16, 22, 23], [4, 15, 16, 24], [0, 1, 3]]


@dataclass(frozen=True)
class Divided:
    """A trace in parts."""

    trace: Trace
    cuts: list[int]

    @property
    def scenario(self) -> dict[str, Any]:
        return self.trace.scenario

    @property
    def metrics(self) -> dict[str, Any]:
        return self.trace.metrics

    def parts(self) -> Iterator[tuple[int, Events]]:
        buffer = blank_events(len(self.trace.events))  # used again for each part, as by a reader of files
        ends = [0, *sorted(cut % (len(buffer) + 1) for cut in self.cuts), len(buffer)]
        for start, end in pairwise(ends):
            buffer[: end - start] = self.trace.events[start:end]
            yield start, buffer[: end - start]

    def events_at(self, rows: npt.NDArray[np.int64]) -> Events:
        return self.trace.events_at(rows)

    def whole(self) -> Trace:
        return self.trace


def any_rows(seed: int) -> Trace:
    """Rows without rhyme or reason, of all kinds, in ranges so small that they concern the same things."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(0, 120))
    events = blank_events(count)
    events["event"] = draw.choice(np.array(KINDS[draw.integers(len(KINDS))], np.int8), count)
    events["time_ns"] = np.sort(draw.integers(0, 500, count))
    ranges = {"message": 6, "sequence": 5, "round": 4, "link": 3, "entered_ns": 100, "size": 100, "layer": 3}
    for column, high in (ranges | dict.fromkeys(("member", "peer", "sender"), MEMBERS)).items():
        events[column] = draw.integers(0, high, count)
    kind, chance = events["event"], draw.random(count)
    events["peer"][(kind == DELIVER) & (chance < 0.8)] = NOBODY
    events["peer"][(kind == SEND) & (chance < 0.3)] = EVERYONE
    own = np.isin(kind, (SENT, RETURNED))
    events["sender"][own] = events["member"][own]
    events["message"][own & (chance < 0.2)] = NOBODY
    events["sequence"][kind == SENT] += 1
    names = [["a", 0], ["b", 0], ["a", 1], ["c", 0]]
    scenario = {"members": MEMBERS, "family": "causal", "rounds": seed % 4, "names": names}
    metrics = {"messages": 1, "hops": 2, "drops": 0, "rtt_first_ms": None, "rtt_last_ms": 1e-5}
    return Trace(events=events, scenario=scenario, metrics=metrics)


def broken_views(seed: int) -> Trace:
    trace = test_view_checkers.obedient(seed, 10 + seed % 80)
    scenario = trace.scenario | {
        "settled": True,
        "left_settled": bool(seed % 2),
        "quorum": ("majority", "any")[seed % 2],
    }
    return Trace(events=test_view_checkers.damaged(trace.events, seed), scenario=scenario, metrics={})


def broken_rounds(seed: int) -> Trace:
    trace = test_checkers.small_trace(seed, 1 + seed % 4)
    scenario = trace.scenario | {"family": "causal", "floods": bool(seed % 2)}
    return Trace(events=test_checkers.damaged(trace.events, seed), scenario=scenario, metrics=trace.metrics)


def findings(source: Any) -> list[Any]:
    """What every checker finds, whether the scenario promises it or not; or why the trace cannot be judged."""
    try:
        facts = facts_of(source)
        return judge(facts, [checker.scan(facts) for checker in CHECKERS])
    except LocalProtocolError as error:
        return [str(error)]


@pytest.mark.parametrize("make", [any_rows, broken_views, broken_rounds])
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 200), max_size=6))
@settings(deadline=None, max_examples=100)
def test_a_divided_trace_is_judged_as_the_whole(make: Any, seed: int, cuts: list[int]) -> None:
    trace = make(seed)
    assert findings(Divided(trace, cuts)) == findings(trace)


@pytest.mark.parametrize("make", [any_rows, broken_views, broken_rounds])
@pytest.mark.parametrize("seed", range(4))
def test_a_trace_in_parts_of_one_row_is_judged_as_the_whole(make: Any, seed: int) -> None:
    trace = make(seed)
    assert findings(Divided(trace, list(range(len(trace.events) + 1)))) == findings(trace)


def test_every_checker_finds_something_in_these_traces() -> None:
    """Otherwise the comparison would say nothing of it."""
    broken = [make(seed) for make in (any_rows, broken_views, broken_rounds) for seed in range(60)]
    all_found = [found for trace in broken if len(found := findings(trace)) == len(CHECKERS)]
    silent = [checker.NAME for place, checker in enumerate(CHECKERS) if not any(found[place] for found in all_found)]
    assert silent == []


def test_a_message_without_a_serial_belongs_to_no_multicast() -> None:
    """Member 1 sends one after it delivered a message; it is not the multicast that member 0 made before that."""
    rows = [
        {"event": MULTICAST, "member": 0, "message": 3},
        {"event": SENT, "member": 0, "sender": 0, "sequence": 1, "message": 0},
        {"event": DELIVER, "member": 0, "sender": 0, "sequence": 1},
        {"event": DELIVER, "member": 1, "sender": 0, "sequence": 1},
        {"event": CAUSAL, "member": 0, "sender": 0, "sequence": 1},
        {"event": SENT, "member": 1, "sender": 1, "sequence": 1, "message": NOBODY},
        {"event": DELIVER, "member": 1, "sender": 1, "sequence": 1},
        {"event": DELIVER, "member": 0, "sender": 1, "sequence": 1},
        {"event": SENT, "member": 0, "sender": 0, "sequence": 2, "message": 3},
    ]
    events = blank_events(len(rows))
    for place, columns in enumerate(rows):
        for column, value in columns.items():
            events[column][place] = value
    assert check_by(causal_stability, Trace(events=events, scenario={"members": 2}, metrics={})) == []

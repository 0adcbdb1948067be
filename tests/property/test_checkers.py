"""The compiled checkers against their slow twins, on random traces, on the traces of a small correct group, and on
those traces with a row changed, moved or taken away."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.trace.checkers import (
    agreement,
    causal_order,
    causal_stability,
    check_all,
    fifo,
    in_order_delivery,
    premature_stability,
    rounds_end,
    stable_never_decreases,
)
from cubecast.trace.files import Trace
from cubecast.trace.schema import EVERYONE, NOBODY, Event, Events, blank_events
from tests.oracles import checkers as oracle
from tests.support.checkers import check_by
from tests.support.counted import counted

MEMBERS = 4


@st.composite
def random_events(draw: st.DrawFn) -> Events:
    """Rows without rhyme or reason, from ranges so small that they often concern the same member, link or sender."""
    count = draw(st.integers(0, 40))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = np.array(
        draw(st.sampled_from([[4, 5, 6, 7], [4, 5], [0, 1, 2, 3], [6, 7, 9, 10], list(range(11))])), np.int8
    )
    events = blank_events(count)
    events["event"] = generator.choice(kinds, count)
    events["time_ns"] = np.sort(generator.integers(0, 30, count))
    for column, low, high in (
        ("member", 0, MEMBERS),
        ("peer", 0, MEMBERS),
        ("message", -1, 12),
        ("sender", 0, 2),
        ("sequence", 0, 4),
        ("round", 0, 3),
        ("link", 0, 3),
        ("entered_ns", 0, 20),
        ("size", 0, 100),
        ("layer", 0, 2),
    ):
        events[column] = generator.integers(low, high, count)
    trees = (events["event"] == Event.SEND) & (generator.random(count) < 0.3)
    events["peer"][trees] = EVERYONE
    events["peer"][(events["event"] == Event.DELIVER) & (generator.random(count) < 0.8)] = NOBODY
    return events


class SmallGroup:
    """A group that keeps every promise: it delivers in order, takes true minima, and moves copies through one link."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: list[dict[str, int]] = []
        self.now = 0
        self.received = [[self.random.randint(0, 3) for _ in range(2)] for _ in range(MEMBERS)]
        self.up = set(range(MEMBERS))
        self.in_flight: list[dict[str, int]] = []
        self.copies = 0

    def note(self, event: Event, member: int, **columns: int) -> None:
        self.rows.append({"time_ns": self.now, "event": event, "member": member, "entered_ns": self.now, **columns})

    def run(self, rounds: int) -> Events:
        for member in range(MEMBERS):
            for sender in range(2):
                self.note(Event.DELIVER, member, sender=sender, sequence=self.received[member][sender])
        for number in range(1, rounds + 1):
            for _ in range(self.random.randint(0, 8)):
                self.now += 1
                self.random.choice([self.deliver, self.send, self.move, self.crash_or_recover])()
            self.hold_round(number)
        return self.to_events()

    def deliver(self) -> None:
        member, sender = self.random.choice(sorted(self.up)), self.random.randrange(2)
        self.received[member][sender] += 1
        self.note(Event.DELIVER, member, sender=sender, sequence=self.received[member][sender])

    def send(self) -> None:
        member, peer = self.random.sample(range(MEMBERS), 2)
        self.copies += 1
        copy = {"message": self.copies, "size": self.random.randint(32, 99), "layer": self.random.randrange(2)}
        self.note(Event.SEND, member, peer=peer, **copy)
        self.in_flight.append({"from": member, "to": peer, "entered_ns": self.now, **copy})

    def move(self) -> None:
        if not self.in_flight:
            return
        copy = self.in_flight.pop(0)
        source, target, entered = copy.pop("from"), copy.pop("to"), copy.pop("entered_ns")
        if self.random.random() < 0.2:
            self.note(Event.DROP, -1, link=0, **copy)
            return
        self.note(Event.HOP, -1, link=0, **copy)
        self.rows[-1]["entered_ns"] = entered
        self.note(Event.RECEIVE, target, peer=source, **copy)

    def crash_or_recover(self) -> None:
        member = self.random.randrange(1, MEMBERS)
        self.note(Event.CRASH if member in self.up else Event.RECOVER, member)
        self.up ^= {member}

    def hold_round(self, number: int) -> None:
        self.now += 1
        for member in range(MEMBERS):
            if member not in self.up:
                self.note(Event.RECOVER, member)
        self.up = set(range(MEMBERS))
        self.note(Event.ROUND, 0, round=number)
        stable = [min(column) for column in zip(*self.received, strict=True)]
        for member in self.random.sample(range(MEMBERS), MEMBERS):
            self.now += self.random.randint(0, 5)
            for sender in range(2):
                self.note(Event.STABLE, member, sender=sender, sequence=stable[sender], round=number)
            self.note(Event.DONE, member, round=number)

    def to_events(self) -> Events:
        events = blank_events(len(self.rows))
        for index, row in enumerate(self.rows):
            for column, value in row.items():
                events[column][index] = value
        return events


def small_trace(seed: int, rounds: int) -> Trace:
    events = SmallGroup(seed).run(rounds)
    metrics = oracle.counts(oracle.to_rows(events), MEMBERS)
    return Trace(events=events, scenario={"members": MEMBERS, "rounds": rounds}, metrics=metrics)


def damaged(events: Events, seed: int) -> Events:
    """Change a few things that matter, at random places."""
    generator = random.Random(seed)
    events = events.copy()
    for _ in range(generator.randint(1, 3)):
        row, other = generator.randrange(len(events)), generator.randrange(len(events))
        match generator.randrange(4):
            case 0:
                events[[row, other]] = events[[other, row]]
            case 1:
                events = np.delete(events, row)
            case 2:
                events["sequence"][row] += generator.choice([1, 2])
            case _:
                events = np.insert(events, other, events[row])
    return events


def assert_agrees_with_oracle(events: Events) -> None:
    trace = Trace(events=events, scenario={"members": MEMBERS}, metrics={})
    rows = oracle.to_rows(events)
    expected = {
        premature_stability: oracle.premature_stability(rows, MEMBERS),
        stable_never_decreases: oracle.stable_never_decreases(rows),
        in_order_delivery: oracle.in_order_delivery(rows),
        fifo: oracle.fifo(rows),
    }
    for checker, rows_expected in expected.items():
        assert [violation.rows[0] for violation in check_by(checker, trace)] == rows_expected
    late = [violation.message.split()[1] for violation in check_by(rounds_end, trace)]
    assert late == [str(member) for member in oracle.members_not_done(rows, MEMBERS)]
    assert counted(events, MEMBERS) == pytest.approx(oracle.counts(rows, MEMBERS), abs=1e-9)


@given(events=random_events())
@settings(deadline=None, max_examples=400)
def test_checkers_agree_with_their_oracles_on_random_rows(events: Events) -> None:
    assert_agrees_with_oracle(events)


@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 5))
@settings(deadline=None, max_examples=150)
def test_a_correct_group_breaks_no_promise(seed: int, rounds: int) -> None:
    report = check_all(small_trace(seed, rounds))
    kept = [verdict for verdict in report.verdicts if verdict.not_promised is None]
    assert [verdict.status for verdict in kept] == ["kept"] * len(kept), report.lines()
    excused = [verdict for verdict in report.verdicts if verdict not in kept]
    without_views = [verdict for verdict in excused if verdict.not_promised == "the run has no views"]
    assert [verdict.checker for verdict in excused if verdict not in without_views] == [
        causal_order.NAME,
        causal_stability.NAME,
        agreement.NAME,
    ]


@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 4), damage=st.integers(0, 2**32))
@settings(deadline=None, max_examples=200)
def test_checkers_agree_with_their_oracles_on_damaged_runs(seed: int, rounds: int, damage: int) -> None:
    assert_agrees_with_oracle(damaged(small_trace(seed, rounds).events, damage))


@pytest.mark.parametrize("kind", range(Event.DONE + 1))
def test_small_groups_show_every_event_but_exclusion(kind: int) -> None:
    """The generator of correct runs reaches what the checkers judge."""
    seen = np.concatenate([small_trace(seed, 4).events["event"] for seed in range(20)])
    assert (kind in seen) == (kind != Event.EXCLUDE)

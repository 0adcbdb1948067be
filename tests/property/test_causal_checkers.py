"""The compiled causal checkers against the definitions, on random groups that mostly, but not always, obey them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.trace.checkers import agreement, causal_order
from cubecast.trace.files import Trace
from cubecast.trace.schema import Event, Events, blank_events
from tests.oracles import causal as oracle
from tests.oracles.checkers import to_rows
from tests.support.checkers import check_by

MEMBERS = 5


def random_deliveries(seed: int, steps: int, obedience: float) -> Events:
    """Members send, numbering their messages from 1, and deliver; with probability `obedience` a delivery respects a
    vector clock kept on the side."""
    draw = random.Random(seed)
    delivered: list[dict[int, int]] = [{} for _ in range(MEMBERS)]
    stamps: dict[tuple[int, int], dict[int, int]] = {}
    rows: list[tuple[int, int, int, int]] = []
    for _ in range(steps):
        member = draw.randrange(MEMBERS)
        mine = delivered[member]
        if draw.random() < 0.3:
            sequence = mine.get(member, 0) + 1
            stamps.setdefault((member, sequence), dict(mine))
            mine[member] = sequence
            rows.append((Event.DELIVER, member, member, sequence))
            continue
        choices = [message for message in stamps if message[1] > mine.get(message[0], 0)]
        if draw.random() < obedience:
            choices = [(s, k) for s, k in choices if k == mine.get(s, 0) + 1 and covers(mine, stamps[s, k], s)]
        elif draw.random() < 0.2:
            choices = [((member + draw.randrange(1, MEMBERS)) % MEMBERS, draw.randint(1, 3))]
        if choices:
            sender, sequence = draw.choice(choices)
            mine[sender] = max(mine.get(sender, 0), sequence)
            rows.append((Event.DELIVER, member, sender, sequence))
        if draw.random() < 0.03:
            rows.append((draw.choice([Event.CRASH, Event.CRASH, Event.RECOVER]), member, -1, 0))
    events = blank_events(len(rows))
    for place, row in enumerate(rows):
        events["time_ns"][place] = place + 1
        for column, value in zip(("event", "member", "sender", "sequence"), row, strict=True):
            events[column][place] = value
    return events


def covers(mine: dict[int, int], stamp: dict[int, int], sender: int) -> bool:
    return all(mine.get(k, 0) >= count for k, count in stamp.items() if k != sender)


@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 60),
    obedience=st.sampled_from([0.0, 0.5, 0.8, 0.95, 0.99, 1.0]),
    protocol=st.sampled_from(["overlay", "timestamp"]),
)
@settings(deadline=None, max_examples=600)
def test_causal_checkers_agree_with_the_definitions(seed: int, steps: int, obedience: float, protocol: str) -> None:
    events = random_deliveries(seed, steps, obedience)
    rows = to_rows(events)
    scenario = {"members": MEMBERS, "family": "causal", "protocol": protocol, "floods": protocol == "overlay"}
    trace = Trace(events=events, scenario=scenario, metrics={})
    assert [violation.rows[0] for violation in check_by(causal_order, trace)] == oracle.causal_order(rows)
    missing = oracle.disagreements(rows, MEMBERS, floods=protocol == "overlay")
    assert len(check_by(agreement, trace)) == len(missing)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 80))
@settings(deadline=None, max_examples=200)
def test_obedient_members_are_not_accused(seed: int, steps: int) -> None:
    events = random_deliveries(seed, steps, 1.0)
    trace = Trace(events=events, scenario={"members": MEMBERS, "family": "causal"}, metrics={})
    assert check_by(causal_order, trace) == []

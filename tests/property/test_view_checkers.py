"""The compiled checkers of views against a slow judge, on random groups that obey, and on damaged traces of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError
from cubecast.trace.checkers import (
    agreement,
    causal_order,
    check_all,
    exactly_once,
    in_order_delivery,
    premature_stability,
    restart_replay,
    returned_is_returned,
    same_state,
    sending_view,
    view_agreement,
    virtual_synchrony,
)
from cubecast.trace.checkers.report import PartwiseChecker
from cubecast.trace.checkers.rows import LISTED_MAX
from cubecast.trace.checkers.views import has_views
from cubecast.trace.files import Trace
from cubecast.trace.schema import Event, Events, blank_events
from tests.oracles.checkers import to_rows
from tests.oracles.membership_promises import PROMISES, Judge
from tests.support.checkers import check_by

CHECKERS: dict[str, PartwiseChecker] = {
    "view_agreement": view_agreement,
    "virtual_synchrony": virtual_synchrony,
    "same_state": same_state,
    "sending_view": sending_view,
    "exactly_once": exactly_once,
    "restart_replay": restart_replay,
    "returned_is_returned": returned_is_returned,
    "premature_stability": premature_stability,
    "causal_order": causal_order,
    "in_order_delivery": in_order_delivery,
}
Message = tuple[int, int]


class Member:
    """One incarnation: what its application has, and what it has to do."""

    def __init__(self, view: int) -> None:
        self.view = view
        self.log: list[Message] = []
        self.base: set[Message] = set()
        self.received: set[Message] = set()  # of its view, while it waits for its state
        self.sent = 0
        self.serial = 0
        self.down = False
        self.has_state = True
        self.joined = view
        self.cut: set[Message] = set()  # the state with which the view it joined began
        self.gate: list[Message] | None = None  # what waits for the state, if it takes part in views without it

    def held(self) -> set[Message]:
        return self.base | set(self.log) | set(self.gate or [])


class SmallGroup:
    """A group that keeps every promise; a view changes while members still deliver in the one before."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows: list[dict[str, int]] = []
        self.members: dict[int, Member] = {}
        self.views: dict[int, list[int]] = {}
        self.past: dict[Message, set[Message]] = {}
        self.view_of: dict[Message, int] = {}
        self.names: list[tuple[str, int]] = []
        self.waiting: list[int] = []  # members that have to install the newest view
        self.cut: set[Message] = set()  # what is delivered in the view before it
        founders = [self.new_id() for _ in range(self.draw.randint(1, 3))]
        self.number = 1
        self.views[1] = founders
        self.tell_view(1)
        for member in founders:
            self.members[member] = Member(1)
            self.install(member)

    def new_id(self) -> int:
        self.names.append((f"p{len(self.names)}", 0))
        return len(self.names) - 1

    def note(self, event: Event, member: int, **columns: int) -> None:
        self.rows.append({"event": event, "member": member, **columns})

    def tell_view(self, number: int) -> None:
        for rank, member in enumerate(self.views[number]):
            self.note(Event.VIEW, -1, peer=member, sequence=rank, round=number, message=number * 7)

    def install(self, member: int) -> None:
        columns = {"sequence": len(self.views[self.number]), "round": self.number, "message": self.number * 7}
        self.note(Event.INSTALL, member, **columns)
        self.members[member].view = self.number

    def step(self) -> None:
        act = self.draw.choices(
            [self.send, self.deliver, self.claim, self.change, self.go_on, self.crash, self.restart, self.hold],
            [4, 8, 3, 1, 4, 1, 2, 1],
        )[0]
        act()

    def someone(self, *, stateful: bool = True) -> int | None:
        able = [
            member
            for member in self.views[self.number]
            if member in self.members
            and not self.members[member].down
            and (self.members[member].has_state or (not stateful and self.members[member].gate is not None))
        ]
        return self.draw.choice(able) if able else None

    def send(self) -> None:
        sender = self.someone()
        if sender is None or (self.waiting and self.members[sender].view < self.number):
            return
        one = self.members[sender]
        one.serial += 1
        one.sent += 1
        message = (sender, one.sent)
        self.past[message] = one.held() | {(sender, old) for old in range(1, one.sent)}
        self.view_of[message] = one.view
        self.note(Event.MULTICAST, sender, message=one.serial)
        self.note(Event.SENT, sender, sender=sender, sequence=one.sent, round=one.view, message=one.serial)

    def deliver(self) -> None:
        member = self.someone(stateful=False)
        if member is not None:
            self.deliver_some(member, self.draw.randint(1, 3))

    def deliver_some(self, member: int, most: int, allowed: set[Message] | None = None) -> None:
        one = self.members[member]
        for _ in range(most):
            held = one.held()
            ready = [
                message
                for message, past in self.past.items()
                if message not in held and past <= held and self.view_of[message] == one.view
            ]
            if one.view < self.number:
                allowed = self.cut
            ready = [message for message in ready if allowed is None or message in allowed]
            if not ready:
                return
            message = self.draw.choice(ready)
            if one.gate is None:
                one.log.append(message)
            else:
                one.gate.append(message)
            event = Event.DELIVER if one.gate is None else Event.HOLD
            self.note(event, member, sender=message[0], sequence=message[1])

    def hold(self) -> None:
        """A newcomer that waits for its state receives a message of its view."""
        for member in self.views[self.number]:
            one = self.members.get(member)
            if one is None or one.has_state or one.gate is not None:
                continue
            for sender in self.views[self.number]:
                sent = max((k for s, k in self.past if s == sender and self.view_of[s, k] == self.number), default=0)
                if sent:
                    self.note(Event.HOLD, member, sender=sender, sequence=sent)
                    one.received |= {(sender, k) for k in range(1, sent + 1)}

    def claim(self) -> None:
        member = self.someone()
        if member is None:
            return
        everybody = [
            self.members[other].held() | self.members[other].received for other in self.views[self.members[member].view]
        ]
        common = set.intersection(*everybody)
        for sender in {message[0] for message in common}:
            sequence = max(k for s, k in common if s == sender)
            self.note(Event.STABLE, member, sender=sender, sequence=sequence, round=0)

    def change(self) -> None:
        """Decide the next view: who is down stays out, newcomers join, and the flush gives everybody the same cut."""
        present = [member for member in self.views[self.number] if not self.members[member].down]
        able = [member for member in present if self.members[member].has_state]
        ready = all(self.members[member].has_state or self.members[member].gate is not None for member in present)
        if self.waiting or not able or not ready:
            return
        stay = [member for member in present if member == able[0] or self.draw.random() < 0.85]
        self.cut = set().union(*(self.members[member].held() for member in stay))
        for message, view in self.view_of.items():
            if view == self.number and message[0] in stay:
                self.cut |= {message, *self.past[message]}
        newcomers = [self.new_id() for _ in range(self.draw.randint(0, 2))]
        for member in present:
            if member not in stay:
                self.lose(member)
        self.number += 1
        self.views[self.number] = [*stay, *newcomers]
        self.tell_view(self.number)
        self.waiting = list(stay)
        for member in newcomers:
            one = self.members[member] = Member(self.number)
            one.has_state = False
            one.base, one.cut = set(self.cut), set(self.cut)
            if self.draw.random() < 0.5:
                one.gate = []
                self.install(member)

    def lose(self, member: int) -> None:
        one = self.members[member]
        if self.draw.random() < 0.5:
            self.note(Event.LEAVE, member)
        else:
            self.note(Event.EXCLUDED, member, round=one.view)
            for sequence in range(1, one.sent + 1):
                if (member, sequence) not in self.cut:
                    self.note(Event.RETURNED, member, sender=member, sequence=sequence)
        one.down = True

    def restore(self, member: int) -> None:
        """Somebody who has installed the view gives a newcomer the state."""
        one = self.members[member]
        if one.down or not any(other.has_state and other.view >= one.joined for other in self.members.values()):
            return
        early = one.gate is not None or self.draw.random() < 0.3
        if early and one.gate is None:  # the application may hear of the view before it gets the state
            self.install(member)
        named = {"round": one.joined, "message": one.joined * 7}
        rows = [
            {"sender": sender, "sequence": max(k for s, k in one.cut if s == sender)}
            for sender in sorted({message[0] for message in one.cut})
        ]
        for row in rows or [{"sender": member, "sequence": 0}]:
            self.note(Event.RESTORE, member, **row, **named)
        one.base = set(one.cut)
        one.has_state = True
        if not early:
            self.install(member)
        one.log, one.gate = one.gate or [], None
        for sender, sequence in one.log:
            self.note(Event.DELIVER, member, sender=sender, sequence=sequence)

    def go_on(self) -> None:
        """A member delivers the rest of its view and installs the next one, or a newcomer gets its state."""
        for member in self.views[self.number]:
            if member in self.members and not self.members[member].has_state and self.draw.random() < 0.5:
                self.restore(member)
        able = [member for member in self.waiting if not self.members[member].down]
        if able:
            member = self.draw.choice(able)
            self.deliver_some(member, 1000)
            self.install(member)
            self.waiting.remove(member)
        elif not able and self.waiting:
            self.waiting = [member for member in self.waiting if member in self.members]

    def crash(self) -> None:
        member = self.someone()
        if member is not None and member not in self.waiting and not self.waiting:
            self.note(Event.CRASH, member)
            self.members[member].down = True

    def restart(self) -> None:
        down = [member for member in self.views[self.number] if self.members[member].down]
        if not down:
            return
        member = self.draw.choice(down)
        one = self.members[member]
        one.down = False
        self.note(Event.RESTART, member)
        kept = self.draw.randint(0, len(one.log))
        if self.draw.random() < 0.5:
            restored = set(one.log[:kept]) | one.base
            for sender in {message[0] for message in restored}:
                sequence = max(k for s, k in restored if s == sender)
                self.note(Event.RESTORE, member, sender=sender, sequence=sequence)
            kept = kept if restored else 0
        if self.draw.random() < 0.5:
            self.install(member)
        for sender, sequence in one.log[kept:]:
            self.note(Event.DELIVER, member, sender=sender, sequence=sequence)
        self.note(Event.RESTARTED, member)

    def trace(self) -> Trace:
        events = blank_events(len(self.rows))
        events["time_ns"] = events["entered_ns"] = np.arange(1, len(self.rows) + 1)
        for place, columns in enumerate(self.rows):
            for column, value in columns.items():
                events[column][place] = value
        scenario = {"members": len(self.names), "names": self.names, "family": "causal", "settled": False}
        return Trace(events=events, scenario=scenario, metrics={})


def obedient(seed: int, steps: int) -> Trace:
    group = SmallGroup(seed)
    for _ in range(steps):
        group.step()
    return group.trace()


def damaged(events: Events, seed: int) -> Events:
    """Drop, repeat, exchange or change a few rows."""
    draw = random.Random(seed)
    events = events.copy()
    for _ in range(draw.randint(1, 3)):
        if not len(events):
            break
        row = draw.randrange(len(events))
        restarts = np.flatnonzero(events["event"] == Event.RESTART)
        if len(restarts) and draw.random() < 0.3:
            row = min(int(draw.choice(restarts)) + draw.randrange(6), len(events) - 1)
        ids = max(int(events["member"].max()) + 1, 1)
        how = draw.randrange(6)
        if how == 0:
            events = np.delete(events, row)
        elif how == 1:
            events = np.insert(events, draw.randint(row, len(events)), events[row])
        elif how == 2:
            other = draw.randrange(max(row - 4, 0), row + 1)
            events[[row, other]] = events[[other, row]]
        elif how == 3:
            column = draw.choice(["sequence", "round", "message"])
            events[column][row] = max(int(events[column][row]) + draw.choice([-1, 1]), 0)
        elif how == 4:
            returned = blank_events(1)
            returned["event"], returned["sequence"] = Event.RETURNED, draw.randint(1, 4)
            returned["member"] = returned["sender"] = draw.randrange(ids)
            events = np.insert(events, row, returned)
        else:
            of_view = events["event"][row] == Event.VIEW
            events["peer" if of_view else draw.choice(["member", "sender"])][row] = draw.randrange(ids)
    events["time_ns"] = np.arange(1, len(events) + 1)
    return events


def found(checker: PartwiseChecker, trace: Trace) -> set[int]:
    return {violation.rows[0] for violation in check_by(checker, trace)}


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
@settings(deadline=None, max_examples=300)
def test_obedient_groups_are_not_accused(seed: int, steps: int) -> None:
    trace = obedient(seed, steps)
    report = check_all(trace)
    assert report.ok, report.lines()
    assert {verdict.checker for verdict in report.verdicts if verdict.not_promised} <= {
        "agreement",
        "causal stability",
        "counts agree with the metrics",
    }


@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 50),
    damage=st.integers(0, 2**32),
    quorum=st.sampled_from(["majority", "any"]),
    with_sent=st.booleans(),
)
@settings(deadline=None, max_examples=600)
def test_view_checkers_agree_with_the_slow_judge(
    seed: int, steps: int, damage: int, quorum: str, with_sent: bool
) -> None:
    good = obedient(seed, steps)
    events = damaged(good.events, damage)
    if not with_sent:
        events = events[events["event"] != Event.SENT]
    scenario = {"members": good.scenario["members"], "family": "causal", "quorum": quorum}
    trace = Trace(events=events, scenario=scenario, metrics={})
    try:
        check_by(view_agreement, trace)
    except LocalProtocolError:
        return  # a row that cannot be
    if not has_views(trace):
        return  # the one install row is gone, and with it what the judge judges
    judge = Judge(to_rows(trace.events), quorum=quorum)
    for name, checker in CHECKERS.items():
        assert found(checker, trace) == judge.broken[name], name
    assert len(check_by(agreement, trace)) == min(len(judge.lost()) + len(judge.unsent()), LISTED_MAX + 1)


@pytest.mark.parametrize("promise", PROMISES)
def test_damage_breaks_every_promise_in_some_trace(promise: str) -> None:
    """The damaged traces reach what the checkers judge."""
    broke: Callable[[int], bool] = lambda seed: bool(_found_in(promise, seed))  # noqa: E731
    assert any(broke(seed) for seed in range(400))


def _found_in(promise: str, seed: int) -> set[int]:
    good = obedient(seed, 50)
    trace = Trace(events=damaged(good.events, seed), scenario=good.scenario, metrics={})
    try:
        return found(CHECKERS[promise], trace)
    except LocalProtocolError:
        return set()

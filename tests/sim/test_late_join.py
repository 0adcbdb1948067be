"""Newcomers get earlier messages while data flows (guo §3.2), over many seeds, with all checkers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubecast.sim import kernel
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DELIVER, RECOVER, STABLE
from tests.sim.runs import network_of, run_to_end

MEMBERS, SENDERS, MESSAGES = 8, 3, 20
FLOW: dict[str, Any] = {
    "members": MEMBERS,
    "senders": SENDERS,
    "network": "random:degree=3",
    "messages": MESSAGES,
    "rate": 200.0,
    "delta_ms": 5.0,
    "transport": "late_join",
}
FAULTS: dict[str, dict[str, Any]] = {
    "one joins": {"joins": "7@40ms"},
    "three join": {"joins": ("5@20ms", "6@40ms", "7@41ms")},
    "loss": {"joins": "7@40ms", "loss": 0.1, "duplicate": 0.05, "reorder": 0.05},
    "slow news": {"joins": ("6@30ms", "7@60ms"), "loss": 0.05, "detect_spread_ms": 15.0},
    "the first handler crashes": {"joins": "7@40ms", "crashes": "0@41ms", "loss": 0.05},
    "the newcomer crashes": {"joins": "7@60ms", "crashes": "7@62ms", "loss": 0.2},
    "the newcomer crashes and returns": {"joins": "7@60ms", "crashes": "7@62ms-67ms", "loss": 0.2},
    "it crashes before it asks": {"joins": "7@60ms", "crashes": "7@60.5ms-64ms", "detect_spread_ms": 3.0},
}
each_fault = pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)


def scenario(protocol: str, **settings: Any) -> Scenario:
    return Scenario.of(protocol, **FLOW | settings)


def traced(wanted: Scenario) -> Trace:
    return trace_scenario(wanted, network_of(wanted))


@each_fault
@pytest.mark.parametrize("protocol", ["coord", "cube_full_dist", "gossip"])
@pytest.mark.parametrize("seed", range(4))
def test_newcomers_catch_up_and_no_promise_is_broken(protocol: str, seed: int, faults: dict[str, Any]) -> None:
    wanted = scenario(protocol, seed=seed, **faults)
    status, simulation = run_to_end(wanted)
    assert status == kernel.FINISHED
    up = simulation.metrics.members.up == 1
    live = [sender for sender in range(SENDERS) if up[sender]]
    assert (simulation.group.received[up][:, live] == MESSAGES).all()
    assert (simulation.group.stable[up][:, live] == MESSAGES).all()
    assert (simulation.metrics.members.joining[up] == 0).all()
    assert [str(one) for one in check_all(traced(wanted)).violations] == []


def test_a_newcomer_counts_only_when_it_holds_what_was_stable_without_it() -> None:
    events = traced(scenario("coord", seed=3, joins="7@60ms", loss=0.05, detect_spread_ms=5.0)).events
    (counts,) = np.flatnonzero((events["event"] == RECOVER) & (events["member"] == 7))
    before = events[:counts]
    stable = before[(before["event"] == STABLE) & (before["member"] != 7)]
    held = before[(before["event"] == DELIVER) & (before["member"] == 7)]
    for sender in range(SENDERS):
        most = stable["sequence"][stable["sender"] == sender].max(initial=0)
        assert held["sequence"][held["sender"] == sender].max(initial=0) >= most > 0


def test_the_history_crosses_the_network() -> None:
    """A newcomer that comes late costs bytes and time, which a handler that takes no time does not."""
    late = FLOW | {"joins": "7@90ms", "seed": 1}
    by_messages = simulate("coord", **late)
    for_nothing = simulate("coord", **late | {"transport": "nak"})
    assert by_messages.data_bytes > for_nothing.data_bytes
    events = traced(scenario("coord", seed=1, joins="7@90ms")).events
    counts = events["time_ns"][(events["event"] == RECOVER) & (events["member"] == 7)]
    assert counts.tolist()[0] > 91_000_000, "1 ms until all know of it, and a round trip"


@pytest.mark.parametrize("seed", range(12))
def test_a_newcomer_that_crashes_and_returns_does_not_count_before_it_caught_up(seed: int) -> None:
    events = traced(scenario("gossip", seed=seed, joins="7@60ms", crashes="7@62ms-67ms", loss=0.2)).events
    mine = events[events["member"] == 7]
    (counts,) = np.flatnonzero(mine["event"] == RECOVER)
    (crashed, *_) = np.flatnonzero(mine["event"] == CRASH)
    assert crashed < counts
    stable = events[(events["event"] == STABLE) & (events["member"] != 7)]
    before = stable[stable["time_ns"] < mine["time_ns"][counts]]
    held = mine[:counts][mine["event"][:counts] == DELIVER]
    for sender in range(SENDERS):
        most = before["sequence"][before["sender"] == sender].max(initial=0)
        assert held["sequence"][held["sender"] == sender].max(initial=0) >= most

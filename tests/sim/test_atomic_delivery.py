"""Atomic delivery in the simulator: when applications get messages that wait until they are stable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.networks.spec import build_network
from cubecast.sim.atomic_delivery import AtomicDeliveries
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.schema import DELIVER, STABLE, Events, blank_events

FLOW: dict[str, Any] = {
    "members": 12,
    "senders": 3,
    "network": "random:degree=3",
    "messages": 30,
    "rate": 200.0,
    "delta_ms": 5.0,
    "seed": 4,
}


def _events(*rows: tuple[int, int, int, int, int]) -> Events:
    events = blank_events(len(rows))
    for place, row in enumerate(rows):
        for column, value in zip(("time_ns", "event", "member", "sender", "sequence"), row, strict=True):
            events[column][place] = value
    return events


def test_a_message_waits_at_each_member_until_it_knows_it_stable() -> None:
    atomic = AtomicDeliveries(members=3, senders=1, messages=4)
    atomic.take(_events((10, DELIVER, 0, 0, 1), (20, DELIVER, 0, 0, 2), (25, DELIVER, 1, 0, 1), (30, DELIVER, 1, 0, 2)))
    assert atomic.metrics()["atomic_delay_mean_ms"] is None
    atomic.take(_events((50, STABLE, 1, 0, 1), (60, DELIVER, 2, 0, 1), (90, STABLE, 1, 0, 2), (95, STABLE, 0, 0, 2)))
    found = atomic.metrics()
    assert found["atomic_delay_mean_ms"] == pytest.approx(((50 - 10) + (90 - 20)) / 2 / 1e6)
    assert found["atomic_delay_max_ms"] == pytest.approx(70 / 1e6)
    assert (found["atomic_queue_mean"], found["atomic_queue_max"]) == ((1 + 2 + 1 + 2 + 1) / 5, 2)


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("protocol", ["coord", "cube_full_dist"])
def test_no_application_gets_a_message_before_all_members_have_it(protocol: str, loss: float) -> None:
    """A message is not delivered to any group member until all the members have received it (guo §2.3)."""
    scenario = Scenario.of(protocol, **FLOW, loss=loss, deliver="stable")
    trace = trace_scenario(scenario, build_network(scenario.network, members=12, seed=4))
    assert [one for verdict in check_all(trace).verdicts for one in verdict.violations] == []
    everywhere, sent, given = dict[tuple[int, int], int](), dict[tuple[int, int], int](), list[int]()
    known = np.zeros((12, 3), int)
    for row in trace.events:
        time_ns, member, sender, last = (int(row[name]) for name in ("time_ns", "member", "sender", "sequence"))
        if row["event"] == DELIVER:
            everywhere[sender, last] = time_ns
            if member == sender:
                sent[sender, last] = time_ns
        elif row["event"] == STABLE:
            for number in range(known[member, sender] + 1, last + 1):
                assert time_ns >= everywhere[sender, number]
                if member != sender:
                    given.append(time_ns - sent[sender, number])
            known[member, sender] = last
    assert trace.metrics["atomic_delay_mean_ms"] == pytest.approx(np.mean(given) / 1e6)
    assert trace.metrics["atomic_delay_max_ms"] == pytest.approx(max(given) / 1e6)


def test_rounds_that_do_not_keep_up_let_what_waits_grow() -> None:
    """The rate was so high that stability detection was not able to keep up, and buffers grew too large (guo §2.3)."""
    often, rarely = (simulate("coord", **FLOW | {"delta_ms": delta}, deliver="stable") for delta in (5.0, 100.0))
    assert often.delay_mean_ms == pytest.approx(rarely.delay_mean_ms or 0, rel=0.2)
    assert often.atomic_delay_mean_ms is not None
    assert often.delay_mean_ms is not None
    assert rarely.atomic_delay_mean_ms is not None
    assert often.delay_mean_ms < often.atomic_delay_mean_ms < rarely.atomic_delay_mean_ms
    assert (often.atomic_queue_max or 0) < (rarely.atomic_queue_max or 0)


def test_by_default_nothing_waits() -> None:
    found = simulate("coord", **FLOW)
    assert found.atomic_delay_mean_ms is None
    assert simulate("coord", **FLOW, deliver="stable").delay_mean_ms == found.delay_mean_ms


@pytest.mark.parametrize("wrong", [{"messages": 0}, {"protocol": "timestamp"}, {"churn_per_s": 1.0, "messages": 0}])
def test_without_data_and_stability_there_is_nothing_to_wait_for(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="deliver = stable") as caught:
        Scenario.of(**{"protocol": "coord", **FLOW, "deliver": "stable", **wrong})
    assert caught.value.setting == "deliver"

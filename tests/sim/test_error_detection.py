"""Error detection while data flows (guo ch. 7): members learn which messages exist, and so which they miss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubecast.networks.spec import build_network
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.schema import DELIVER, STABLE

MEMBERS, SENDERS, MESSAGES = 12, 3, 30
FLOW: dict[str, Any] = {
    "members": MEMBERS,
    "senders": SENDERS,
    "network": "random:degree=3",
    "messages": MESSAGES,
    "rate": 200.0,
    "delta_ms": 5.0,
    "goal": "errors",
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("protocol", ["coord", "cube_full_dist"])
def test_members_learn_of_messages_that_were_sent_and_of_all_of_them(protocol: str, loss: float, seed: int) -> None:
    """The error detection array is the element-wise maximum of the largest sequence numbers (guo ch. 7)."""
    scenario = Scenario.of(protocol, **FLOW, loss=loss, seed=seed)
    trace = trace_scenario(scenario, build_network(scenario.network, members=MEMBERS, seed=seed))
    assert [one for verdict in check_all(trace).verdicts for one in verdict.violations] == []
    sent = np.zeros(SENDERS, int)
    held, known = np.zeros((MEMBERS, SENDERS), int), np.zeros((MEMBERS, SENDERS), int)
    for row in trace.events:
        member, sender, sequence = int(row["member"]), int(row["sender"]), int(row["sequence"])
        if row["event"] == DELIVER:
            held[member, sender] += 1
            if member == sender:
                sent[sender] = sequence
        elif row["event"] == STABLE:
            assert sequence <= sent[sender], "no member hears of a message that does not exist"
            known[member, sender] = sequence
    assert (known == MESSAGES).all(), "all members hear of every message"
    assert trace.metrics["missed"] == (known - held).sum()


def test_what_was_lost_is_known_before_it_is_repaired() -> None:
    lossless, lossy = (simulate("cube_full_dist", **FLOW, loss=loss, seed=4) for loss in (0.0, 0.1))
    assert lossless.missed == 0
    assert lossy.missed is not None
    assert lossy.missed > 0
    assert lossy.tts_last_ms is not None
    assert lossy.delay_max_ms is not None
    assert lossy.tts_last_ms < lossy.delay_max_ms, "a repair takes longer"


def test_nothing_is_released() -> None:
    found = simulate("coord", **FLOW, seed=1)
    assert found.buffer_mean is None
    assert found.buffer_max is None

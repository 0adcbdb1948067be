"""Causal stability in the simulator: every protocol finds it, checkers judge it, every safeguard is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_and_trace, simulate
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import CAUSAL
from tests.sim.plain_python import output_of
from tests.sim.runs import network_of
from tests.support.scenarios import shared_scenario

MEMBERS, SENDERS, MESSAGES = 9, 4, 12
FLOW: dict[str, Any] = {
    "members": MEMBERS,
    "senders": SENDERS,
    "network": "random:degree=3",
    "messages": MESSAGES,
    "rate": 200.0,
    "delta_ms": 5.0,
    "step_s": 0.01,
    "seed": 4,
    "causal_stability": True,
}
OFTEN = ("coord", "s_coord", "cube_full_dist", "cascade")
"""The others take long to compile."""


def _protocols() -> list[Any]:
    names = [protocol.name for protocol in list_protocols("stability")]
    return [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in names]


def _causal(trace: Trace) -> np.ndarray:
    """What each member knows to be causally stable at the end, by sender."""
    known = np.zeros((MEMBERS, SENDERS), int)
    for row in trace.events[trace.events["event"] == CAUSAL]:
        known[row["member"], row["sender"]] = max(known[row["member"], row["sender"]], row["sequence"])
    return known


@pytest.fixture(scope="module")
def noticed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    found: dict[str, list[str]] = output_of("tests.sim.broken_causal", tmp_path_factory)
    return found


@pytest.mark.parametrize("removed", ["not waiting", "of two moments", "not waiting, views", "forgetting what waits"])
def test_without_it_concurrent_messages_are_delivered(noticed: dict[str, list[str]], removed: str) -> None:
    assert noticed[removed] == ["causal stability"]


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("protocol", _protocols())
def test_all_messages_become_causally_stable_everywhere(protocol: str, loss: float) -> None:
    scenario = shared_scenario(protocol=protocol, **FLOW, loss=loss)
    result, trace = run_and_trace(scenario, network_of(scenario))
    assert not check_all(trace).violations
    assert (_causal(trace) == MESSAGES).all()
    assert result.causal_first_ms is not None
    assert result.causal_last_ms is not None
    assert result.tts_first_ms is not None
    assert result.tts_last_ms is not None
    assert result.causal_first_ms >= result.tts_first_ms
    assert result.causal_last_ms >= result.tts_last_ms


def test_it_costs_one_number_per_sender_and_array() -> None:
    """A round of Coord: n − 1 ACKs and an INFO to n − 1 members carry an array, START does not."""
    settings = {name: value for name, value in FLOW.items() if name != "step_s"} | {"rounds": 1}
    causal, plain = (simulate("coord", **settings | {"causal_stability": wanted}) for wanted in (True, False))
    arrays = causal.messages * 2 // 3
    assert (causal.messages, causal.bytes) == (plain.messages, plain.bytes + arrays * 4 * SENDERS)
    assert plain.causal_last_ms is None


def test_the_crash_of_a_receiver_does_not_matter() -> None:
    scenario = shared_scenario(protocol="s_coord", **FLOW, crashes="7@20ms", detect_ms=10.0)
    _, trace = run_and_trace(scenario, network_of(scenario))
    assert not check_all(trace).violations
    assert (np.delete(_causal(trace), 7, axis=0) == MESSAGES).all()


def test_after_the_exclusion_of_a_sender_nothing_more_is_causally_stable() -> None:
    """Some member may still deliver a message of it that no member can count; a view change would end that."""
    scenario = shared_scenario(protocol="s_coord", **FLOW, crashes="2@20ms", detect_ms=10.0)
    _, trace = run_and_trace(scenario, network_of(scenario))
    assert not check_all(trace).violations
    events = trace.events
    late = events[(events["event"] == CAUSAL) & (events["time_ns"] > 60e6)]
    assert not len(late)
    assert trace.metrics["simulated_ms"] > 60


def test_newcomers_find_it_too() -> None:
    scenario = shared_scenario(protocol="coord", **FLOW, joins="8@20ms")
    _, trace = run_and_trace(scenario, network_of(scenario))
    assert not check_all(trace).violations
    assert (_causal(trace) == MESSAGES).all()


@pytest.mark.parametrize("stability", ["coord", pytest.param("cascade", marks=pytest.mark.slow)])
def test_across_views(stability: str) -> None:
    scenario = Scenario.of(
        "tree",
        stability=stability,
        members=8,
        network="random:degree=3",
        churn_per_s=4.0,
        churn_ms=2000.0,
        rate=20.0,
        delta_ms=20.0,
        seed=2,
        causal_stability=True,
    )
    result, trace = run_and_trace(scenario, network_of(scenario))
    assert not check_all(trace).violations
    assert result.views is not None
    assert result.views > 3
    assert result.causal_p50_ms is not None
    assert result.stable_p50_ms is not None
    assert result.causal_p50_ms >= result.stable_p50_ms
    assert run_and_trace(replace(scenario, causal_stability=False), network_of(scenario))[0].causal_p50_ms is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"messages": 0}, "needs data messages"),
        ({"goal": "errors"}, "drop goal"),
        ({"deliver": "stable"}, "drop goal, deliver"),
        ({"changed_only": True}, "drop goal, deliver and changed_only"),
        ({"joins": "8@20ms", "senders": MEMBERS}, "senders that join, 8: set churn_per_s"),
    ],
)
def test_what_cannot_be_combined_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        shared_scenario(protocol="coord", **FLOW | settings)

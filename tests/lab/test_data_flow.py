"""Rounds while data flows, beside the formulas about buffers."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.experiments import check_run, experiment_named, scenario_of
from cubecast.networks.spec import build_network
from cubecast.sim.simulate import trace_scenario
from tests.oracles.time_to_stable import read_times

FLOW: dict[str, Any] = {
    "protocol": "coord",
    "members": 12,
    "senders": 3,
    "network": "random:degree=3",
    "messages": 40,
    "rate": 200.0,
    "delta_ms": 5.0,
    "seed": 4,
}


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_the_parts_of_the_bound_are_those_of_the_trace(loss: float) -> None:
    settings = {**FLOW, "loss": loss}
    found = experiment_named("data_flow").run(settings)
    scenario = scenario_of(settings)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    times = read_times(trace_scenario(scenario, network))
    assert found["tts_max_ms"] == pytest.approx(max(times.tts.values()) / 1e6)
    assert found["delivery_max_ms"] == pytest.approx(times.delivery_max / 1e6)
    assert found["between_rounds_max_ms"] == pytest.approx(times.between_rounds_max / 1e6)
    assert found["tpr_max_ms"] == pytest.approx(times.round_max / 1e6)
    assert found["tts_max_ms"] <= found["tts_bound_ms"]


def test_a_buffer_from_which_nothing_is_released_fills_by_the_law() -> None:
    found = experiment_named("data_flow").run({**FLOW, "buffer_messages": 20, "delta_ms": 500.0})
    assert found["filling_ms"] == 100.0
    assert found["buffer_full_ms"] == pytest.approx(100.0)
    assert found["overflows"] > 0


def test_a_buffer_that_is_released_in_time_never_fills() -> None:
    found = experiment_named("data_flow").run({**FLOW, "buffer_messages": 20})
    assert found["tts_max_ms"] < found["filling_ms"]
    assert "buffer_full_ms" not in found
    assert found["overflows"] == 0


def test_the_trigger_is_measured_and_then_used() -> None:
    run = experiment_named("data_flow").run
    settings = {**FLOW, "messages": 250, "rate": 400.0, "buffer_messages": 40}
    optimal, quarter, whole = (run({**settings, "level": level}) for level in ("optimal", "quarter", "buffer"))
    assert quarter["level_messages"] == round(optimal["level_messages"] / 4)
    assert whole["level_messages"] == 40
    assert optimal["formula_rounds"] == 250 / optimal["level_messages"]
    assert optimal["overflows"] == quarter["overflows"] == 0 < whole["overflows"]
    assert quarter["rounds"] > optimal["rounds"]


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"messages": 0}, "messages"),
        ({"protocol": "timestamp"}, "messages"),
        ({"level": "enough", "buffer_messages": 9}, "level"),
        ({"level": "optimal"}, "buffer_messages"),
    ],
)
def test_a_run_without_data_or_buffer_is_refused(wrong: dict[str, Any], setting: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        check_run("data_flow", {**FLOW, **wrong}, set())
    assert caught.value.setting == setting

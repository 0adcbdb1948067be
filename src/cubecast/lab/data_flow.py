"""The experiment `data_flow`: stability rounds while data messages flow, compared with the formulas about buffers.

*Time to stable* (guo §5.2): D is the longest time until all members had a message, F the longest time from the
beginning of a round to that of the next, TPR the longest round until its first member knew S; the bound is D + F + TPR.

*Buffer law* (guo §2.2): a sender's buffer of g messages of k bytes is full B/(r·k) after it began to send, if nothing
is released until then. Here a sender with a full buffer waits; the paper's would overwrite old messages.

*Trigger* (guo ch. 6): with `level` a round begins when a sender holds X unstable messages. X = "optimal" is g − r·f,
with f measured first (`lab.choose_trigger`); "half" and "quarter" are parts of it, and "buffer" is all of g. K messages
of a sender need T(X) = K / X rounds if all of them become stable (α = 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.lab.choose_trigger import choose_trigger
from cubecast.models.buffers import filling_time_s, time_to_stable_max
from cubecast.networks.network import Network
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario

METRICS = (
    *("tts_first_ms", "tts_max_ms", "tts_bound_ms", "delivery_max_ms", "between_rounds_max_ms", "tpr_max_ms"),
    *("buffer_full_ms", "filling_ms", "buffer_max", "overflows", "blocked_ms"),
    *("level_messages", "rounds", "formula_rounds", "messages", "bytes"),
)
_LEVELS = {"optimal": 1.0, "half": 0.5, "quarter": 0.25}
_WHOLE = "buffer"


def simulation_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without `level`, which only this experiment has."""
    return {name: value for name, value in settings.items() if name != "level"}


def level_of(settings: Mapping[str, Any]) -> str | None:
    """The X that begins a round; None if rounds begin after Δ."""
    level = settings.get("level")
    if level not in (None, _WHOLE, *_LEVELS):
        known = ", ".join((*_LEVELS, _WHOLE))
        raise LocalProtocolError(f"level = {level!r}: choose one of {known}", setting="level")
    return level


def check(scenario: Scenario, level: str | None) -> None:
    """Require that data flows and, if rounds depend on a buffer, that there is one."""
    if scenario.messages == 0 or scenario.carries_data:
        raise LocalProtocolError("data_flow needs a stability protocol and data: give messages", setting="messages")
    if level is not None and scenario.buffer_messages == 0:
        raise LocalProtocolError("level without a buffer: give buffer_messages (g)", setting="buffer_messages")


def measure(scenario: Scenario, network: Network, level: str | None) -> dict[str, float]:
    """Run the scenario, and compute what the formulas predict."""
    chosen = scenario if level is None else _with_level(scenario, network, level)
    result = run_scenario(chosen, network)
    found = _bound(result) | _law(chosen, result) | _trigger(chosen)
    found |= {name: getattr(result, name) for name in METRICS if hasattr(result, name)}
    return {name: float(value) for name, value in found.items() if value is not None}


def _with_level(scenario: Scenario, network: Network, level: str) -> Scenario:
    if level == _WHOLE:
        messages = scenario.buffer_messages
    else:
        messages = max(1, round(_LEVELS[level] * choose_trigger(scenario, network).level_messages))
    return replace(scenario, trigger="buffer", trigger_messages=messages)


def _bound(result: Result) -> dict[str, float | None]:
    rounds = result.per_round
    if len(rounds) < 2 or result.delay_max_ms is None:
        return {}
    between = max(later.begun_ms - earlier.begun_ms for earlier, later in pairwise(rounds))
    longest = max(one.rtt_first_ms for one in rounds)
    bound = time_to_stable_max(delivery=result.delay_max_ms, between_rounds=between, round_time=longest)
    return {
        "delivery_max_ms": result.delay_max_ms,
        "between_rounds_max_ms": between,
        "tpr_max_ms": longest,
        "tts_bound_ms": bound,
    }


def _law(scenario: Scenario, result: Result) -> dict[str, float | None]:
    if scenario.buffer_messages == 0:
        return {}
    size = max(scenario.payload_bytes, 1)
    held = scenario.buffer_messages * size
    filling_s = filling_time_s(buffer_bytes=held, rate_per_s=scenario.rate, message_bytes=size)
    return {"filling_ms": 1e3 * filling_s, "buffer_full_ms": result.buffer_full_ms}


def _trigger(scenario: Scenario) -> dict[str, float | None]:
    level = scenario.trigger_messages
    if level == 0:
        return {}
    return {"level_messages": float(level), "formula_rounds": scenario.messages / level}

"""The trigger X for a simulated group: measure its rounds first, then ask the model (guo ch. 6).

"Users should measure f(r) in the current system, then set X." The measured group has unlimited buffers and runs rounds
back to back. Its f is the longest time from the beginning of a round to that of the next, or until the last member knew
the result if that was later; plus the longest time until all members had a message, because a round does not release
messages that were in transit when it began, and because one member observes X while another one's buffer fills. With
this f a round releases every message counted in X: α = 1.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from cubecast.errors import LocalProtocolError
from cubecast.models.trigger import Feasibility, Trigger, TriggerCase, trigger
from cubecast.networks.network import Network
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario


def choose_trigger(scenario: Scenario, network: Network) -> Trigger:
    """Find X for this scenario's buffer, rate and protocol; if none is feasible, an error says what to change."""
    if scenario.messages == 0 or scenario.buffer_messages == 0:
        raise LocalProtocolError("to choose a trigger, give messages (data traffic) and buffer_messages (g)")
    free = replace(scenario, trigger="delta", trigger_messages=0, buffer_messages=0, delta_ms=0.0)
    found = trigger(
        TriggerCase(
            buffer_messages=scenario.buffer_messages,
            rate_per_s=scenario.rate,
            round_s=round_seconds(run_scenario(free, network)),
        )
    )
    if found.verdict is not Feasibility.FEASIBLE:
        raise LocalProtocolError(found.sentence)
    return found


def round_seconds(result: Result) -> float:
    """f, as the module defines it."""
    periods = [later.begun_ms - earlier.begun_ms for earlier, later in pairwise(result.per_round)]
    longest_ms = max([*periods, *(one.rtt_last_ms for one in result.per_round)])
    return (longest_ms + (result.delay_max_ms or 0.0)) / 1e3

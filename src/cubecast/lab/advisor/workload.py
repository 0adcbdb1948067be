"""The simulation of one candidate: its duration and the measured values.

Data flows for at least `PERIODS` rounds with their pauses, and for at least `MULTICASTS` messages of all senders, so
that a short pause costs a short simulation. All candidates run on the same networks and random streams, seed by seed.

A run ends with a round. The pause that would follow counts with that round: without it, k + 1 rounds would be charged
to k periods, and a few long pauses would look more expensive than many short ones.

| quantity    | meaning, per run                                                              |
|-------------|-------------------------------------------------------------------------------|
| time        | from a multicast until the last member knows that the message is stable, mean |
| bytes       | what the stability protocol sends per second and member                       |
| buffer      | unstable messages that a member holds, mean over members and time             |
| messages    | what the stability protocol sends per second and member                       |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from cubecast.lab.advisor.candidates import Candidate, scenario_with
from cubecast.lab.advisor.question import GroupQuestion
from cubecast.networks.spec import build_network
from cubecast.sim.resolve_defaults import expected_round_ms

EXPERIMENT = "simulate"
PERIODS = 4
MULTICASTS = 120
MESSAGES_MIN = 4
PATIENCE = 20
"""A run is abandoned after this factor times the duration of the data flow, and not before `PATIENCE_MS_MIN`."""
PATIENCE_MS_MIN = 20_000.0


class Observation(NamedTuple):
    """The measurements of one simulation of a candidate."""

    time_ms: float
    bytes_per_s: float
    buffer: float
    messages_per_s: float
    round_ms: float = 0.0
    """The mean time from the beginning of a round to that of the next, without the pause."""


class Workload:
    """The settings of the simulations that answer a question."""

    def __init__(self, question: GroupQuestion) -> None:
        """Estimate the length of a round once, on the network of the first seed."""
        self.question = question
        network = build_network(question.network, members=question.members, seed=question.seed)
        self._rounds_ms: dict[str, float] = {}
        self._network = network

    def settings(self, candidate: Candidate) -> dict[str, Any]:
        """All settings except the seed."""
        own = candidate.configuration.settings | {"delta_ms": candidate.delta_ms}
        return self.question.common | own | self._lengths(candidate)

    def _lengths(self, candidate: Candidate) -> dict[str, Any]:
        question = self.question
        protocol = candidate.configuration.protocol
        scenario = scenario_with(question, {"protocol": protocol})
        if protocol not in self._rounds_ms:
            self._rounds_ms[protocol] = expected_round_ms(scenario, self._network)
        period_ms = candidate.delta_ms + self._rounds_ms[protocol]
        window_ms = max(PERIODS * period_ms, 1e3 * MULTICASTS / (scenario.sender_count * question.rate))
        messages = max(MESSAGES_MIN, math.ceil(window_ms * question.rate / 1e3))
        patience_ms = max(PATIENCE_MS_MIN, PATIENCE * messages / question.rate * 1e3)
        return {"messages": messages, "until_ms": float(math.ceil(patience_ms))}


def read_observation(metrics: Mapping[str, float], *, members: int, delta_ms: float) -> Observation | None:
    """The observation of a run; None if no message became stable at all members."""
    time_ms = metrics.get("tts_last_ms", math.nan)
    if math.isnan(time_ms) or metrics["simulated_ms"] <= 0:
        return None
    whole_ms = metrics["simulated_ms"] + _last_pause_ms(metrics, delta_ms)
    seconds = whole_ms / 1e3
    return Observation(
        time_ms=time_ms,
        bytes_per_s=metrics["bytes"] / seconds / members,
        buffer=metrics["buffer_mean"],
        messages_per_s=metrics["messages"] / seconds / members,
        round_ms=max(whole_ms / max(metrics["rounds"], 1.0) - delta_ms, 0.0),
    )


def _last_pause_ms(metrics: Mapping[str, float], delta_ms: float) -> float:
    """Δ, or the longest time between two rounds if the protocol pauses for less."""
    gaps = metrics["rounds"] - 1
    return min(delta_ms, metrics["simulated_ms"] / gaps) if gaps > 0 else delta_ms

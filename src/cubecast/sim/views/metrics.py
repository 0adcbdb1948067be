"""The result of a run with views."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cubecast.networks.network import Network
from cubecast.protocol.mail import Mail
from cubecast.sim.common_metrics import of_control_traffic, of_data_traffic, of_detector_traffic, of_run
from cubecast.sim.result import Result
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.sim.views.churn_schedule import ChurnSchedule
from cubecast.sim.views.group import SimulatedGroup
from cubecast.sim.views.tables import Tables
from cubecast.sim.world import World


class ViewsRun(NamedTuple):
    """The parts of a run."""

    world: World
    mail: Mail
    tables: Tables
    group: SimulatedGroup
    churn: ChurnSchedule


def collect(scenario: Scenario, network: Network, run: ViewsRun, wall_seconds: float) -> Result:
    """Compute the result from the tables of a run that is over."""
    return Result(
        **of_run(scenario, network, run.world.scalars[0], run.group.now_ns, wall_seconds),
        **_without_rounds(run),
        **_of_data(run),
        **_of_views(scenario, run),
    )


def _without_rounds(run: ViewsRun) -> dict[str, Any]:
    """Metrics of all runs; every view has rounds of its own, which are not timed."""
    scalars, totals = run.world.scalars[0], run.tables.totals[0]
    return {
        "rounds": 0,
        "rtt_first_ms": math.nan,
        "rtt_last_ms": math.nan,
        "steps": None,
        **of_control_traffic(scalars, totals),
        "piggybacked": 0,
        "missed": None,
        "per_round": (),
        "buffer_mean": None,
        "buffer_max": None,
        "buffer_series": (),
        "buffer_full_ms": None,
        "overflows": 0,
        "blocked_ms": 0.0,
        "input_overflows": 0,
    }


def _of_data(run: ViewsRun) -> dict[str, Any]:
    """Metrics of the data protocol and the failure detectors."""
    scalars, totals = run.world.scalars[0], run.tables.totals[0]
    members = len(run.tables.occupant)
    return {
        **of_data_traffic(scalars, totals),
        "delivered_share": None,
        "duplicates": 0,
        "tts_first_ms": None,
        "tts_last_ms": None,
        "tts_max_ms": None,
        **of_detector_traffic(scalars, totals, members, run.group.now_ns),
        "detect_first_ms": None,
        "detect_last_ms": None,
        "false_suspicions": run.group.excluded_wrongly,
    }


def _of_views(scenario: Scenario, run: ViewsRun) -> dict[str, Any]:
    """The cost of changes."""
    totals = run.tables.totals[0]
    member_s = scenario.members * run.group.now_ns / 1e9
    stable_ns = run.tables.stable_ns[: int(totals.stable_count)]
    causal_ns = run.tables.causal_ns[: int(totals.causal_count)]
    return {
        "changes": run.churn.changes,
        "views": run.group.views,
        "paused_share": run.group.share_paused(),
        "pause_p50_ms": _quantile_ms(run.group.pauses.lengths_ns, 0.5),
        "pause_p99_ms": _quantile_ms(run.group.pauses.lengths_ns, 0.99),
        "stable_p50_ms": _quantile_ms(stable_ns, 0.5),
        "stable_p99_ms": _quantile_ms(stable_ns, 0.99),
        "causal_p50_ms": _quantile_ms(causal_ns, 0.5),
        "causal_p99_ms": _quantile_ms(causal_ns, 0.99),
        "stability_bytes_per_member_s": float(totals.bytes - totals.membership_bytes) / member_s,
        "membership_messages": int(totals.membership_messages),
        "membership_bytes": int(totals.membership_bytes),
        "membership_bytes_per_member_s": float(totals.membership_bytes) / member_s,
        "excluded_wrongly": run.group.excluded_wrongly,
    }


def _quantile_ms(values: Any, share: float) -> float | None:
    return float(np.quantile(np.asarray(values), share)) / NS_PER_MS if len(values) else None

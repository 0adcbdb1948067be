"""The result of a run with views."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cubecast.networks.network import Network
from cubecast.protocol.mail import Mail
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
    scalars = run.world.scalars[0]
    hops = int(scalars.hops + scalars.data_hops + scalars.failure_hops)
    return Result(
        protocol=scenario.protocol,
        members=scenario.members,
        senders=scenario.sender_count,
        network=scenario.network,
        average_degree=network.average_degree,
        seed=scenario.seed,
        **_without_rounds(run),
        **_of_data(run),
        **_of_views(scenario, run),
        simulated_ms=run.group.now_ns / NS_PER_MS,
        packet_hops_per_second=hops / wall_seconds if wall_seconds > 0 else 0.0,
        wall_seconds=wall_seconds,
    )


def _without_rounds(run: ViewsRun) -> dict[str, Any]:
    """Metrics of all runs; every view has rounds of its own, which are not timed."""
    scalars, totals = run.world.scalars[0], run.tables.totals[0]
    return {
        "rounds": 0,
        "rtt_first_ms": math.nan,
        "rtt_last_ms": math.nan,
        "steps": None,
        "messages": int(totals.messages),
        "unicasts": int(totals.unicasts),
        "multicasts": int(totals.multicasts),
        "hops": int(scalars.hops),
        "bytes": int(totals.bytes),
        "piggybacked": 0,
        "missed": None,
        "drops": int(scalars.drops),
        "load_mean": _ratio(scalars.load_sum, scalars.load_samples),
        "queue_mean": _ratio(scalars.queue_sum, scalars.queue_samples),
        "queue_max": int(scalars.queue_max),
        "node_queue_mean": _ratio(scalars.node_queue_sum, scalars.node_queue_samples) if scalars.processors else None,
        "node_queue_max": int(scalars.node_queue_max) if scalars.processors else None,
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
        "data_messages": int(totals.data_messages),
        "data_hops": int(scalars.data_hops),
        "data_bytes": int(totals.data_bytes),
        "data_fragments": int(totals.data_fragments),
        "delay_mean_ms": _ratio(totals.delay_sum_ns, totals.delays) / NS_PER_MS if totals.delays else None,
        "delay_max_ms": float(totals.delay_max_ns) / NS_PER_MS if totals.delays else None,
        "delivered_share": None,
        "delivery_queue_mean": _ratio(totals.waiting_sum, totals.waiting_samples),
        "delivery_queue_max": int(totals.waiting_max),
        "overhead_messages": int(totals.overhead_messages),
        "overhead_bytes": int(totals.overhead_bytes),
        "duplicates": 0,
        "tts_first_ms": None,
        "tts_last_ms": None,
        "tts_max_ms": None,
        "failure_messages": int(totals.failure_messages),
        "failure_hops": int(scalars.failure_hops),
        "failure_bytes": int(totals.failure_bytes),
        "failure_bytes_per_member_s": _ratio(totals.failure_bytes * 1e9 / members, run.group.now_ns),
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


def _ratio(total: float, count: int) -> float:
    return float(total) / float(count) if count else 0.0

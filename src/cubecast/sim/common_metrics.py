"""The metrics that all runs have, with views or without: the run itself, and its traffic by layer.

`scalars` are those of the world (`sim.world`), `totals` the counters of the kernel; both kernels name them alike.
"""

from __future__ import annotations

from typing import Any

from cubecast.networks.network import Network
from cubecast.sim.scenario import NS_PER_MS, Scenario


def of_run(scenario: Scenario, network: Network, scalars: Any, now_ns: int, wall_seconds: float) -> dict[str, Any]:
    """What was simulated, for how long, and how fast."""
    hops = int(scalars.hops + scalars.data_hops + scalars.failure_hops)
    return {
        "protocol": scenario.protocol,
        "members": scenario.members,
        "senders": scenario.sender_count,
        "network": scenario.network,
        "average_degree": network.average_degree,
        "seed": scenario.seed,
        "simulated_ms": float(now_ns) / NS_PER_MS,
        "packet_hops_per_second": hops / wall_seconds if wall_seconds > 0 else 0.0,
        "wall_seconds": wall_seconds,
    }


def of_control_traffic(scalars: Any, totals: Any) -> dict[str, Any]:
    """The messages of the stability protocol, and load and queues of the network."""
    has_node_queues = bool(scalars.processors)
    return {
        "messages": int(totals.messages),
        "unicasts": int(totals.unicasts),
        "multicasts": int(totals.multicasts),
        "hops": int(scalars.hops),
        "bytes": int(totals.bytes),
        "drops": int(scalars.drops),
        "load_mean": ratio(scalars.load_sum, scalars.load_samples),
        "queue_mean": ratio(scalars.queue_sum, scalars.queue_samples),
        "queue_max": int(scalars.queue_max),
        "node_queue_mean": ratio(scalars.node_queue_sum, scalars.node_queue_samples) if has_node_queues else None,
        "node_queue_max": int(scalars.node_queue_max) if has_node_queues else None,
    }


def of_data_traffic(scalars: Any, totals: Any) -> dict[str, Any]:
    """The messages of the data layer, their delays, and those that were held back."""
    return {
        "data_messages": int(totals.data_messages),
        "data_hops": int(scalars.data_hops),
        "data_bytes": int(totals.data_bytes),
        "data_fragments": int(totals.data_fragments),
        "delay_mean_ms": ratio(totals.delay_sum_ns, totals.delays) / NS_PER_MS if totals.delays else None,
        "delay_max_ms": float(totals.delay_max_ns) / NS_PER_MS if totals.delays else None,
        "delivery_queue_mean": ratio(totals.waiting_sum, totals.waiting_samples),
        "delivery_queue_max": int(totals.waiting_max),
        "overhead_messages": int(totals.overhead_messages),
        "overhead_bytes": int(totals.overhead_bytes),
    }


def of_detector_traffic(scalars: Any, totals: Any, members: int, now_ns: int) -> dict[str, Any]:
    """The messages of the failure detector."""
    return {
        "failure_messages": int(totals.failure_messages),
        "failure_hops": int(scalars.failure_hops),
        "failure_bytes": int(totals.failure_bytes),
        "failure_bytes_per_member_s": ratio(totals.failure_bytes * 1e9 / members, now_ns),
    }


def ratio(total: float, count: int) -> float:
    """A mean; 0 without samples."""
    return float(total) / float(count) if count else 0.0

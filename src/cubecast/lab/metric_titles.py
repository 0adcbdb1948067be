"""What metrics and parameters are called in figures and verdicts."""

from __future__ import annotations

FLOOR = "floor_"
"""Before the name of a metric: what no protocol can beat (`models.lower_bounds`)."""
LOWER_BOUND = "lower bound"
"""The line of those values in figures."""

TITLES = {
    "rtt_first_ms": "RTT, first member (ms)",
    "rtt_last_ms": "RTT, last member (ms)",
    "load_mean": "messages on all links",
    "queue_mean": "mean queue (messages)",
    "queue_max": "largest queue (messages)",
    "node_queue_mean": "mean queue of a node (messages)",
    "node_queue_max": "largest queue of a node (messages)",
    "hops": "hops",
    "messages": "messages",
    "bytes": "bytes",
    "delay_mean_ms": "mean delay (ms)",
    "delay_max_ms": "largest delay (ms)",
    "delivery_queue_mean": "mean delivery queue (messages)",
    "delivery_queue_max": "largest delivery queue (messages)",
    "data_bytes": "bytes sent",
    "data_hops": "hops",
    "data_fragments": "fragments sent",
    "data_messages": "messages sent",
    "reliability": "reachability",
    "reliability_with_quota": "reachability with quota",
    "repair_share": "share of REPAIR messages",
    "rounds_to_converge": "rounds to converge",
    "payload_bytes": "d (bytes)",
    "micro_steps": "micro-steps",
    "level_messages": "messages in the buffer",
    "crashed_neighbours": "crashed neighbours",
    "rate_per_s": "messages per second",
    "step_s": "step interval (s)",
    "steps": "steps",
    "best_s": "best step interval (s)",
    "best_tpr_s": "its TPR (s)",
    "low_s": "window from (s)",
    "high_s": "window to (s)",
    "window_s": "width of the window (s)",
    "golden_iterations": "iterations of the search",
    "copies": "copies of a message",
    "sent_bytes": "bytes sent",
    "crossover_bytes": "Overlay sends fewer bytes below (B)",
    "paper_crossover_bytes": "the same by the paper's estimate (B)",
    "measured_messages": "messages, counted",
    "delivered": "share delivered",
    "p_incomplete": "probability of an incomplete detection",
    "paused_share": "share of time paused",
    "pause_p50_ms": "pause, median (ms)",
    "pause_p99_ms": "pause, 99th percentile (ms)",
    "stable_p50_ms": "time to stable, median (ms)",
    "stable_p99_ms": "time to stable, 99th percentile (ms)",
    "membership_bytes_per_member_s": "membership, bytes per member and second",
    "stability_bytes_per_member_s": "stability, bytes per member and second",
    "excluded_wrongly": "members excluded although up",
    "churn_per_s": "changes a second",
    "batch_ms": "changes gathered for (ms)",
    "degree": "degree",
    "degree_min": "smallest degree",
    "degree_max": "largest degree",
    "disjoint_paths": "node-disjoint paths",
    "k_fail": "K_fail (steps)",
    "detection_s_max": "longest time to detect a failure (s)",
    "multicast": "multicast",
    "format": "message format",
    "relayed": "S_Coord relays START and INFO",
    "crash": "crash probability",
}


def title_of(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))

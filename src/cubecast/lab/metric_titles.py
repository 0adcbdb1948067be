"""The titles of metrics and parameters in figures and verdicts."""

from __future__ import annotations

FLOOR = "floor_"
"""Prefix of a metric name: its lower bound (`models.lower_bounds`)."""
LOWER_BOUND = "lower bound"
"""The name of the line of lower bounds in figures."""

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
    "processed_root": "messages processed by the coordinator",
    "processed_max": "messages processed by one member, maximum",
    "processed_step_max": "messages processed by one member per iteration, maximum",
    "tts_first_ms": "time to stable, mean (ms)",
    "tts_max_ms": "time to stable, longest (ms)",
    "causal_first_ms": "time to causally stable, mean (ms)",
    "causal_last_ms": "time to causally stable, last member (ms)",
    "causal_max_ms": "time to causally stable, longest (ms)",
    "causal_stability": "causal stability",
    "tts_bound_ms": "D + F + TPR (ms)",
    "buffer_full_ms": "time until a buffer was full (ms)",
    "filling_ms": "B / (r·k) (ms)",
    "overflows": "messages held back",
    "formula_rounds": "K / X",
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
    "causal_p50_ms": "time to causally stable, median (ms)",
    "causal_p99_ms": "time to causally stable, 99th percentile (ms)",
    "membership_bytes_per_member_s": "membership, bytes per member and second",
    "stability_bytes_per_member_s": "stability, bytes per member and second",
    "excluded_wrongly": "members excluded although up",
    "churn_per_s": "changes per second",
    "batch_ms": "time to collect changes (ms)",
    "degree": "degree",
    "degree_min": "smallest degree",
    "degree_max": "largest degree",
    "disjoint_paths": "node-disjoint paths",
    "k_fail": "K_fail (steps)",
    "detection_s_max": "longest time to detect a failure (s)",
    "multicast": "multicast",
    "format": "message format",
    "relayed": "S_Coord's START",
    "step_scale": "steps in units of Table 5.1",
    "controllers": "controllers per local group",
    "spread": "spread of the probabilities",
    "ties": "copies of one round",
    "crash": "crash probability",
}


VALUES: dict[str, dict[object, str]] = {
    "relayed": {True: "relayed", False: "sent by the root"},
    "ties": {"link": "by link number", "random": "in random order"},
}
"""Values of parameters, by parameter, that need words in a sentence."""


def title_of(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))

"""The metrics of one member in the Prometheus text format, read when they are requested.

Units are seconds and bytes; counters end in `_total`. Every metric has the labels `group` and `member` (its address);
metrics of links have `peer` besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cubecast.live.driver import STABLE_BOUNDS_S

if TYPE_CHECKING:
    from cubecast.live.group import Group

_GAUGES = {
    "members": "Members of the view that this member installed last.",
    "unstable_messages": "Messages that this member holds because some member may lack them.",
    "unstable_bytes": "Bytes of the messages that some member may lack.",
    "own_unstable_messages": "Messages of this member that are not stable; multicast waits when the window is full.",
    "waiting_messages": "Messages held back until their causal predecessors are delivered.",
    "backlog_bytes": "Bytes delivered that the application has not taken; the setting backlog_bytes limits them.",
    "inbox_entries": "Events that the application has not taken.",
    "round_seconds": "Mean duration of a stability round.",
    "journal_bytes": "Size of the journal; 0 without one.",
}
_COUNTERS = {
    "multicasts": ("published", "Messages that the application of this member multicast."),
    "deliveries": ("delivered", "Messages delivered to the application of this member."),
    "rounds": ("rounds", "Completed stability rounds."),
    "views": ("views", "Views that this member installed."),
    "exclusions": ("exclusions", "Number of times that this member was excluded."),
    "refused_connections": ("refused_connections", "Connections that were refused, by this member or by a peer."),
}
_LINKS = {
    "link_received_bytes": ("bytes_in", "Bytes received from a peer."),
    "link_sent_bytes": ("bytes_out", "Bytes sent to a peer."),
    "link_reconnections": ("reconnections", "Number of reconnections to a peer."),
}


def metrics_text(group: Group) -> bytes:
    """All metrics of a member."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(group))
    return generate_latest(registry)


class _Collector(Collector):
    """Reads the status once for all metrics."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def describe(self) -> list[Metric]:
        """Nothing is read before a request."""
        return []

    def collect(self) -> list[Metric]:
        """Part of prometheus_client."""
        seen = self._group.status()
        labels = {"group": str(seen["group"]), "member": str(seen["address"])}
        return [
            *self._plain(seen, labels),
            *self._journal_times(seen, labels),
            *self._per_peer(seen, labels),
            self._stable_times(labels),
        ]

    def _plain(self, seen: dict[str, Any], labels: dict[str, str]) -> list[Metric]:
        stats = {**seen["stats"], "members": len(seen["members"])}
        found: list[Metric] = [
            _gauge("view", "Number of the view that this member installed last.", labels, seen["view"]),
            _gauge("blocked", "1 while too few members are reachable to continue.", labels, seen["blocked"]),
            _gauge("changing", "1 while the view changes and nothing is delivered.", labels, seen["changing"]),
        ]
        found += [_gauge(name, text, labels, stats.get(name, 0)) for name, text in _GAUGES.items()]
        for name, (key, text) in _COUNTERS.items():
            counter = CounterMetricFamily(f"cubecast_{name}", text, labels=list(labels))
            counter.add_metric(list(labels.values()), float(stats.get(key, 0)))
            found.append(counter)
        return found

    def _journal_times(self, seen: dict[str, Any], labels: dict[str, str]) -> list[Metric]:
        """Absent without a journal, and before the first of each."""
        journal = seen["journal"] or {}
        times = {
            "journal_last_sync_timestamp_seconds": ("synced_at_s", "Time of the last successful sync of the journal."),
            "journal_last_checkpoint_timestamp_seconds": ("checkpoint_at_s", "Time of the last completed checkpoint."),
        }
        return [
            _gauge(name, text, labels, journal[key])
            for name, (key, text) in times.items()
            if journal.get(key) is not None
        ]

    def _per_peer(self, seen: dict[str, Any], labels: dict[str, str]) -> list[Metric]:
        """One sample for each other member of the view, also when it is 0."""
        names, values = [*labels, "peer"], list(labels.values())
        behind = GaugeMetricFamily(
            "cubecast_behind", "Messages that a member lacks and another member has.", labels=names
        )
        up = GaugeMetricFamily("cubecast_link_up", "1 while the link to a peer has a connection.", labels=names)
        counters = {
            key: CounterMetricFamily(f"cubecast_{name}", text, labels=names) for name, (key, text) in _LINKS.items()
        }
        for one in seen["members"]:
            behind.add_metric([*values, one["address"]], float(one["behind"]))
            if one["link"] is not None:
                up.add_metric([*values, one["address"]], float(one["link"]["up"]))
                for key, counter in counters.items():
                    counter.add_metric([*values, one["address"]], float(one["link"][key]))
        return [behind, up, *counters.values()]

    def _stable_times(self, labels: dict[str, str]) -> Metric:
        times = self._group._entered().stable_times
        histogram = HistogramMetricFamily(
            "cubecast_stable_seconds",
            "Time from a multicast of this member until every member has the message; one at a time is measured.",
            labels=list(labels),
        )
        total = 0
        buckets = []
        for bound, count in zip((*map(str, STABLE_BOUNDS_S), "+Inf"), times.counts, strict=True):
            total += count
            buckets.append((bound, total))
        histogram.add_metric(list(labels.values()), buckets, times.sum_s)
        return histogram


def _gauge(name: str, text: str, labels: dict[str, str], value: float) -> Metric:
    gauge = GaugeMetricFamily(f"cubecast_{name}", text, labels=list(labels))
    gauge.add_metric(list(labels.values()), float(value))
    return gauge

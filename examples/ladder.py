"""A network, a metric of the result, a metric of the trace, and a promise of one's own, for the plan ladder.toml.

    cubecast study run examples/ladder.toml

The file travels to the workers of a cluster, and its content is part of the key of each run that uses it.
"""

from __future__ import annotations

import numpy as np

from cubecast.lab.own_metrics import OwnMetric
from cubecast.networks.delays import NS_PER_MS, constant
from cubecast.networks.network import Edges, Network, every_node_hosts, from_edges
from cubecast.networks.options import Options
from cubecast.networks.spec import NetworkKind
from cubecast.sim.result import Result
from cubecast.trace.checkers import Violation
from cubecast.trace.files import Trace
from cubecast.trace.schema import RECEIVE, SEND

COPIES_MAX = 256


def ladder(options: Options) -> Network:
    """Members in two rows of equal length: a link to the next in the row, and a rung to the one opposite."""
    members = options.members
    rungs = [(left, left + 1) for left in range(0, members - 1, 2)]
    rails = [(node, node + 2) for node in range(members - 2)]
    ends = np.array(rungs + rails, np.int64)
    edges = Edges(
        ends=ends,
        delay_ns=np.full(len(ends), options.delay(constant(NS_PER_MS)).draw_ns(np.random.default_rng(0), 1)[0]),
        bandwidth_bps=np.full(len(ends), options.bandwidth_bps(100e6)),
    )
    return from_edges(edges, name=options.name, nodes=members, hosts=every_node_hosts(members))


def gap_ms(result: Result) -> float:
    """How much later the last member knows than the first."""
    return result.rtt_last_ms - result.rtt_first_ms


def busiest_share(trace: Trace) -> float | None:
    """Of all messages received, how many the busiest member receives."""
    events = trace.events
    receivers = events["member"][events["event"] == RECEIVE]
    return float(np.bincount(receivers).max() / len(receivers)) if len(receivers) else None


class NoBurst:
    """A promise: no member sends more than `COPIES_MAX` messages at one moment."""

    NAME = "no burst"
    PROMISE = f"A member sends at most {COPIES_MAX} messages at one moment."

    def not_promised(self, trace: Trace) -> str | None:
        """Every scenario promises it."""
        return None

    def check(self, trace: Trace) -> list[Violation]:
        """Count the sends of each member at each moment."""
        events = trace.events
        sends = np.flatnonzero(events["event"] == SEND)
        moments = np.stack([events["time_ns"][sends], events["member"][sends]], axis=1)
        found, first, counts = np.unique(moments, axis=0, return_index=True, return_counts=True)
        return [
            Violation(
                checker=self.NAME,
                message=f"member {member} sends {count} messages at {time_ns} ns",
                rows=(int(sends[row]),),
                time_ns=int(time_ns),
            )
            for (time_ns, member), row, count in zip(found, first, counts, strict=True)
            if count > COPIES_MAX
        ]


NETWORKS = {
    "ladder": NetworkKind(
        ladder, ("delay", "bandwidth"), "ladder[:delay=1ms][,bandwidth=100e6]", "members in two rows, with rungs"
    )
}
METRICS = [
    OwnMetric(name="gap_ms", measure=gap_ms, title="last member after the first (ms)"),
    OwnMetric(name="busiest_share", measure=busiest_share, reads="trace", title="share of the busiest member"),
]
CHECKER = NoBurst()

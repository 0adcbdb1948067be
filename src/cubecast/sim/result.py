"""The result of a run (MODELS §9)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubecast.networks.network import Network
from cubecast.protocol.context import Context
from cubecast.sim.build import Simulation
from cubecast.sim.common_metrics import of_control_traffic, of_data_traffic, of_detector_traffic, of_run, ratio
from cubecast.sim.scenario import NS_PER_MS, Scenario


@dataclass(frozen=True, kw_only=True)
class Round:
    """The round-trip times of one round: until the first and until the last member knew S."""

    number: int
    begun_ms: float
    rtt_first_ms: float
    rtt_last_ms: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """Metrics of one run. Times are means over its rounds; messages, hops and bytes are sums over the run."""

    protocol: str
    members: int
    senders: int
    network: str
    average_degree: float
    seed: int
    rounds: int
    rtt_first_ms: float
    rtt_last_ms: float
    steps: float | None
    """Gossip steps until the first member knew S: TPR / step interval (guo §5.3); None for a protocol without steps."""
    messages: int
    """Logical sends of the stability protocol; a multicast counts n−1."""
    unicasts: int
    multicasts: int
    hops: int
    """Links crossed by those messages."""
    bytes: int
    piggybacked: int
    """Control messages piggybacked on data messages; not counted in `messages`."""
    missed: int | None
    """With the goal errors: messages that members know they miss, at the end of the run."""
    drops: int
    load_mean: float
    """Messages on all links, sampled every millisecond of a round."""
    queue_mean: float
    """Messages waiting for one link or one processor, sampled at every send and receive there."""
    queue_max: int
    data_messages: int
    data_hops: int
    data_bytes: int
    data_fragments: int
    """Data messages as IP would count them: a message of more than 1500 B counts as several."""
    delay_mean_ms: float | None
    """From the multicast of a data message to its delivery, over all other members."""
    delay_max_ms: float | None
    delivered_share: float | None
    """The share of all pairs of a data message and another member that were delivered; None without messages."""
    delivery_queue_mean: float
    """Messages received but not yet delivered at a member, sampled at every receive."""
    delivery_queue_max: int
    overhead_messages: int
    """The data messages that carry no payload: NAKs, ACKs, reports, announcements."""
    overhead_bytes: int
    duplicates: int
    """Data messages received that the receiver held already."""
    tts_first_ms: float | None
    """From the multicast of a data message until the first member knew that it is stable, on average. With the goal
    errors: until the result of a round covered the message, so that the member knew whether it misses it."""
    tts_last_ms: float | None
    tts_max_ms: float | None
    """The longest time from a multicast until the first member knew that the message is stable (guo §5.2)."""
    buffer_mean: float | None
    """Unstable data messages a member holds, on average over members and time."""
    buffer_max: int | None
    buffer_series: tuple[float, ...]
    """The mean over members of unstable data messages held, every `series_ms`; empty if that is 0."""
    overflows: int
    """Messages that a sender had to hold back because its buffer was full."""
    blocked_ms: float
    """How long senders held messages back, summed over the senders."""
    buffer_full_ms: float | None
    """How long a sender had been sending when its buffer was first full; None if no buffer ever was."""
    input_overflows: int
    """Deliveries beyond the capacity of an input buffer (the messages are kept nevertheless)."""
    failure_messages: int
    """Logical sends of the failure detectors."""
    failure_hops: int
    failure_bytes: int
    failure_bytes_per_member_s: float
    detect_first_ms: float | None
    """From a crash until the first member removed the crashed member from its membership, averaged over crashes."""
    detect_last_ms: float | None
    false_suspicions: int
    """Members excluded although they were up."""
    simulated_ms: float
    packet_hops_per_second: float
    wall_seconds: float
    per_round: tuple[Round, ...]
    node_queue_mean: float | None = None
    """Messages waiting at one node, for its processor and all its links, sampled whenever it sends or receives (guo
    §5.2). None on networks whose nodes take no time."""
    node_queue_max: int | None = None
    # Only of runs with deliver = stable (`sim.atomic_delivery`), otherwise None.
    atomic_delay_mean_ms: float | None = None
    """From the multicast of a data message until another member's application gets it."""
    atomic_delay_max_ms: float | None = None
    atomic_queue_mean: float | None = None
    """Messages that a member has and its application has not received, sampled at every receive."""
    atomic_queue_max: int | None = None
    # Only of runs with causal_stability (`sim.causal_stability`), otherwise None.
    causal_first_ms: float | None = None
    """From the multicast of a data message until the first member knew that it is causally stable, on average."""
    causal_last_ms: float | None = None
    causal_max_ms: float | None = None
    """The longest time from a multicast until the first member knew that the message is causally stable."""
    # Only of runs with views (`sim.views`), otherwise None.
    changes: int | None = None
    """Joins, leaves, crashes and returns."""
    views: int | None = None
    """Views that were installed, including the founding view."""
    paused_share: float | None = None
    """The share of the time in views during which members were paused by a view change."""
    pause_p50_ms: float | None = None
    """From the promise of a member until it installed the next view."""
    pause_p99_ms: float | None = None
    stable_p50_ms: float | None = None
    """From the multicast of a data message until its sender knew that it is stable, including waits for a view."""
    stable_p99_ms: float | None = None
    causal_p50_ms: float | None = None
    """From the multicast until its sender knew that it is causally stable; None without causal_stability."""
    causal_p99_ms: float | None = None
    stability_bytes_per_member_s: float | None = None
    membership_messages: int | None = None
    """The membership messages among `messages`."""
    membership_bytes: int | None = None
    membership_bytes_per_member_s: float | None = None
    excluded_wrongly: int | None = None
    """Members that were excluded although they were up."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def collect(scenario: Scenario, network: Network, simulation: Simulation, wall_seconds: float) -> Result:
    """Compute the result from the arrays of a finished (or abandoned) run."""
    scalars = simulation.world.scalars[0]
    return Result(
        **of_run(scenario, network, scalars, scalars.now_ns, wall_seconds),
        **_of_rounds(scenario, simulation),
        **_of_data(scenario, simulation),
        **_of_buffers(scenario, simulation),
        **_of_detection(scenario, simulation),
        **_of_causal_stability(scenario, simulation),
    )


def _of_rounds(scenario: Scenario, simulation: Simulation) -> dict[str, Any]:
    """The metrics of the stability protocol, and of queues and load during its rounds."""
    scalars = simulation.world.scalars[0]
    totals = simulation.metrics.totals[0]
    rounds = _rounds(simulation)
    return {
        "rounds": len(rounds),
        "rtt_first_ms": _mean([one.rtt_first_ms for one in rounds]),
        "rtt_last_ms": _mean([one.rtt_last_ms for one in rounds]),
        "steps": _steps(scenario, rounds),
        **of_control_traffic(scalars, totals),
        "piggybacked": int(totals.piggybacked),
        "missed": _missed(scenario, simulation),
        "per_round": rounds,
    }


def _of_data(scenario: Scenario, simulation: Simulation) -> dict[str, Any]:
    """The metrics of the data layer."""
    scalars = simulation.world.scalars[0]
    totals = simulation.metrics.totals[0]
    pairs = scenario.messages * scenario.sender_count * (scenario.members - 1)
    return {
        **of_data_traffic(scalars, totals),
        "delivered_share": int(totals.delays) / pairs if pairs else None,
        "duplicates": _duplicates(simulation),
    }


def _of_buffers(scenario: Scenario, simulation: Simulation) -> dict[str, Any]:
    """The metrics of stability and buffers."""
    metrics = simulation.metrics
    totals = metrics.totals[0]
    return {
        "tts_first_ms": _time_to_known(simulation, metrics.first_ns, metrics.known_by),
        "tts_last_ms": _time_to_known(simulation, metrics.last_ns, metrics.known_by),
        "tts_max_ms": _longest_to_known(simulation, metrics.first_ns, metrics.known_by),
        "buffer_mean": _buffer_mean(scenario, simulation),
        "buffer_max": int(totals.held_max) if _frees_buffers(scenario) else None,
        "buffer_series": _buffer_series(scenario, simulation),
        "overflows": int(totals.overflows),
        "blocked_ms": float(totals.blocked_sum_ns) / NS_PER_MS,
        "buffer_full_ms": _buffer_full_ms(simulation),
        "input_overflows": int(totals.input_overflows),
    }


def _of_causal_stability(scenario: Scenario, simulation: Simulation) -> dict[str, Any]:
    """The metrics of causal stability."""
    if not scenario.causal_stability:
        return {}
    metrics = simulation.metrics
    known_by = metrics.causal_known_by
    return {
        "causal_first_ms": _time_to_known(simulation, metrics.causal_first_ns, known_by),
        "causal_last_ms": _time_to_known(simulation, metrics.causal_last_ns, known_by),
        "causal_max_ms": _longest_to_known(simulation, metrics.causal_first_ns, known_by),
    }


def _of_detection(scenario: Scenario, simulation: Simulation) -> dict[str, Any]:
    """The metrics of failure detection: traffic, delays and mistakes."""
    scalars = simulation.world.scalars[0]
    totals = simulation.metrics.totals[0]
    return {
        **of_detector_traffic(scalars, totals, scenario.members, scalars.now_ns),
        "detect_first_ms": _detection_ms(simulation, "excluded_first_ns"),
        "detect_last_ms": _detection_ms(simulation, "excluded_last_ns"),
        "false_suspicions": int(totals.false_suspicions),
    }


def _rounds(simulation: Simulation) -> tuple[Round, ...]:
    """The finished rounds: at some time all members that were up knew their results, or later ones."""
    table = simulation.metrics.rounds
    members = simulation.metrics.members
    up = members.done[(members.up == 1) & (members.joining == 0)]
    known_by_all = np.arange(len(table)) <= int(up.min() if len(up) else members.done.max())
    over = (table.begun_ns >= 0) & (table.first_ns >= 0) & (known_by_all | (table.open == 0))
    return tuple(
        Round(
            number=number,
            begun_ms=float(table[number].begun_ns) / NS_PER_MS,
            rtt_first_ms=float(table[number].first_ns - table[number].begun_ns) / NS_PER_MS,
            rtt_last_ms=float(table[number].last_ns - table[number].begun_ns) / NS_PER_MS,
        )
        for number in np.flatnonzero(over).tolist()
    )


def _steps(scenario: Scenario, rounds: tuple[Round, ...]) -> float | None:
    rhythm = scenario.entry().steps
    if rhythm is None:
        return None
    context = Context(members=scenario.members, senders=scenario.sequence_count)
    interval_ns = rhythm(scenario.parameters, context).interval_ns
    return _mean([one.rtt_first_ms for one in rounds]) / 1e3 / (interval_ns / 1e9) if interval_ns else None


def _missed(scenario: Scenario, simulation: Simulation) -> int | None:
    if scenario.goal != "errors":
        return None
    up = simulation.metrics.members.up == 1
    return int(np.maximum(simulation.group.stable[up] - simulation.group.received[up], 0).sum())


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _time_to_known(simulation: Simulation, known_ns: NDArray[np.int64], known_by: NDArray[np.int32]) -> float | None:
    """Mean over the data messages that every member that is up knows to be stable, or causally stable."""
    known = known_by >= max(int(simulation.metrics.totals[0].up), 1)
    if not known.any():
        return None
    return float((known_ns[known] - simulation.metrics.sent_ns[known]).mean()) / NS_PER_MS


def _longest_to_known(simulation: Simulation, first_ns: NDArray[np.int64], known_by: NDArray[np.int32]) -> float | None:
    """Maximum over the data messages that some member knows to be stable, or causally stable."""
    known = known_by > 0
    if not known.any():
        return None
    return float((first_ns[known] - simulation.metrics.sent_ns[known]).max()) / NS_PER_MS


def _buffer_full_ms(simulation: Simulation) -> float | None:
    """The first hold-back: a sender sends at equal intervals, so the first later message was held back when due."""
    sent_ns = simulation.metrics.sent_ns[:, 1:]
    interval_ns = int(simulation.metrics.totals[0].data_interval_ns)
    if simulation.metrics.totals[0].overflows == 0 or sent_ns.shape[1] < 2:
        return None
    late = (np.diff(sent_ns, axis=1) > interval_ns) & (sent_ns[:, 1:] > 0)
    senders, places = late.nonzero()
    full_ns = sent_ns[senders, places] + interval_ns - sent_ns[senders, 0]
    return float(full_ns.min()) / NS_PER_MS if len(full_ns) else None


def _buffer_mean(scenario: Scenario, simulation: Simulation) -> float | None:
    scalars = simulation.world.scalars[0]
    return ratio(scalars.held_sum, scalars.held_samples) / scenario.members if _frees_buffers(scenario) else None


def _frees_buffers(scenario: Scenario) -> bool:
    """Does the run detect stability? Otherwise buffers are never freed, and there is nothing to measure."""
    return scenario.messages > 0 and not scenario.carries_data and scenario.goal == "stability"


def delivered_everywhere(scenario: Scenario, simulation: Simulation) -> bool:
    """Do all members that are up hold the same messages, including all messages of the senders that are up?

    A protocol that does not promise delivery (one for lossy links) is done when no event is left.
    """
    if scenario.entry().links == "lossy":
        return True
    up = simulation.metrics.members.up == 1
    received = simulation.group.received[up]
    senders_up = np.flatnonzero(up[: scenario.sender_count])
    same = bool((received == received[:1]).all())
    return same and bool((received[:, senders_up] >= scenario.messages).all())


def _detection_ms(simulation: Simulation, when: str) -> float | None:
    """Mean detection time over the members that went down and were excluded for it."""
    people = simulation.metrics.members
    found = people[(people.up == 0) & (people.wrongly == 0) & (people.excluded_first_ns >= 0)]
    return float((found[when] - found.down_ns).mean()) / NS_PER_MS if len(found) else None


def _duplicates(simulation: Simulation) -> int:
    window = getattr(simulation.data, "window", None)
    return 0 if window is None else int(window.duplicates.sum())


def _buffer_series(scenario: Scenario, simulation: Simulation) -> tuple[float, ...]:
    held = simulation.metrics.held_series[: int(simulation.metrics.totals[0].samples)]
    return tuple((held / scenario.members).tolist())

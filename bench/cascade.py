"""Compare Cascade with the round-based stability protocols at equal control messages: when do all know stability?

    python bench/cascade.py                                        n = 64 and 256, no loss, 1 % and 5 % on every link
    python bench/cascade.py --members 1000 --loss 0 --seeds 1      one size, one loss
    python bench/cascade.py --network regions --members 64         another network
    python bench/cascade.py --crash 5@300ms --crash 0@600ms        members crash, and are excluded 30 ms later

Random graph of degree 5, 16 senders at 100 messages/s each, data over the default transport. Every protocol runs with
several Δ. For each Δ of cascade the table shows its cost (control messages per second and member; control messages and
bytes of the group per data message), the time until the last member knows that a message is stable (p50, p99, mean over
the messages), the largest number of unstable messages that a member keeps (`buffer`), and the mean time of the best
round-based protocol with as many messages per second or fewer: over its Δ the period is linear in 1/messages, and so is
the time. A protocol that sends more even with the largest Δ is left out. Messages per second are those of the whole
run; with loss it lasts until the last repair, long after the last data message.

No protocol can be faster than the data and the network (up to 256 members, without crashes): `held` is the mean time
until the last member has delivered a message, `floor` the mean time until news of every delivery can have reached every
member, each with the standard error over the seeds. News from member i takes at least the longest of the shortest paths
that begin at i, for a bare header without loss or queues; the floor of a message is the largest sum of the time of a
delivery and this. It holds for any number of control messages. The last two columns are the floor relative to the best
round-based protocol, which is the best ratio that any protocol could reach, and Cascade relative to the floor.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from cubecast.errors import SimulationError
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.protocol.mail import HEADER_BYTES
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_to_end, trace_scenario
from cubecast.trace.schema import DELIVER

HOLD_MEMBERS_MAX = 256  # the trace of more takes gigabytes
DELTAS_MS = (0, 5, 10, 20, 40, 80)
ROUND_BASED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("coord", {}),
    ("s_coord", {}),
    ("s_coord", {"tree_degree": 32}),
    ("s_train", {}),
    ("cube_full_dist", {}),
    ("dissemination", {}),
)
CASCADES: tuple[dict[str, Any], ...] = (
    {"overlay": "tree"},
    {"overlay": "tree", "linger": False},
    {"overlay": "tree", "tree_degree": 16},
    {"overlay": "dissemination"},
    {"overlay": "hypercube"},
)


class Where(NamedTuple):
    """The settings that all runs of a table share."""

    network: str
    members: int
    loss: float
    seeds: int
    crashes: tuple[str, ...]


class Point(NamedTuple):
    """A protocol with one Δ: messages, bytes, times to stable at the last member in ms, and the fullest buffer."""

    rate: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    messages: float
    bytes: float
    buffer: float


class Floor(NamedTuple):
    """Mean times in ms that no protocol can beat, and their standard errors."""

    held_ms: float
    held_error_ms: float
    known_ms: float
    known_error_ms: float


def scenario_of(protocol: str, settings: dict[str, Any], where: Where, seed: int) -> Scenario:
    """One run."""
    return Scenario.of(
        protocol,
        members=where.members,
        network=where.network,
        senders=16,
        messages=100,
        rate=100,
        loss=where.loss,
        crashes=where.crashes,
        detect_ms=30,
        seed=seed,
        measure=False,
        until_ms=60_000,
        **settings,
    )


def best_possible(where: Where) -> Floor | None:
    """How fast any stability protocol could be; None where that is not measured, or a run did not end."""
    if where.members > HOLD_MEMBERS_MAX or where.crashes:
        return None
    try:
        held_ms, floor_ms = zip(*(_best_possible(where, seed) for seed in range(1, where.seeds + 1)), strict=True)
    except SimulationError:
        return None
    return Floor(*_mean_and_error(held_ms), *_mean_and_error(floor_ms))


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def _best_possible(where: Where, seed: int) -> tuple[float, float]:
    """Of one run: the mean times until all members hold a message, and until all can know that."""
    network = build_network(where.network, members=where.members, seed=seed)
    events = trace_scenario(scenario_of("coord", {"delta_ms": 20}, where, seed), network).events
    delivered = events[events["event"] == DELIVER]
    time_ms = delivered["time_ns"] / 1e6
    messages = delivered["sender"].astype(np.int64) << 32 | delivered["sequence"]
    order = np.argsort(messages, kind="stable")
    starts = np.flatnonzero(np.diff(messages[order], prepend=-1))
    sent_ms = np.minimum.reduceat(time_ms[order], starts)  # a sender delivers its own message at once
    held_ms = np.maximum.reduceat(time_ms[order], starts) - sent_ms
    known_ms = (time_ms + farthest_ms(network)[delivered["member"]])[order]
    floor_ms = np.maximum.reduceat(known_ms, starts) - sent_ms
    return float(held_ms.mean()), float(floor_ms.mean())


def farthest_ms(network: Network) -> NDArray[np.float64]:
    """[i] = the least time in which news from member i reaches every other member."""
    if network.one_hop is not None:
        return np.full(network.members, network.one_hop.low_ns / 1e6)
    crossing_ms = network.delay_ns / 1e6 + 8e3 * HEADER_BYTES / network.bandwidth_bps
    graph = csr_array((crossing_ms, (network.link_from, network.link_to)), shape=(network.nodes, network.nodes))
    paths_ms = dijkstra(graph, indices=network.hosts)[:, network.hosts]
    return np.asarray(paths_ms.max(axis=1))


def measure(protocol: str, settings: dict[str, Any], where: Where) -> Point | None:
    """The mean over some seeds; None if a run did not end."""
    points = []
    for seed in range(1, where.seeds + 1):
        scenario = scenario_of(protocol, settings, where, seed)
        try:
            result, simulation = run_to_end(scenario, build_network(where.network, members=where.members, seed=seed))
        except SimulationError:
            return None
        known = simulation.metrics.known_by >= where.members - len(where.crashes)
        times_ms = (simulation.metrics.last_ns - simulation.metrics.sent_ns)[known] / 1e6
        rate = result.messages / result.simulated_ms * 1e3 / where.members
        data = simulation.metrics.published.sum()
        costs = (result.messages / data, result.bytes / data, result.buffer_max or 0)
        points.append((rate, times_ms.mean(), *np.percentile(times_ms, (50, 99)), *costs))
    return Point(*(float(value) for value in np.mean(points, axis=0)))


def curve(protocol: str, settings: dict[str, Any], where: Where) -> list[Point]:
    """The protocol with every Δ, the most messages first."""
    found = (measure(protocol, settings | {"delta_ms": delta_ms}, where) for delta_ms in DELTAS_MS)
    return sorted((point for point in found if point is not None), reverse=True)


def time_at(points: list[Point], rate: float) -> float | None:
    """The mean time of a protocol that sends at most `rate` messages; None if it cannot send so few."""
    if not points or rate < points[-1].rate:
        return None
    periods = [1 / point.rate for point in points]
    times_ms = [point.mean_ms for point in points]
    fewer = [point.mean_ms for point in points if point.rate <= rate]  # under loss a larger Δ can be faster
    return min(float(np.interp(1 / rate, periods, times_ms)), *fewer)


def named(protocol: str, settings: dict[str, Any]) -> str:
    said = " ".join(f"{name}={value}" for name, value in settings.items() if name != "overlay")
    return " ".join(filter(None, (settings.get("overlay", protocol), said)))


def print_table(where: Where, cascades: Sequence[dict[str, Any]]) -> None:
    rounds = {named(protocol, own): curve(protocol, own, where) for protocol, own in ROUND_BASED}
    print(f"\n{where.network}, n = {where.members}, loss {where.loss:.0%}, {len(where.crashes)} crashes", end="")
    floor = best_possible(where)
    if floor is not None:
        print(f", held {floor.held_ms:.1f} ± {floor.held_error_ms:.1f} ms", end="")
        print(f", floor {floor.known_ms:.1f} ± {floor.known_error_ms:.1f} ms", end="")
    print()
    print("mean ms at control messages/s/member:")
    for name, points in rounds.items():
        said = " · ".join(f"{point.mean_ms:.1f} at {point.rate:.0f}" for point in points)
        print(f"  {name}: {said or 'did not end'}")
    print(
        f"\n{'cascade over':<24} {'msg/s':>6} {'p50':>7} {'p99':>7} {'mean':>7} {'msg/data':>8} {'B/data':>7} "
        f"{'buffer':>6} {'best rounds':>11}  ratio, floor / best rounds, cascade / floor"
    )
    for settings in cascades:
        for point in curve("cascade", settings, where):
            rivals = [(time_ms, name) for name, one in rounds.items() if (time_ms := time_at(one, point.rate))]
            said = "—"
            if rivals:
                time_ms, name = min(rivals)
                said = f"{time_ms:>11.1f}  {point.mean_ms / time_ms:.2f} {name}"
                if floor is not None:
                    said += f", {floor.known_ms / time_ms:.2f}, {point.mean_ms / floor.known_ms:.2f}"
            print(
                f"{named('cascade', settings):<24} {point.rate:>6.0f} {point.p50_ms:>7.1f} {point.p99_ms:>7.1f} "
                f"{point.mean_ms:>7.1f} {point.messages:>8.1f} {point.bytes:>7.0f} {point.buffer:>6.0f} {said:>11}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="random:degree=5")
    parser.add_argument("--members", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--loss", type=float, nargs="+", default=[0.0, 0.01, 0.05])
    parser.add_argument("--crash", action="append", default=[], metavar="RANK@TIME")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only-tree", action="store_true", help="leave out the other overlays and parameters")
    options = parser.parse_args()
    for members in options.members:
        for loss in options.loss:
            where = Where(options.network, members, loss, options.seeds, tuple(options.crash))
            print_table(where, CASCADES[:1] if options.only_tree else CASCADES)


if __name__ == "__main__":
    main()

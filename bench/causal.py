"""Measure causal broadcast: the paper's largest group on one core, and the checker of causal order.

`python -m bench.causal` sends for 10 ms among 600 members on three topologies with Overlay and with Timestamp, and lets
the checker judge ten million deliveries. Compilation is not counted. Seconds are processor seconds, which depend little
on other load of the machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from cubecast.sim.simulate import simulate
from cubecast.trace.checkers import causal_order
from cubecast.trace.files import Trace
from cubecast.trace.schema import DATA, DELIVER, blank_events
from tests.support.checkers import check_by

MILLISECONDS = 10  # of sending; each of the ten senders multicasts ten messages per millisecond (causal §5.1)
TOPOLOGIES = 3
TARGET_S = 20.0
CHECKER_TARGET_S = 60.0


def run_s(protocol: str, members: int, seed: int, payload: int) -> tuple[float, str]:
    """Seconds for one topology, and a summary of the run."""
    began = time.process_time()
    result = simulate(
        protocol,
        members=members,
        senders=10,
        network="random:degree=5,bandwidth=10e6",
        messages=10 * MILLISECONDS,
        rate=10_000.0,
        payload_bytes=payload,
        multicast="tree",
        seed=seed,
    )
    seen = f"{result.data_messages:,} messages, {result.data_hops:,} hops, mean delay {result.delay_mean_ms:.2f} ms"
    return time.process_time() - began, seen


def many_deliveries(rows: int, members: int, senders: int) -> Trace:
    """A trace in causal order: message after message, each sent and then delivered by the others."""
    messages = rows // members
    events = blank_events(messages * members)
    number = np.repeat(np.arange(messages), members)
    sender = number % senders
    place = np.tile(np.arange(members), messages)
    events["time_ns"] = np.arange(len(events))
    events["event"] = DELIVER
    events["layer"] = DATA
    events["sender"] = sender
    events["sequence"] = number // senders + 1
    events["member"] = (sender + place) % members  # the sender first: that row is the send
    return Trace(events=events, scenario={"members": members, "family": "causal"}, metrics={})


def main() -> None:
    """Measure everything and compare with the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=600)
    parser.add_argument("--payload", type=int, default=0)
    parser.add_argument("--deliveries", type=int, default=10_000_000)
    options = parser.parse_args()
    for protocol in ("overlay", "timestamp"):
        run_s(protocol, 12, 0, 0)
        total = 0.0
        for seed in range(TOPOLOGIES):
            seconds, seen = run_s(protocol, options.members, seed, options.payload)
            total += seconds
            print(f"{protocol:>9} n={options.members} topology {seed}: {seconds:6.2f} s  ({seen})")
        print(f"{protocol:>9} three topologies: {total:.2f} s, target {TARGET_S:.0f} s")
    check_by(causal_order, many_deliveries(1000, 10, 2))
    for members, senders in ((100, 10), (600, 600)):
        trace = many_deliveries(options.deliveries, members, senders)
        began = time.process_time()
        found = check_by(causal_order, trace)
        seconds = time.process_time() - began
        print(
            f"checker: {len(trace.events):,} deliveries, {members} members, {senders} senders: {seconds:.1f} s, "
            f"{len(found)} violations, target {CHECKER_TARGET_S:.0f} s"
        )


if __name__ == "__main__":
    main()

"""Measure the failure detectors as the group grows: detection time, false suspicions, bytes per member and second.

`python bench/failure.py` prints a table for 10 … 1000 members: heartbeat, polling and gossip with a step of one second,
and gossip held to a constant bandwidth (guo §3.1.2: then the detection time grows like n·log n). One member in ten
crashes after a while; with `--loss` links lose messages, and thresholds allow for it.
"""

from __future__ import annotations

import argparse
import time

from cubecast.models.failure import k_fail, k_fail_within
from cubecast.sim.faults import Fault
from cubecast.sim.result import Result
from cubecast.sim.simulate import simulate

NETWORK = "flat:delay=1-5ms"
QUIET_STEPS = 10
GOSSIP_BYTES_PER_S = 250.0  # van Renesse et al. 1998


def measure(detector: str, members: int, step_ms: float, *, loss: float, p_mistake: float, seed: int) -> Result:
    """All members run; after some steps every tenth member crashes; the run lasts until all have noticed."""
    steps = QUIET_STEPS + 8
    if detector == "gossip":
        arrival = (1 - loss) * 0.9  # a tenth of the gossip goes to members that are down
        steps += k_fail(members=members, p_mistake=p_mistake, step_s=step_ms / 1e3, arrival=arrival).k_fail
    crashed = tuple(range(1, members, 10))
    return simulate(
        "coord",
        members=members,
        senders=1,
        network=NETWORK,
        seed=seed,
        detector=detector,
        detector_step_ms=step_ms,
        detector_p_mistake=p_mistake,
        loss=loss,
        crashes=(Fault(members=crashed, at_ns=round(QUIET_STEPS * step_ms * 1e6)),),
        least_ms=steps * step_ms,
        until_ms=10 * steps * step_ms + 600_000,
        delta_ms=step_ms,
        rounds=3,
        measure=False,
    )


def rows(sizes: list[int], *, loss: float, p_mistake: float, seed: int) -> None:
    """Print one line per measurement."""
    titles = ("n", "step s", "first s", "last s", "wrong", "B/member/s", "wall s")
    print(f"{'detector':>18} " + " ".join(f"{title:>10}" for title in titles))
    for members in sizes:
        bounded = k_fail_within(members=members, p_mistake=p_mistake, bytes_per_s=GOSSIP_BYTES_PER_S, arrival=1 - loss)
        plans = [("heartbeat", 1.0), ("polling", 1.0), ("gossip", 1.0), ("gossip, 250 B/s", bounded.step_s)]
        for name, step_s in plans:
            began = time.perf_counter()
            result = measure(name.split(",")[0], members, step_s * 1e3, loss=loss, p_mistake=p_mistake, seed=seed)
            values = (
                *(members, step_s, (result.detect_first_ms or 0) / 1e3, (result.detect_last_ms or 0) / 1e3),
                *(result.false_suspicions, result.failure_bytes_per_member_s, time.perf_counter() - began),
            )
            print(f"{name:>18} " + " ".join(f"{value:10.2f}" for value in values), flush=True)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[10, 30, 100, 300, 1000])
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--p-mistake", type=float, default=1e-6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows(options.members, loss=options.loss, p_mistake=options.p_mistake, seed=options.seed)


if __name__ == "__main__":
    main()

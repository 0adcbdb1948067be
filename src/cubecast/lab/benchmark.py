"""The speed of the simulator on this machine: whole jobs, and their run phase.

A job is everything a user waits for: the network, its routes, the run. The speed counts only the run phase: one packet
that crosses one link is one packet-hop. Each job runs several times and the fastest run counts, since other programs on
the machine can only slow it down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from cubecast.protocols.catalogue import protocol_named
from cubecast.sim.simulate import simulate

Progress = Callable[[int, int, str], None]
"""Called before each run with the number of finished runs, the number of all runs, and the next run."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A simulation to time."""

    protocol: str
    members: int
    network: str
    rounds: int = 1
    measure: bool = True
    multicast: str = "copies"

    @property
    def name(self) -> str:
        """A description of the job."""
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        rest = "" if self.measure else ", not measured"
        return f"{protocol_named(self.protocol).title}, {self.members} members on {self.network}, {rounds}{rest}"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The best of several runs of a job."""

    job: Job
    packet_hops: int
    packet_hops_per_second: float
    run_seconds: float
    whole_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = asdict(self)
        return {"name": self.job.name, **values.pop("job"), **values}


# Many rounds make a heavy load: about as many packets in flight as in a burst to all hypercube neighbours.
STORM = ("cube_full_dist", "random:p=0.04")
JOBS = (
    Job(protocol=STORM[0], members=200, network=STORM[1], rounds=50),
    Job(protocol=STORM[0], members=200, network=STORM[1], rounds=50, measure=False),
    Job(protocol=STORM[0], members=1000, network=STORM[1], rounds=20),
    Job(protocol=STORM[0], members=1900, network="random:p=0.02"),
    Job(protocol="full_dist", members=400, network="random:p=0.02"),
)


def benchmark(*, repeat: int = 3, progress: Progress | None = None) -> list[Timing]:
    """Time every job; the jobs alternate, so that a disturbance of the machine affects all alike."""
    best: dict[int, Timing] = {}
    runs = repeat * len(JOBS)
    for done in range(runs):
        place = done % len(JOBS)
        if progress is not None:
            progress(done, runs, JOBS[place].name)
        timing = _time(JOBS[place])
        best[place] = timing if place not in best else _better(best[place], timing)
    return [best[place] for place in range(len(JOBS))]


def _time(job: Job) -> Timing:
    began = time.perf_counter()
    result = simulate(**asdict(job), seed=1, delta_ms=0.0)
    return Timing(
        job=job,
        packet_hops=result.hops,
        packet_hops_per_second=result.packet_hops_per_second,
        run_seconds=result.wall_seconds,
        whole_seconds=time.perf_counter() - began,
    )


def _better(one: Timing, other: Timing) -> Timing:
    """The best run phase and the best total time, taken separately."""
    fastest = min(one, other, key=lambda timing: timing.run_seconds)
    return Timing(
        job=one.job,
        packet_hops=fastest.packet_hops,
        packet_hops_per_second=fastest.packet_hops_per_second,
        run_seconds=fastest.run_seconds,
        whole_seconds=min(one.whole_seconds, other.whole_seconds),
    )

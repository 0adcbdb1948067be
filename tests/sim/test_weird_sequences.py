"""Rounds end after many kinds of faults: the coordinator crashes, nearly all members crash, a partition heals."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.sim.faults import Fault
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import DONE
from tests.sim.random_scenarios import PROTOCOLS
from tests.sim.runs import traced

MS = 1_000_000


def crash(*ranks: int, at_ms: float = 0, until_ms: float | None = None) -> Fault:
    return Fault(members=ranks, at_ns=round(at_ms * MS), until_ns=-1 if until_ms is None else round(until_ms * MS))


def all_is_well(trace: Trace, rounds: int) -> None:
    report = check_all(trace)
    assert report.ok, report.lines()
    assert trace.metrics["rounds"] >= rounds


def run(protocol: str, **settings: Any) -> Trace:
    defaults: dict[str, Any] = {"members": 16, "network": "random:degree=4", "rounds": 3, "delta_ms": 2.0, "seed": 6}
    return traced(protocol=protocol, **defaults | settings)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("detect_ms", [0.0, 5.0])
@pytest.mark.parametrize(
    "crashes",
    [
        (crash(0),),
        (crash(0, 1),),
        (crash(0, at_ms=0.4), crash(1, at_ms=0.8)),
        (crash(0, at_ms=3), crash(1, at_ms=3), crash(2, at_ms=8)),
        (crash(0, at_ms=1.2), crash(5, at_ms=1.5)),
        (crash(1, at_ms=0.1), crash(4, at_ms=0.3)),
        (crash(3, 7, 11, at_ms=0.7),),
    ],
    ids=str,
)
def test_members_crash(protocol: str, detect_ms: float, crashes: tuple[Fault, ...]) -> None:
    all_is_well(run(protocol, crashes=crashes, detect_ms=detect_ms), 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_crash_during_delta(protocol: str) -> None:
    calm = run(protocol, delta_ms=20.0)
    ended = int(
        calm.events["time_ns"][calm.events["event"] == DONE][
            calm.events["round"][calm.events["event"] == DONE] == 1
        ].max()
    )
    for rank in (0, 1, 15):
        all_is_well(run(protocol, delta_ms=20.0, crashes=(crash(rank, at_ms=ended / MS + 5),)), 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("lossy", [{}, {"loss": 0.3, "repeat_ms": 3.0}], ids=["reliable", "lossy"])
def test_the_smallest_groups(protocol: str, members: int, lossy: dict[str, float]) -> None:
    all_is_well(run(protocol, members=members, network="chain", **lossy), 3)
    for rank in range(members):
        all_is_well(run(protocol, members=members, network="chain", crashes=(crash(rank, at_ms=1.5),), **lossy), 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("side", [(0,), (0, 1, 2, 3), tuple(range(1, 16))], ids=str)
def test_rounds_resume_when_a_partition_heals(protocol: str, side: tuple[int, ...]) -> None:
    healed = 60
    split = Fault(members=side, at_ns=0, until_ns=healed * MS)
    trace = run(protocol, partitions=(split,))
    done = trace.events[trace.events["event"] == DONE]
    assert int(done["time_ns"].min()) > healed * MS, "no member can finish a round during the partition"
    assert {int(rank) for rank in done["member"][done["round"] >= 3]} == set(range(16))
    all_is_well(trace, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_comes_back_before_it_is_missed(protocol: str) -> None:
    all_is_well(run(protocol, crashes=(crash(0, 3, at_ms=0.2, until_ms=6),), detect_ms=50.0), 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_comes_back_too_late_stays_out(protocol: str) -> None:
    trace = run(protocol, crashes=(crash(3, at_ms=0.2, until_ms=40),), detect_ms=5.0, rounds=40)
    all_is_well(trace, 40)
    assert 3 not in trace.events["member"][trace.events["event"] == DONE]


@pytest.mark.parametrize("protocol", ["coord", "full_dist", "s_coord"])
def test_all_but_one_crash(protocol: str) -> None:
    gone = tuple(crash(rank, at_ms=0.1 * rank) for rank in range(15))
    all_is_well(run(protocol, crashes=gone), 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("data", [{}, {"messages": 6, "rate": 300}], ids=["frozen", "data"])
def test_everything_at_once(protocol: str, data: dict[str, float]) -> None:
    trouble: dict[str, Any] = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.2, "reorder_ms": 3.0, "repeat_ms": 5.0}
    crashes = (crash(0, at_ms=4), crash(1, at_ms=2, until_ms=9), crash(6, at_ms=12))
    split = Fault(members=(2, 3, 4), at_ns=10 * MS, until_ns=25 * MS)
    all_is_well(run(protocol, crashes=crashes, partitions=(split,), detect_ms=3.0, **trouble, **data), 3)

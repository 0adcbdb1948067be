"""Failure detection as guo ch. 3 has it, simulated: detection time, mistakes, cost."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cubecast.models.failure import k_fail, misses_allowed
from cubecast.protocol.overlays import hypercube_dimension
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.faults import Fault
from cubecast.sim.result import Result
from cubecast.sim.simulate import simulate

STEP_MS = 100.0
DELAY_MS = 3.0
DETECTORS = [one.name for one in list_protocols("failure")]


def run(detector: str, **settings: Any) -> Result:
    usual: dict[str, Any] = {
        "members": 20,
        "senders": 1,
        "network": f"flat:delay=0.2-{DELAY_MS:g}ms",
        "detector": detector,
        "detector_step_ms": STEP_MS,
        "rounds": 1,
        "delta_ms": STEP_MS,
        "seed": 3,
    }
    return simulate("coord", **usual | settings)


def threshold_of(detector: str, members: int, p_mistake: float, arrival: float = 1.0) -> int:
    if detector == "gossip":
        return k_fail(members=members, p_mistake=p_mistake, step_s=STEP_MS / 1e3, arrival=arrival).k_fail
    if detector == "structured_gossip":
        size = math.ceil(math.sqrt(members))
        groups = math.ceil(members / size)
        found = k_fail(members=size, p_mistake=p_mistake / groups, step_s=STEP_MS / 1e3, arrival=arrival)
        return found.k_fail * (2 + math.ceil(math.log2(groups)))
    one_way = arrival**2 if detector == "polling" else arrival
    hops = hypercube_dimension(members) if detector == "live_array" else 0
    return hops + misses_allowed(members=members, p_mistake=p_mistake, arrival=one_way)


@pytest.mark.parametrize("detector", DETECTORS)
def test_everybody_notices_a_crash_within_k_steps(detector: str) -> None:
    """Once K_fail is reached, the corresponding member is considered failed (guo §3.1.2)."""
    k = threshold_of(detector, 20, 1e-6)
    result = run(detector, crashes=(Fault(members=(4, 9), at_ns=50_000_000),), least_ms=(k + 3) * STEP_MS)
    assert result.false_suspicions == 0
    assert result.detect_first_ms is not None
    assert result.detect_last_ms is not None
    early = {"gossip": 2, "structured_gossip": 12}.get(detector, 1)
    assert result.detect_first_ms > (k - 2) * STEP_MS / early
    assert result.detect_last_ms <= k * STEP_MS + 2 * DELAY_MS
    assert result.rounds == 1, "a suspected member is not waited for"


@pytest.mark.parametrize("detector", DETECTORS)
def test_losses_are_allowed_for(detector: str) -> None:
    result = run(detector, loss=0.2, least_ms=100 * STEP_MS)
    assert result.false_suspicions == 0


def test_mistakes_of_gossip_are_rarer_than_p_mistake() -> None:
    """K_fail is selected so that the probability of a mistake of any member is below P_mistake (guo §3.1.2)."""
    p_mistake, steps, seeds = 0.05, 100, 8
    wrong = sum(
        run("gossip", detector_p_mistake=p_mistake, least_ms=steps * STEP_MS, seed=seed).false_suspicions
        for seed in range(seeds)
    )
    assert wrong <= p_mistake * steps * seeds


def test_a_threshold_below_k_fail_makes_mistakes() -> None:
    k = threshold_of("gossip", 20, 1e-6)
    hasty = run("gossip", detector_threshold=k // 4, least_ms=100 * STEP_MS)
    assert hasty.false_suspicions > 0


@pytest.mark.parametrize("members", [20, 100])
def test_what_a_member_sends(members: int) -> None:
    """A live array occupies a byte a member, a heartbeat a header to each (guo §3.1)."""
    seconds = 5.0
    for detector, a_step in (
        ("heartbeat", 32 * (members - 1)),
        ("polling", 2 * 32 * (members - 1)),
        ("gossip", 32 + members),
    ):
        result = run(detector, members=members, least_ms=seconds * 1e3)
        expected = a_step / (STEP_MS / 1e3)
        assert result.failure_bytes_per_member_s == pytest.approx(expected, rel=0.03)


def test_a_hierarchy_reduces_the_gossip_messages() -> None:
    """A hierarchical structure can reduce gossip message sizes and improve scalability (guo §3.1.2)."""
    for members, share in ((100, 0.6), (400, 0.35)):
        found = {
            detector: run(detector, members=members, least_ms=5e3).failure_bytes_per_member_s
            for detector in ("gossip", "structured_gossip")
        }
        assert found["structured_gossip"] < share * found["gossip"]


def test_all_members_of_a_local_group_that_crashed_are_noticed() -> None:
    k = threshold_of("structured_gossip", 20, 1e-6)
    crash = Fault(members=(0, 1, 2, 3, 4), at_ns=50_000_000)
    result = run("structured_gossip", crashes=(crash,), least_ms=(k + 3) * STEP_MS)
    assert result.false_suspicions == 0
    assert result.detect_last_ms is not None
    assert result.detect_last_ms <= k * STEP_MS


def test_a_member_put_out_by_mistake_is_not_waited_for_and_not_called_upon() -> None:
    """A false suspicion fences the member off: the rounds of the others go on without it."""
    result = run("gossip", detector_threshold=3, least_ms=20 * STEP_MS, rounds=5)
    assert result.false_suspicions > 0
    assert result.rounds >= 5

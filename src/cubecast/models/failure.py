"""The threshold K_fail of gossip-style failure detection (guo §3.1.2), and what it costs.

Member i suspects member j when i's live-array entry for j reaches K_fail: no fresh news of j has arrived for K_fail
steps. Fresh news of j spreads exactly as one member's information does in the Gossip protocol, so the same recursion
bounds the probability that some member lacks it after r micro-steps (van Renesse, Minsky and Hayden 1998, guo
4.1–4.3):

    P_mistake(r) ≤ (n − f)·(1 − P(k_r = n − f))        f members have crashed; gossip sent to them is lost

K_fail is the number of *whole* steps, ceil(r / n), of the smallest r that satisfies the bound. P_mistake refers to one
moment: news that left j K_fail steps ago is still missing somewhere. The recursion leaves out two effects. In the
protocol every member gossips exactly once per step, while the recursion draws the gossiper at random, so a member may
stay silent for long: this makes the recursion pessimistic. Every member that forwards news adds one to its age, even
if it held the news for less than a step: this makes the recursion optimistic. The first effect is larger; a test runs
the protocol and compares.

Detection: news ages at least one per step, so every member suspects a crashed one at most K_fail steps after the crash.

Cost: a message has a header of 32 B and one byte per entry (two when K_fail exceeds 255). With one gossip per step and
constant bandwidth per member, the step grows like n and the detection time like n·log n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.models.checks import require_positive, require_probability
from cubecast.models.gossip_chain import GossipChain

HEADER_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class FailureThreshold:
    """K_fail and the quantities that follow from it; `bytes_per_s` is what one member sends."""

    k_fail: int
    micro_steps: int
    p_mistake_bound: float
    step_s: float
    detection_s_max: float
    message_bytes: int
    bytes_per_s: float


def k_fail(
    *, members: int, p_mistake: float, step_s: float, subset: int = 1, arrival: float = 1.0, crashed: int = 0
) -> FailureThreshold:
    """K_fail for a group whose members gossip to `subset` others every `step_s`."""
    require_positive("step_s", step_s)
    threshold, micro_steps, bound = _threshold(members, p_mistake, subset, arrival, crashed)
    message = live_array_bytes(members, threshold)
    return FailureThreshold(
        k_fail=threshold,
        micro_steps=micro_steps,
        p_mistake_bound=bound,
        step_s=step_s,
        detection_s_max=threshold * step_s,
        message_bytes=message,
        bytes_per_s=subset * message / step_s,
    )


def k_fail_within(
    *, members: int, p_mistake: float, bytes_per_s: float, subset: int = 1, arrival: float = 1.0, crashed: int = 0
) -> FailureThreshold:
    """K_fail with the shortest step for which a member's gossip fits into `bytes_per_s`."""
    require_positive("bytes_per_s", bytes_per_s)
    threshold, _, _ = _threshold(members, p_mistake, subset, arrival, crashed)
    step_s = subset * live_array_bytes(members, threshold) / bytes_per_s
    return k_fail(members=members, p_mistake=p_mistake, step_s=step_s, subset=subset, arrival=arrival, crashed=crashed)


def live_array_bytes(members: int, threshold: int) -> int:
    """Size of a gossip message with one entry per member, each wide enough for K_fail."""
    entry_bytes = max(1, math.ceil(threshold.bit_length() / 8))
    return HEADER_BYTES + members * entry_bytes


def _threshold(members: int, p_mistake: float, subset: int, arrival: float, crashed: int) -> tuple[int, int, float]:
    require_probability("p_mistake", p_mistake, zero=False, one=False)
    chain = GossipChain(members=members, subset=subset, arrival=arrival, crashed=crashed)
    if chain.live < 2:
        raise LocalProtocolError(f"crashed={crashed} of {members} members: leave at least two alive")
    micro_steps = chain.micro_steps_for(p_mistake)
    threshold = math.ceil(micro_steps / members)
    return threshold, micro_steps, chain.incomplete(threshold * members)


def misses_allowed(*, members: int, p_mistake: float, arrival: float) -> int:
    """How many heartbeats (or answers to polls) in a row may be missed before a member is suspected.

    The probability that some member misses k in a row of some other is at most n·(n − 1)·(1 − arrival)^k. One more
    step is allowed because the steps of sender and receiver are not in phase, and another because delays vary.
    """
    require_probability("p_mistake", p_mistake, zero=False, one=False)
    require_probability("arrival", arrival, zero=False, one=True)
    if arrival == 1:
        return 3
    lost_in_a_row = math.log(p_mistake / (members * (members - 1))) / math.log1p(-arrival)
    return max(1, math.ceil(lost_in_a_row)) + 2

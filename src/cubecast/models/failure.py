"""The threshold K_fail of gossip-style failure detection (guo §3.1.2), and what it costs.

A member j is suspected by i when i's live-array entry for j reaches K_fail, that is when nothing fresh from j came
for K_fail steps. Fresh news of j spreads exactly as one member's information does in the Gossip protocol, so the
chance that some member lacks it after r micro-steps is bounded by the same recursion (van Renesse, Minsky and
Hayden 1998, guo 4.1–4.3):

    P_mistake(r) ≤ (n − f)·(1 − P(k_r = n − f))        f members have crashed and swallow gossip

K_fail is the number of *whole* steps, ceil(r / n), of the smallest such r. P_mistake is about one moment: that news
which left j K_fail steps ago is still missing somewhere. Two things pull in opposite directions and are not in the
recursion. In the protocol every member gossips exactly once per step, while the recursion draws the gossiper at random,
so a member may stay silent for long: the recursion is pessimistic. And every member that passes news on adds one to
its age even if it held it for less than a step: the recursion is optimistic. The first is larger; a test runs the
protocol and compares.

Detection: news ages at least one per step, so every member suspects a crashed one at most K_fail steps after the crash.

Cost: a message is a header of 32 B and one byte per entry (two when K_fail needs more than 255). With one gossip per
step and the bandwidth of a member held constant the step grows like n and the detection time like n·log n.
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
    """K_fail and what follows from it; `bytes_per_s` is what one member sends."""

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
    """The same with the shortest step whose gossip fits `bytes_per_s` for each member."""
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

    The chance that some member misses k in a row of some other is at most n·(n − 1)·(1 − arrival)^k. One more step is
    allowed because the sender's steps and the receiver's are not in phase, and one because delays vary.
    """
    require_probability("p_mistake", p_mistake, zero=False, one=False)
    require_probability("arrival", arrival, zero=False, one=True)
    if arrival == 1:
        return 3
    lost_in_a_row = math.log(p_mistake / (members * (members - 1))) / math.log1p(-arrival)
    return max(1, math.ceil(lost_in_a_row)) + 2

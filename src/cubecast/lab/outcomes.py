"""The outcome of one test of a claim at one point.

| outcome | condition |
|---|---|
| holds | the whole 95 % interval satisfies the bound: a test at level 0.025 on each side (TOST if two-sided) |
| contradicted | the quantity is beyond the bound by more than the margin, at level 0.05 after Holm's correction |
| close | the whole interval is within the margin of the bound: more runs would not decide |
| open | none of these: more runs may decide |

Holm's family is all points of all tests of a claim at one reading. So a claim that is true at a reading is contradicted
there with a probability of at most 0.05.
"""

from __future__ import annotations

import math

from cubecast.lab.plan import Test
from cubecast.lab.stats import CONFIDENCE, Estimate

HOLDS, CONTRADICTED, CLOSE, OPEN = "holds", "contradicted", "close", "open"
OUTCOMES = (HOLDS, CLOSE, OPEN, CONTRADICTED)
"""From the mildest to the most severe."""
HOLDS_LEVEL = (1 - CONFIDENCE) / 2
CONTRADICTION_LEVEL = 0.05
_RELATIVE = ("value", "ratio", "spread", "variation")
MARGINS = {"ratio": 0.02, "spread": 0.02, "value": 0.02, "variation": 0.02, "growth": 0.02}
"""The default margin: by how much a bound must be broken to contradict a claim."""


def widened(test: Test) -> tuple[float, float]:
    """The bounds of a test, each moved outward by the margin: a share of the bound, or absolute if it may be zero."""
    margin = MARGINS.get(test.kind, 0.0) if test.margin is None else test.margin
    low, high = bounds(test)
    if test.kind in _RELATIVE:
        return low - margin * abs(low) if math.isfinite(low) else low, high + margin * abs(high)
    return low - margin, high + margin


def bounds(test: Test) -> tuple[float, float]:
    """The bounds of a test; infinite where it has none."""
    return (-math.inf if test.low is None else test.low), (math.inf if test.high is None else test.high)


def p_holds(estimate: Estimate, test: Test) -> float:
    """The p-value of the hypothesis that the bound is broken: the larger one of two one-sided tests."""
    sides = []
    if test.low is not None:
        sides.append(estimate.above(test.low))
    if test.high is not None:
        sides.append(estimate.below(test.high))
    return max(sides)


def p_breaks(estimate: Estimate, test: Test) -> float:
    """The p-value of the hypothesis that the bound, widened by the margin, is satisfied."""
    low, high = widened(test)
    sides = []
    if test.low is not None:
        sides.append(estimate.below(low, strictly=True))
    if test.high is not None:
        sides.append(estimate.above(high, strictly=True))
    return min(1.0, len(sides) * min(sides))


def outcome_of(estimate: Estimate, test: Test, *, holds: float, breaks: float) -> str:
    """The outcome, from the p-value of holding and the corrected one of breaking."""
    if math.isnan(estimate.value):
        return OPEN
    if holds <= HOLDS_LEVEL:
        return HOLDS
    if breaks <= CONTRADICTION_LEVEL:
        return CONTRADICTED
    low, high = widened(test)
    return CLOSE if low <= estimate.low and estimate.high <= high else OPEN

"""The printed tables of orders of growth: guo Tables 4.2 and 5.2, cube Fig 7. All are asymptotic.

`cubecast.models.complexity` and `tests.oracles.tree_hops` have the exact counts and the bounds behind them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """Guo Table 4.2: steps per round, and messages processed by the busiest member and by the others."""

    protocol: str
    steps: str
    processed_most: str
    processed_other: str


@dataclass(frozen=True, kw_only=True)
class HopOrder:
    """Guo Table 5.2: messages on all links in a round, in a dense tree."""

    protocol: str
    hops: str


@dataclass(frozen=True, kw_only=True)
class CubeOrder:
    """Cube Fig 7. A multicast counts as n messages there."""

    protocol: str
    iterations: str
    messages_busiest: str
    messages_other: str
    messages_total: str
    is_robust: bool
    is_regular: bool


def _step(protocol: str, steps: str, most: str, other: str) -> StepOrder:
    return StepOrder(protocol=protocol, steps=steps, processed_most=most, processed_other=other)


TABLE_4_2 = (
    _step("coord", "O(1)", "O(n)", "O(1)"),
    _step("full_dist", "O(1)", "O(n)", "O(n)"),
    _step("train", "O(n)", "O(1)", "O(1)"),
    _step("gossip", "O(log n)", "O(1)", "O(1)"),
    _step("s_coord", "O(log n)", "O(1)", "O(1)"),
    _step("s_train", "O(log n)", "O(1)", "O(1)"),
    _step("s_gossip", "O(log n)", "O(1)", "O(1)"),
)
"""For the gossip protocols "processed" is per step, not per round (guo §4.4)."""

TABLE_5_2 = (
    HopOrder(protocol="coord", hops="O(n log n)"),
    HopOrder(protocol="full_dist", hops="O(n²)"),
    HopOrder(protocol="train", hops="O(n)"),
    HopOrder(protocol="gossip", hops="O(n log n)"),
    HopOrder(protocol="s_coord", hops="O(n)"),
    HopOrder(protocol="s_train", hops="O(n)"),
    HopOrder(protocol="s_gossip", hops="O(n log 50)"),
)
"""As printed. A gossip message crosses O(log n) links of the tree, which the paper counts as a constant."""


def _cube(protocol: str, iterations: str, messages: tuple[str, str, str], sturdy: bool) -> CubeOrder:
    busiest, other, total = messages
    return CubeOrder(
        protocol=protocol,
        iterations=iterations,
        messages_busiest=busiest,
        messages_other=other,
        messages_total=total,
        is_robust=sturdy,
        is_regular=sturdy,
    )


FIG_7 = (
    _cube("s_coord", "O(log n)", ("O(1)", "O(1)", "O(n)"), False),
    _cube("coord", "O(1)", ("O(n)", "O(1)", "O(n)"), False),
    _cube("full_dist", "O(1)", ("O(n)", "O(n)", "O(n²)"), True),
    _cube("cube_full_dist", "O(log n)", ("O(log n)", "O(log n)", "O(n log² n)"), True),
)
"""Messages per node of CubeFullDist are O(log n) per iteration as printed; over a round they are O(log² n)."""

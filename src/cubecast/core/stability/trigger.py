"""When the output buffer calls for a stability round (guo ch. 6)."""

from __future__ import annotations


def trigger_level(*, room: float, rate_per_s: float, round_s: float, stable_fraction: float = 1.0) -> float:
    """X = min(g − r·f, (g − 2·r·f)/(1 − α)): begin a round when the buffer of `room` g holds that much.

    When no such level exists it is 0: rounds follow each other at once, and the sender has to wait.
    """
    sent = rate_per_s * round_s
    level = room - sent
    if stable_fraction < 1.0:
        level = min(level, (room - 2 * sent) / (1 - stable_fraction))
    return max(0.0, level)

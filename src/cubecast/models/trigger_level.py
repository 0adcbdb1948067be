"""X: the fill level at which the output buffer requests a stability round (guo ch. 6, formulas 6.2 and 6.3).

A sender with room for g messages sends r of them per second; a round takes f seconds (the TPR), and at its end releases
the share α of the messages that were in the buffer at its beginning. The largest X gives the fewest rounds, subject to

    X + r·f ≤ g   (6.2)        (1 − α)·X + 2·r·f ≤ g   (6.3)

so X = min(g − r·f, (g − 2·r·f)/(1 − α)), and g − r·f for α = 1. This is the only place with that formula:
`models.trigger` adds verdicts and advice, `lab.choose_trigger` measures f first, `sim.output_buffers` and a live member
begin rounds by it.
"""

from __future__ import annotations


def trigger_level(*, room: float, rate_per_s: float, round_s: float, stable_fraction: float = 1.0) -> float:
    """X, for `room` g, `rate_per_s` r, `round_s` f and `stable_fraction` α.

    If no level satisfies 6.2 and 6.3, X is 0: rounds run back to back, and the sender has to wait.
    """
    sent = rate_per_s * round_s
    level = room - sent
    if stable_fraction < 1.0:
        level = min(level, (room - 2 * sent) / (1 - stable_fraction))
    return max(0.0, level)

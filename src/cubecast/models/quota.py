"""Which links get the remaining messages of a quota (rasm §3.3, "Resource Optimization", Eq 2).

A member may send `quota` messages for one multicast message. Every receiver gets one; each remaining message goes to
the link where it most increases the probability to reach all receivers. With failure probability f of a link and k
copies on it that probability is ∏ (1 − f^k), so the next copy goes where (1 − f^(k+1)) / (1 − f^k) is largest. The
ratio falls as k grows, so the greedy choice is the best one (the tests check it by brute force on small cases).
"""

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import entry_point


@entry_point
def share_quota(failure: NDArray[np.float64], copies: NDArray[np.int64], links: int, quota: int) -> None:
    """Fill `copies` for the first `links` entries of `failure`: one each, and the rest of the quota greedily."""
    for place in range(links):
        copies[place] = 1
    for _ in range(links, quota):
        best = -1
        best_gain = 1.0
        for place in range(links):
            gain = next_copy_gain(failure[place], copies[place])
            if gain > best_gain:
                best = place
                best_gain = gain
        if best < 0:
            return  # nothing can fail any more: a further copy would be wasted
        copies[best] += 1


@entry_point
def next_copy_gain(failure: float, copies: int) -> float:
    """The factor by which one more copy increases the probability that at least one arrives."""
    missed = 1.0
    for _ in range(copies):
        missed *= failure
    if missed >= 1.0:
        return 1.0
    return (1.0 - missed * failure) / (1.0 - missed)

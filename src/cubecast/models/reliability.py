"""The reliability of links, as a member estimates it from the heartbeats it hears and misses (rasm §3.1).

The unknown is a probability; the observation is the number of failures in a number of trials. With a Beta(a, b)
prior the posterior is Beta(a + failures, b + successes), and its mean is the estimate.
"""

from typing import Any

import numpy as np

PRIOR = (1.0, 1.0)
"""Uniform: before the first observation any probability is as likely as any other."""
STEPS_MIN = 20
"""Fewer trials do not count as an estimate."""
STEPS_MAX = 256
"""After this many trials, older ones count half."""
CHANGE_MIN = 0.1
"""A smaller change of an estimate does not change the tree."""


def posterior_mean(failures: Any, trials: Any, prior: tuple[float, float] = PRIOR) -> Any:
    """The estimate of a failure probability after this many failures in this many trials; numbers or arrays."""
    return (prior[0] + failures) / (sum(prior) + trials)


class Heartbeats:
    """The heartbeats that one member received, and its estimates of its links."""

    def __init__(self, members: int) -> None:
        """Nothing heard; all links are assumed perfect."""
        self.believed = np.zeros(members)
        self._steps = np.zeros(members)
        self._missed = np.zeros(members)

    def note(self, rank: int, *, heard: bool) -> bool:
        """Record whether a heartbeat of this rank arrived in the last step; return whether its estimate changed.

        A member takes time to start: heartbeats missing before the first one arrives do not count.
        """
        if not heard and self._steps[rank] == 0:
            return False
        self._steps[rank] += 1
        self._missed[rank] += not heard
        if self._steps[rank] >= STEPS_MAX:
            self._steps[rank] /= 2
            self._missed[rank] /= 2
        failure = posterior_mean(self._missed[rank], self._steps[rank])
        if self._steps[rank] < STEPS_MIN or abs(failure - self.believed[rank]) < CHANGE_MIN:
            return False
        self.believed[rank] = failure
        return True

"""How reliable links are, as a member judges from the heartbeats it hears and misses (rasm §3.1).

What is unknown is a probability; what is observed is how often something failed in so many trials. With a Beta(a, b)
prior the posterior is Beta(a + failures, b + successes), and its mean is the estimate.
"""

from typing import Any

import numpy as np

PRIOR = (1.0, 1.0)
"""Uniform: before the first observation any probability is as likely as any other."""
STEPS_MIN = 20
"""A link is not judged by less."""
STEPS_MAX = 256
"""Then what is long ago counts half."""
CHANGE_MIN = 0.1
"""A smaller change of an estimate is not worth another tree."""


def posterior_mean(failures: Any, trials: Any, prior: tuple[float, float] = PRIOR) -> Any:
    """The estimate of a failure probability after so many failures in so many trials; numbers or arrays."""
    return (prior[0] + failures) / (sum(prior) + trials)


class Heartbeats:
    """The heartbeats that one member received, and its estimates of its links."""

    def __init__(self, members: int) -> None:
        """Nothing heard; all links are believed to be as good as can be."""
        self.believed = np.zeros(members)
        self._steps = np.zeros(members)
        self._missed = np.zeros(members)

    def note(self, rank: int, *, heard: bool) -> bool:
        """Something should have come from this rank in the last step, and did or did not; is the link another now?

        A member takes its time to start: what does not come before the first sign of life says nothing.
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

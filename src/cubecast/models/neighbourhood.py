"""Bayesian estimates of how reliable neighbours and links are (rasm §3.1; Garbinato, Pedone and Schmidt 2004).

What is unknown is a probability; what is observed is how often something failed in so many trials. With a Beta(a, b)
prior the posterior is Beta(a + failures, b + successes), and its mean is the estimate. The trials:

- *own crashes*: after a crash a member sees on its clock how many steps it missed; it tells its neighbours in its
  heartbeats. Trials: all steps.
- *a link*: heartbeats a neighbour says it sent, in steps in which this member was itself up. Failures: those not heard.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cubecast.models.checks import require

PRIOR = (1.0, 1.0)
"""Uniform: before the first observation any probability is as likely as any other."""


def posterior_mean(
    failures: NDArray[np.int64], trials: NDArray[np.int64], prior: tuple[float, float] = PRIOR
) -> NDArray[np.float64]:
    """The estimate of a failure probability after so many failures in so many trials."""
    _check(failures, trials, prior)
    return (prior[0] + failures) / (sum(prior) + trials)


def posterior_deviation(
    failures: NDArray[np.int64], trials: NDArray[np.int64], prior: tuple[float, float] = PRIOR
) -> NDArray[np.float64]:
    """The standard deviation of the posterior: how sure the estimate is."""
    mean = posterior_mean(failures, trials, prior)
    deviation: NDArray[np.float64] = np.sqrt(mean * (1 - mean) / (sum(prior) + trials + 1))
    return deviation


def _check(failures: NDArray[np.int64], trials: NDArray[np.int64], prior: tuple[float, float]) -> None:
    require(all(0 < part < math.inf for part in prior), f"prior {prior}: give two numbers above 0")
    fits = bool(np.all((np.asarray(failures) >= 0) & (np.asarray(failures) <= trials)))
    require(fits, "more failures than trials, or fewer than none: count again")

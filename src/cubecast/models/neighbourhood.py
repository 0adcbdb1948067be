"""Bayesian estimates of how reliable neighbours and links are (rasm §3.1; Garbinato, Pedone and Schmidt 2004).

The estimate is the mean of a posterior (`models.reliability`). The trials:

- *own crashes*: after a crash a member sees on its clock how many steps it missed, and reports them in its
  heartbeats. Trials: all steps.
- *a link*: heartbeats that a neighbour reports to have sent, in steps in which this member was up. Failures: those
  that did not arrive.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cubecast.models import reliability
from cubecast.models.checks import require
from cubecast.models.reliability import PRIOR


def posterior_mean(
    failures: NDArray[np.int64], trials: NDArray[np.int64], prior: tuple[float, float] = PRIOR
) -> NDArray[np.float64]:
    """The estimate of a failure probability, from the numbers of failures and trials."""
    _check(failures, trials, prior)
    estimate: NDArray[np.float64] = reliability.posterior_mean(failures, trials, prior)
    return estimate


def _check(failures: NDArray[np.int64], trials: NDArray[np.int64], prior: tuple[float, float]) -> None:
    require(all(0 < part < math.inf for part in prior), f"prior {prior}: give two numbers above 0")
    fits = bool(np.all((np.asarray(failures) >= 0) & (np.asarray(failures) <= trials)))
    require(fits, "more failures than trials, or fewer than none: count again")

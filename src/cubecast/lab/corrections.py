"""Corrections for multiple tests: Holm's for one claim, Benjamini and Hochberg's for a whole report.

Both give adjusted p-values: a hypothesis is rejected at level α when its adjusted p-value is at most α. Holm (1979)
keeps the probability of any false rejection in the family below α, whatever the dependence between the tests. Benjamini
and Hochberg (1995) keep the expected share of false rejections among all rejections below α, where the tests are
independent or positively dependent, as tests on the same networks are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def holm(p_values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Adjusted p-values of a family, in the order given.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    raised = given[order] * np.arange(len(given), 0, -1)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Adjusted p-values of a report, in the order given.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(-given, kind="stable")
    raised = given[order] * len(given) / np.arange(len(given), 0, -1)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.minimum.accumulate(raised), 1.0)
    return adjusted

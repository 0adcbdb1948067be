"""Intervals: Student's for a mean, the F distribution's for a ratio of spreads, chi squared for one spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import special

if TYPE_CHECKING:
    import pyarrow as pa

CONFIDENCE = 0.95
_STUDENT_ROWS = 10_000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, from n observations."""

    value: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float | None:
        """Of the interval around a mean; None with a single run, which says nothing of the spread."""
        width = (self.high - self.low) / 2
        return width if math.isfinite(width) else None


def student_t(n: int) -> float:
    """How many standard errors the interval of a mean of n observations reaches to each side; infinite for one."""
    return float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) if n > 1 else math.inf


def student_table() -> pa.Table:
    """`student_t` for every n that a study can have, to be joined in SQL."""
    import pyarrow as pa

    counts = np.arange(2, _STUDENT_ROWS + 1)
    return pa.table({"n": counts, "t": special.stdtrit(counts - 1, (1 + CONFIDENCE) / 2)})


def mean_estimate(values: npt.NDArray[np.float64], *, exact: bool = False) -> Estimate:
    """The mean and Student's interval. A formula is exact: one observation, and no interval around it."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    mean = float(values.mean())
    if exact:
        return Estimate(mean, mean, mean, n)
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, n)
    reach = student_t(n) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - reach, mean + reach, n)


def spread_ratio(top: list[npt.NDArray[np.float64]], bottom: list[npt.NDArray[np.float64]]) -> Estimate:
    """Pooled standard deviation of the groups of `top` over that of `bottom`; the interval is the F distribution's."""
    squares, freedom = zip(*(_pooled(groups) for groups in (top, bottom)), strict=True)
    if min(freedom) < 1:
        return Estimate(math.nan, 0.0, math.inf, 0)
    if squares[1] == 0:
        return Estimate(math.inf, math.inf if squares[0] > 0 else 0.0, math.inf, int(sum(freedom)))
    ratio = (squares[0] / freedom[0]) / (squares[1] / freedom[1])
    tail = (1 - CONFIDENCE) / 2
    low = ratio / float(special.fdtri(freedom[0], freedom[1], 1 - tail))
    high = ratio / float(special.fdtri(freedom[0], freedom[1], tail))
    return Estimate(math.sqrt(ratio), math.sqrt(low), math.sqrt(high), int(sum(freedom)))


def variation(values: npt.NDArray[np.float64]) -> Estimate:
    """Standard deviation over mean; the interval is that of the deviation (chi squared), the mean taken as known."""
    freedom = len(values) - 1
    if freedom < 1 or values.mean() <= 0:
        return Estimate(math.nan, 0.0, math.inf, len(values))
    share = float(values.std(ddof=1) / values.mean())
    tail = (1 - CONFIDENCE) / 2
    low, high = (math.sqrt(freedom / float(special.chdtri(freedom, 1 - end))) for end in (1 - tail, tail))
    return Estimate(share, share * low, share * high, len(values))


def _pooled(groups: list[npt.NDArray[np.float64]]) -> tuple[float, int]:
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups if len(group) > 1)
    return squares, sum(len(group) - 1 for group in groups if len(group) > 1)

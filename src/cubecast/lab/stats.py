"""Statistics of a sample: an estimate, its 95 % interval, and the p-values of one-sided tests.

| quantity | distribution |
|---|---|
| mean, also of paired differences or of logarithms of paired ratios | Student's |
| share of runs | binomial; the interval is Clopper and Pearson's |
| ratio of standard deviations | F |
| standard deviation over mean | chi squared, with the mean taken as known |
| value of a formula | exact |

Invariant: a p-value of `below` or `above` at a bound is at most 0.025 exactly if the whole 95 % interval lies beyond
that bound, so that tests and displayed intervals agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import special

if TYPE_CHECKING:
    import pyarrow as pa

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
_STUDENT_ROWS = 10_000

Distribution = Callable[[float], float]
Tails = tuple[Distribution, Distribution]
"""For a bound: the probability of a sample this far below it, or this far above it, if the quantity were the bound."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, from n observations."""

    value: float
    low: float
    high: float
    n: int
    tails: Tails | None = field(default=None, compare=False, repr=False)
    """None if the value is exact, or its distribution is unknown."""

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval around a mean; None for a single run, which has no spread."""
        width = (self.high - self.low) / 2
        return width if math.isfinite(width) else None

    def below(self, bound: float, *, strictly: bool = False) -> float:
        """The p-value of the hypothesis that the quantity is above the bound: small if it is clearly below."""
        if self.tails is None:
            return self._degenerate(self.value < bound if strictly else self.value <= bound)
        return self.tails[0](bound)

    def above(self, bound: float, *, strictly: bool = False) -> float:
        """The p-value of the hypothesis that the quantity is below the bound: small if it is clearly above."""
        if self.tails is None:
            return self._degenerate(self.value > bound if strictly else self.value >= bound)
        return self.tails[1](bound)

    def _degenerate(self, beyond: bool) -> float:
        """The p-value without a distribution: certain for an exact value, 1 if there is no interval."""
        return 0.0 if beyond and self.low == self.high else 1.0


def student_t(n: int) -> float:
    """The half-width of the interval of a mean of n observations in standard errors; infinite for n = 1."""
    return float(special.stdtrit(n - 1, 1 - _TAIL)) if n > 1 else math.inf


def student_table() -> pa.Table:
    """`student_t` for every n that a study can have, for joins in SQL."""
    import pyarrow as pa

    counts = np.arange(2, _STUDENT_ROWS + 1)
    return pa.table({"n": counts, "t": special.stdtrit(counts - 1, 1 - _TAIL)})


def mean_estimate(values: npt.NDArray[np.float64], *, exact: bool = False) -> Estimate:
    """The mean and Student's interval. A formula is exact: one observation, without an interval."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    mean = float(values.mean())
    if exact:
        return Estimate(mean, mean, mean, n)
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, n)
    error = float(values.std(ddof=1)) / math.sqrt(n)
    if error == 0:
        return Estimate(mean, mean, mean, n)
    reach = student_t(n) * error

    def lower_tail(bound: float) -> float:
        return float(special.stdtr(n - 1, (mean - bound) / error))

    def upper_tail(bound: float) -> float:
        return float(special.stdtr(n - 1, (bound - mean) / error))

    return Estimate(mean, mean - reach, mean + reach, n, (lower_tail, upper_tail))


def exponential(logarithm: Estimate) -> Estimate:
    """The estimate of a quantity from that of its logarithm: a ratio, from the mean of the logarithms of ratios."""
    tails = logarithm.tails and (_of_logarithm(logarithm.tails[0]), _of_logarithm(logarithm.tails[1]))
    return Estimate(_exp(logarithm.value), _exp(logarithm.low), _exp(logarithm.high), logarithm.n, tails)


def _of_logarithm(tail: Distribution) -> Distribution:
    return lambda bound: tail(math.log(bound) if bound > 0 else -math.inf)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def proportion(successes: int, n: int) -> Estimate:
    """A share of runs; the interval is Clopper and Pearson's, the tests are exact binomial tests."""
    if n == 0:
        return Estimate(math.nan, 0.0, 1.0, 0)
    low = float(special.betaincinv(successes, n - successes + 1, _TAIL)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, n - successes, 1 - _TAIL)) if successes < n else 1.0

    def lower_tail(bound: float) -> float:
        return float(special.bdtr(successes, n, min(max(bound, 0.0), 1.0)))

    def upper_tail(bound: float) -> float:
        if successes == 0:
            return 1.0
        return float(special.bdtrc(successes - 1, n, min(max(bound, 0.0), 1.0)))

    return Estimate(successes / n, low, high, n, (lower_tail, upper_tail))


def spread_ratio(top: list[npt.NDArray[np.float64]], bottom: list[npt.NDArray[np.float64]]) -> Estimate:
    """Pooled standard deviation of the groups of `top` over that of `bottom`, with the F distribution's interval."""
    squares, freedom = zip(*(_pooled(groups) for groups in (top, bottom)), strict=True)
    if min(freedom) < 1:
        return Estimate(math.nan, 0.0, math.inf, 0)
    if squares[1] == 0:
        return Estimate(math.inf, math.inf if squares[0] > 0 else 0.0, math.inf, int(sum(freedom)))
    ratio = (squares[0] / freedom[0]) / (squares[1] / freedom[1])
    low = ratio / float(special.fdtri(freedom[0], freedom[1], 1 - _TAIL))
    high = ratio / float(special.fdtri(freedom[0], freedom[1], _TAIL))

    def lower_tail(bound: float) -> float:
        return float(special.fdtr(freedom[0], freedom[1], ratio / bound**2)) if bound > 0 else 1.0

    def upper_tail(bound: float) -> float:
        return float(special.fdtrc(freedom[0], freedom[1], ratio / bound**2)) if bound > 0 else 0.0

    return Estimate(math.sqrt(ratio), math.sqrt(low), math.sqrt(high), int(sum(freedom)), (lower_tail, upper_tail))


def variation(values: npt.NDArray[np.float64]) -> Estimate:
    """Standard deviation over mean, with the interval of the deviation (chi squared); the mean is taken as known."""
    freedom = len(values) - 1
    if freedom < 1 or values.mean() <= 0:
        return Estimate(math.nan, 0.0, math.inf, len(values))
    share = float(values.std(ddof=1) / values.mean())
    low, high = (math.sqrt(freedom / float(special.chdtri(freedom, 1 - end))) for end in (1 - _TAIL, _TAIL))

    def lower_tail(bound: float) -> float:
        return float(special.chdtr(freedom, freedom * (share / bound) ** 2)) if bound > 0 else 1.0

    def upper_tail(bound: float) -> float:
        return float(special.chdtrc(freedom, freedom * (share / bound) ** 2)) if bound > 0 else 0.0

    return Estimate(share, share * low, share * high, len(values), (lower_tail, upper_tail))


def _pooled(groups: list[npt.NDArray[np.float64]]) -> tuple[float, int]:
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups if len(group) > 1)
    return squares, sum(len(group) - 1 for group in groups if len(group) > 1)

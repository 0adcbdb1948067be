"""Intervals and p-values: those of SciPy, right as often as they say, and in agreement with each other."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cubecast.lab.corrections import benjamini_hochberg, holm
from cubecast.lab.stats import (
    Estimate,
    exponential,
    mean_estimate,
    proportion,
    spread_ratio,
    student_table,
    variation,
)

Values = npt.NDArray[np.float64]


def test_intervals_agree_with_scipy() -> None:
    values = np.random.default_rng(1).normal(5, 2, 12)
    ours = mean_estimate(values)
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (ours.low, ours.high) == pytest.approx((low, high))
    table = student_table()
    assert table["t"][10].as_py() == pytest.approx(stats.t.ppf(0.975, 11))
    assert table["n"][10].as_py() == 12


def test_p_values_agree_with_scipy() -> None:
    values = np.random.default_rng(2).normal(5, 2, 9)
    ours = mean_estimate(values)
    assert ours.below(6.0) == pytest.approx(stats.ttest_1samp(values, 6.0, alternative="less").pvalue)
    assert ours.above(4.0) == pytest.approx(stats.ttest_1samp(values, 4.0, alternative="greater").pvalue)
    share = proportion(17, 20)
    assert share.above(0.6) == pytest.approx(stats.binomtest(17, 20, 0.6, alternative="greater").pvalue)
    assert share.below(0.9) == pytest.approx(stats.binomtest(17, 20, 0.9, alternative="less").pvalue)
    exact = stats.binomtest(17, 20).proportion_ci(0.95, method="exact")
    assert (share.low, share.high) == pytest.approx((exact.low, exact.high))


def test_the_ends_of_a_proportion() -> None:
    none, all_ = proportion(0, 10), proportion(10, 10)
    assert none.low == 0.0
    assert all_.high == 1.0
    assert none.above(0.1) == 1.0
    assert all_.below(0.9) == pytest.approx(1.0)
    assert none.below(0.5) == pytest.approx(0.5**10)


def test_one_observation_has_no_interval() -> None:
    estimate = mean_estimate(np.array([3.0]))
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)
    assert (estimate.below(4.0), estimate.above(2.0)) == (1.0, 1.0)


def test_a_formula_leaves_no_doubt() -> None:
    exact = mean_estimate(np.array([3.0]), exact=True)
    assert (exact.below(3.0), exact.above(3.0), exact.below(2.9)) == (0.0, 0.0, 1.0)
    assert (exact.below(3.0, strictly=True), exact.above(3.0, strictly=True)) == (1.0, 1.0)


def _mean(values: Values) -> Estimate:
    return mean_estimate(values)


def _ratio(values: Values) -> Estimate:
    return exponential(mean_estimate(values / 10))


def _share(values: Values) -> Estimate:
    return proportion(int((values > 0).sum()), len(values))


def _spread(values: Values) -> Estimate:
    return spread_ratio([values], [np.arange(5.0)])


def _variation(values: Values) -> Estimate:
    return variation(values + 20)


@pytest.mark.parametrize("estimate_of", [_mean, _ratio, _share, _spread, _variation])
@given(st.integers(0, 10_000), st.integers(3, 30))
def test_a_bound_is_beaten_exactly_where_the_whole_interval_is_beyond_it(
    estimate_of: Callable[[Values], Estimate], seed: int, n: int
) -> None:
    values = np.random.default_rng(seed).normal(0, 3, n)
    found = estimate_of(values)
    for end, p_value in ((found.high, found.below), (found.low, found.above)):
        if (math.isfinite(end) and 0 < end < 1) or estimate_of is not _share:
            assert p_value(end) == pytest.approx(0.025, rel=1e-6)


def test_the_interval_of_a_spread_ratio_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        estimate = spread_ratio([random.normal(0, 3, 10)], [random.normal(0, 1, 10)])
        hits += estimate.low <= 3 <= estimate.high
    assert 0.91 <= hits / 400 <= 0.99


def test_the_interval_of_a_variation_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(8)
    estimates = [variation(random.normal(100, 5, 20)) for _ in range(400)]
    assert 0.91 <= sum(one.low <= 0.05 <= one.high for one in estimates) / 400 <= 0.99


P_VALUES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)


@given(P_VALUES)
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float]) -> None:
    """The slow oracle: a hypothesis falls when every set of hypotheses that contains it falls to Bonferroni."""
    count = len(p_values)
    expected = [
        max(
            min(1.0, min(chosen) * len(chosen))
            for subset in range(1, 2**count)
            if subset >> place & 1
            for chosen in [[p_values[one] for one in range(count) if subset >> one & 1]]
        )
        for place in range(count)
    ]
    assert holm(p_values).tolist() == pytest.approx(expected)


@given(P_VALUES, st.floats(0.001, 0.5))
def test_benjamini_hochberg_steps_up(p_values: list[float], level: float) -> None:
    """The slow oracle: reject the k smallest for the largest k whose k-th is at most level · k / m."""
    ordered = sorted(p_values)
    passing = [k for k in range(1, len(ordered) + 1) if ordered[k - 1] <= level * k / len(ordered)]
    limit = ordered[passing[-1] - 1] if passing else -1.0
    adjusted = benjamini_hochberg(p_values)
    for p_value, own in zip(p_values, adjusted, strict=True):
        if abs(own - level) > 1e-12:
            assert (own <= level) == (p_value <= limit)


def test_benjamini_hochberg_is_scipys() -> None:
    p_values = np.random.default_rng(3).uniform(size=50) ** 3
    assert benjamini_hochberg(p_values.tolist()) == pytest.approx(stats.false_discovery_control(p_values))


def test_no_tests_need_no_correction() -> None:
    assert len(holm([])) == len(benjamini_hochberg([])) == 0

"""Sequential replication: it stops when it may, and is wrong no more often than it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cubecast.lab.precision import SEEDS_MIN, is_precise, looks, open_points


def test_the_looks_end_at_the_cap() -> None:
    assert looks(6, 30) == [6, 9, 14, 21, 30]
    assert looks(2, 8) == [5, 8], "nothing is looked at before five seeds"
    assert looks(40, 40) == [40]


def test_a_narrow_interval_of_few_seeds_is_not_believed() -> None:
    assert not is_precise(SEEDS_MIN - 1, 1.0, 0.0, precision=0.1, look=0)
    assert is_precise(SEEDS_MIN, 1.0, 0.0, precision=0.1, look=0)
    assert not is_precise(SEEDS_MIN, 1.0, None, precision=0.1, look=0)


def test_the_level_of_a_look_is_students() -> None:
    for look, level in ((0, 0.05 / 2), (1, 0.05 / 6), (2, 0.05 / 12)):
        reach = stats.t.ppf(1 - level / 2, 9) * 0.3 / math.sqrt(10)
        assert is_precise(10, 1.0, 0.3, precision=reach * 1.001, look=look)
        assert not is_precise(10, 1.0, 0.3, precision=reach * 0.999, look=look)


def _error_rate(*, guarded: bool) -> float:
    """How often the mean is off by more than the precision where a replication stopped, over many of them."""
    random = np.random.default_rng(4)
    precision, wrong, cases = 0.05, 0, 2000
    counts = looks(5, 200) if guarded else list(range(2, 200))
    students = {count: float(stats.t.ppf(0.975, count - 1)) for count in counts}
    for _ in range(cases):
        values = random.normal(1.0, 0.2, 200)
        for look, count in enumerate(counts):
            seen = values[:count]
            mean, sd = float(seen.mean()), float(seen.std(ddof=1))
            plain = students[count] * sd / math.sqrt(count) <= precision * mean
            if is_precise(count, mean, sd, precision=precision, look=look) if guarded else plain:
                wrong += abs(mean - 1.0) > precision * abs(mean)
                break
    return wrong / cases


def test_the_mean_is_off_no_more_often_than_stated() -> None:
    assert _error_rate(guarded=True) <= 0.05
    assert _error_rate(guarded=False) > 0.065, "the guards are needed"


def test_one_metric_keeps_a_point_open() -> None:
    rows = [
        {"point": 0, "metric": "rtt", "n": 9, "mean": 1.0, "sd": 0.001},
        {"point": 0, "metric": "hops", "n": 9, "mean": 1.0, "sd": 0.5},
        {"point": 1, "metric": "rtt", "n": 9, "mean": 1.0, "sd": 0.001},
        {"point": 1, "metric": "not asked for", "n": 9, "mean": 1.0, "sd": 0.5},
    ]
    assert open_points(rows, ["rtt", "hops"], precision=0.1, look=0) == {0}
    assert open_points(rows, ["rtt"], precision=0.1, look=0) == set()


@pytest.mark.parametrize("mean", [0.0, -1.0])
def test_a_mean_of_zero_is_never_precise_and_a_negative_one_may_be(mean: float) -> None:
    assert is_precise(9, mean, 0.001, precision=0.1, look=0) == (mean != 0.0)

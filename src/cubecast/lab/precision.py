"""The number of seeds of a point: sequential replication until the relative error of every metric is small enough.

A plan may ask for `precision = 0.02`: points are replicated until the interval of the mean of every metric that the
plan draws or tests reaches at most 2 % of the mean to each side, or until `repeats_max` seeds are used.

*Frequent looks find a narrow interval by chance.* A rule that stops at the first 95 % interval that is narrow enough is
wrong in more than 5 % of the cases. Three rules prevent this: replication does not stop before `SEEDS_MIN` seeds; the
number of seeds grows by half from look to look, so that there are few looks; and look k must meet the precision at
level 0.05/((k + 1)(k + 2)). These levels sum to 0.05, so the mean is off by more than the precision with a probability
of at most 5 %, whenever the replication stops. The decision does not depend on the claims.

The seeds of a point are 0 … n − 1, and the decision after a look depends only on the seeds up to it: a replication that
is interrupted, or repeated on another machine, continues with the same seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scipy import special

from cubecast.lab.stats import CONFIDENCE

SEEDS_MIN = 5
_GROWTH = 1.5


def looks(repeats: int, repeats_max: int) -> list[int]:
    """The numbers of seeds after which the precision is checked.

    >>> looks(6, 30)
    [6, 9, 14, 21, 30]
    """
    found = [min(max(repeats, SEEDS_MIN), repeats_max)]
    while found[-1] < repeats_max:
        found.append(min(math.ceil(found[-1] * _GROWTH), repeats_max))
    return found


def is_precise(n: int, mean: float, sd: float | None, *, precision: float, look: int) -> bool:
    """Is the mean of n observations precise enough at this look? The first look is 0."""
    if n < SEEDS_MIN or sd is None:
        return False
    level = (1 - CONFIDENCE) / ((look + 1) * (look + 2))
    reach = float(special.stdtrit(n - 1, 1 - level / 2)) * sd / math.sqrt(n)
    return reach <= precision * abs(mean)


def open_points(
    summary: Iterable[Mapping[str, Any]], metrics: Iterable[str], *, precision: float, look: int
) -> set[int]:
    """The points at which some metric is not precise enough, from rows of the summary at this look."""
    wanted = set(metrics)
    return {
        row["point"]
        for row in summary
        if row["metric"] in wanted and not is_precise(row["n"], row["mean"], row["sd"], precision=precision, look=look)
    }

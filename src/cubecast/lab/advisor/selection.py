"""The confidence in the order of the candidates: the probability that each is the best, and the Pareto front.

The finalists have the same seeds. Given the measurements, their true means are distributed about the measured ones like
a multivariate Student t, with the covariance over the seeds (the posterior of normal data without prior knowledge). It
is drawn `DRAWS` times from a separate random stream that is the same each time: m + √((n−1)/χ²) · Σ gᵢ (xᵢ − m) /
√(n (n−1)), with gᵢ normal, one per seed, has exactly this covariance and keeps the correlation between candidates and
between time and bytes. The winner of a draw is the candidate with the smallest value among those that keep the limits
in that draw. A candidate that was dropped early is not drawn; its few seeds would give it too much weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.lab.advisor.candidates import Candidate
from cubecast.lab.advisor.results import Results

DRAWS = 4000
INDIFFERENT = 0.05
"""Candidates whose values differ by less than this share are equally good for practical purposes."""
_KEY = 0x6164766973


class Selection(NamedTuple):
    """The confidence that the first of the finalists is the best."""

    best: float
    """The probability that none of the others is better."""
    near: float
    """The probability that none is better by more than `INDIFFERENT`."""
    shares: tuple[float, ...]
    """The probability that each is the best, in the order of the finalists."""
    nears: tuple[float, ...] = ()
    """The probability that each keeps the limits and none is better by more than `INDIFFERENT`."""


def select(results: Results, ranked: Sequence[Candidate]) -> Selection:
    """Compute the probabilities from the seeds that all candidates have in common."""
    shared = sorted(set.intersection(*(set(results.seeds(one)) for one in ranked))) if ranked else []
    if not any(results.keeps_limits(one) for one in ranked):
        return Selection(0.0, 0.0, (0.0,) * len(ranked), (0.0,) * len(ranked))
    if len(ranked) == 1:
        return Selection(1.0, 1.0, (1.0,), (1.0,))
    if len(shared) < 2:
        return Selection(math.nan, math.nan, (math.nan,) * len(ranked), (math.nan,) * len(ranked))
    values = _draw(results, ranked, results.objective, shared)
    for field, limit in results.limits.items():
        values = np.where(_draw(results, ranked, field, shared) > limit, np.inf, values)
    least = values.min(axis=1)
    some = np.isfinite(least)
    # A draw in which no candidate keeps the limits has no winner.
    wins = (values == least[:, None]) & some[:, None]
    shares = (wins / np.maximum(wins.sum(axis=1), 1)[:, None]).mean(axis=0)
    near = ((values <= (1 + INDIFFERENT) * least[:, None]) & some[:, None]).mean(axis=0)
    return Selection(float(shares[0]), float(near[0]), tuple(map(float, shares)), tuple(map(float, near)))


def decide(results: Results, ranked: Sequence[Candidate]) -> tuple[list[Candidate], Selection]:
    """Put the candidate first that is most likely to keep the limits and to be within 5 % of the best.

    The ranking requires that a limit is kept safely. That may leave out a candidate that is probably the best.
    """
    found = select(results, ranked)
    order = sorted(range(len(ranked)), key=lambda place: (not results.keeps_limits(ranked[place]), -found.nears[place]))
    if not ranked or not any(found.nears):
        return list(ranked), found
    shares, nears = ([values[place] for place in order] for values in (found.shares, found.nears))
    return [ranked[place] for place in order], Selection(shares[0], nears[0], tuple(shares), tuple(nears))


def _draw(results: Results, ranked: Sequence[Candidate], field: str, seeds: list[int]) -> NDArray[np.float64]:
    """[draw, candidate] = a possible true mean; fields and candidates share the random numbers of a draw."""
    n = len(seeds)
    stream = np.random.Generator(np.random.Philox(key=[results.question.seed, _KEY]))
    weights = stream.standard_normal((DRAWS, n)) * np.sqrt((n - 1) / stream.chisquare(n - 1, (DRAWS, 1)))
    measured = np.array([results.values(candidate, field, seeds) for candidate in ranked]).T
    finite = np.isfinite(measured).all(axis=0)
    mean = measured.mean(axis=0)
    spread = np.where(finite, measured - np.where(finite, mean, 0.0), 0.0)
    drawn: NDArray[np.float64] = mean + weights @ spread / math.sqrt(n * (n - 1))
    return drawn


def pareto_front(results: Results) -> list[Candidate]:
    """The candidates that no other one beats both in time and in bytes, the cheapest first.

    A candidate that is faster than the next cheaper one by less than `INDIFFERENT` is left out.
    """
    ended = [one for one in results.candidates if results.ended(one)]
    means = {one: results.means(one) for one in ended}
    front: list[Candidate] = []
    least_ms = math.inf
    for one in sorted(ended, key=lambda one: (means[one].bytes_per_s, means[one].time_ms, one)):
        if means[one].time_ms <= (1 - INDIFFERENT) * least_ms:
            front.append(one)
            least_ms = means[one].time_ms
    return front

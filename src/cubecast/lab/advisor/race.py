"""The race: which candidate is simulated next, and which is dropped.

All candidates run with the same seeds, so that differences are due to the candidates and not to the networks (common
random numbers). Three stages:

1. *Screening*, one seed. Δ trades time for bytes: with a longer pause a protocol sends less and is slower. So each
   configuration finds its best Δ by bisection along `DELTAS_MS`: the shortest pause that keeps the budget, or the
   longest that keeps the time; then it tries the pause at which the limit should just be kept. A configuration whose
   best conceivable value is worse than the measured value of another one is dropped.
2. *Halving*. The best continue with twice the seeds, rung by rung, fewer on each rung. If more seeds move the pause
   that just keeps a limit, a candidate with the new pause joins them.
3. *The final* ends when one candidate is the best with probability `SURE`, or with `SEEDS[-1]` seeds.

The trials depend only on the question and the results, so a repeated race requests the same trials in the same order:
what was simulated before an interruption is not simulated again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cubecast.lab.advisor.candidates import DELTAS_MS, Candidate, Configuration
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.selection import Selection, select

SEEDS = (2, 4, 8, 16)
"""The number of seeds of the candidates on each rung."""
KEPT = (16, 8, 5, 3)
"""The largest number of candidates on each rung."""
CLOSE = (1.4, 1.25, 1.15, 1.1)
"""A candidate continues if its value is at most this factor times the best; the first `KEPT_MIN` always continue."""
KEPT_MIN = 3
SLACK = 1.2
"""How much better a configuration may turn out than one seed suggests."""
NEAR_LIMIT = 1.1
"""A candidate that exceeds a limit by less than this with one seed may still keep it on average."""
AIM = 0.97
"""The share of a limit that a refined Δ aims at."""
REFINED = 6
"""The number of configurations whose Δ is refined."""
SURE = 0.95

Measure = Callable[[list[Trial]], None]
"""Simulates trials and adds their measurements to the results."""


@dataclass(frozen=True, kw_only=True)
class Finish:
    """How a race ended."""

    finalists: list[Candidate]
    """The candidates of the last rung, the best first."""
    selection: Selection
    seeds: int


def race(configurations: list[Configuration], results: Results, measure: Measure) -> Finish:
    """Run the race to its end."""
    first = results.question.seed
    contenders = _screen(configurations, results, measure)
    selection = select(results, contenders)
    for rung, count in enumerate(SEEDS):
        contenders = _best(results, contenders, rung)
        _measure(contenders, range(first, first + count), results, measure)
        refined = [one for one in _refined(results, contenders) if one not in contenders]
        _measure(refined, range(first, first + count), results, measure)
        contenders = _distinct(results, results.ranked([*contenders, *refined]))
        selection = select(results, contenders)
        if len(contenders) == 1 or (rung > 0 and selection.best >= SURE):
            break
    return Finish(finalists=contenders, selection=selection, seeds=len(results.seeds(contenders[0])))


def _measure(candidates: Iterable[Candidate], seeds: range, results: Results, measure: Measure) -> None:
    trials = [Trial(candidate, seed) for seed in seeds for candidate in candidates]
    measure([trial for trial in trials if not results.is_known(trial)])


# Screening.


@dataclass
class _Line:
    """The bisection of one configuration along Δ; everything at or below `low` and at or above `high` is settled."""

    configuration: Configuration
    low: int = -1
    high: int = len(DELTAS_MS)

    @property
    def is_settled(self) -> bool:
        return self.high - self.low <= 1

    @property
    def next(self) -> Candidate:
        return self.at((self.low + self.high) // 2)

    def at(self, place: int) -> Candidate:
        return Candidate(self.configuration, DELTAS_MS[place])

    @property
    def tested(self) -> list[Candidate]:
        return [self.at(place) for place in range(len(DELTAS_MS))]


def _screen(configurations: list[Configuration], results: Results, measure: Measure) -> list[Candidate]:
    """With one seed, find the best Δ of every configuration, and its neighbours if they may be better."""
    seed = results.question.seed
    lines = [_Line(configuration) for configuration in configurations]
    while waiting := [line for line in lines if not line.is_settled]:
        measure([Trial(line.next, seed) for line in waiting])
        for line in waiting:
            _halve(line, results)
        best = min((results.value(one) for one in results.candidates if results.is_feasible(one)), default=math.inf)
        lines = [line for line in lines if _bound(line, results) <= SLACK * best]
    known = results.candidates
    _measure(
        _crossings(results, [[one for one in known if one.configuration == line.configuration] for line in lines]),
        range(seed, seed + 1),
        results,
        measure,
    )
    found = [one for line in lines for one in _worth(line, results)]
    return found or results.ranked(results.candidates)[:KEPT_MIN]


def _halve(line: _Line, results: Results) -> None:
    """Halve: towards longer pauses if bytes exceed the budget, shorter if it is too slow, else by what is minimised."""
    candidate = line.next
    place = DELTAS_MS.index(candidate.delta_ms)
    longer = results.objective == "bytes_per_s"
    if not results.ended(candidate) or results.excess(candidate, "bytes_per_s") > 1:
        longer = True
    elif results.excess(candidate, "time_ms") > 1:
        longer = False
    if longer:
        line.low = place
    else:
        line.high = place


def _bound(line: _Line, results: Results) -> float:
    """A lower bound, from one seed, of the values at the Δ that are left or were found good."""
    known = set(results.candidates)
    tested = [one for one in line.tested if one in known and results.ended(one)]
    good = [results.value(one) for one in tested if results.is_feasible(one)]
    if results.objective == "bytes_per_s":
        beyond = [results.value(one) for one in tested if one.delta_ms >= _delta(line.high)]
        return max(beyond, default=0.0) if not good else min(max(beyond, default=0.0), *good)
    before = [results.value(one) for one in tested if one.delta_ms <= _delta(line.low)]
    return max(before, default=0.0) if not good else min(max(before, default=0.0), *good)


def _delta(place: int) -> float:
    return -math.inf if place < 0 else math.inf if place >= len(DELTAS_MS) else DELTAS_MS[place]


def _worth(line: _Line, results: Results) -> list[Candidate]:
    """The best tested candidate, and those only just beyond a limit."""
    tested = [one for one in results.candidates if one.configuration == line.configuration and results.ended(one)]
    near = [one for one in tested if 1 < _worst(results, one) <= NEAR_LIMIT]
    best = results.ranked([one for one in tested if results.is_feasible(one)])[:1]
    return [*best, *near]


def _worst(results: Results, candidate: Candidate) -> float:
    return max((results.excess(candidate, field) for field in results.limits), default=0.0)


# Halving.


def _best(results: Results, contenders: list[Candidate], rung: int) -> list[Candidate]:
    """The candidates that continue to a rung."""
    ranked = _distinct(results, results.ranked(contenders))
    if not results.is_feasible(ranked[0]):
        return ranked[:KEPT_MIN]
    most = CLOSE[rung] * results.value(ranked[0])
    close = [one for one in ranked if _worst(results, one) <= NEAR_LIMIT and results.value(one) <= most]
    return close[: KEPT[rung]] if len(close) >= KEPT_MIN else ranked[:KEPT_MIN]


def _distinct(results: Results, ranked: list[Candidate]) -> list[Candidate]:
    """Drop candidates that behave exactly like an earlier one."""
    kept: list[Candidate] = []
    for candidate in ranked:
        if not any(results.same(candidate, other) for other in kept):
            kept.append(candidate)
    return kept


def _refined(results: Results, contenders: list[Candidate]) -> list[Candidate]:
    """Candidates with the pauses that just keep a limit, estimated from the contenders of a rung."""
    ranked = results.ranked(contenders)
    best = list(dict.fromkeys(one.configuration for one in ranked))[:REFINED]
    return _crossings(results, [[one for one in contenders if one.configuration == which] for which in best])


def _crossings(results: Results, tested: list[list[Candidate]]) -> list[Candidate]:
    """For each list of candidates of one configuration: those between two of which only one keeps the limits."""
    found = []
    for own in tested:
        ended = sorted(one for one in own if results.ended(one))
        for shorter, longer in itertools.pairwise(ended):
            delta_ms = _crossing(results, shorter, longer)
            if delta_ms is not None and shorter.delta_ms < delta_ms < longer.delta_ms:
                found.append(Candidate(shorter.configuration, delta_ms))
    return found


def _crossing(results: Results, shorter: Candidate, longer: Candidate) -> float | None:
    """Interpolate: bytes per second go as 1 / (Δ + round), the time to stable as Δ; exact enough between two pauses."""
    for field in results.limits:
        one, other = results.excess(shorter, field), results.excess(longer, field)
        if not min(one, other) <= 1 < max(one, other):
            continue
        start, end, aim = (1 / one, 1 / other, 1 / AIM) if field == "bytes_per_s" else (one, other, AIM)
        share = (aim - start) / (end - start)
        delta_ms = shorter.delta_ms + share * (longer.delta_ms - shorter.delta_ms)
        return _two_digits(delta_ms, up=field == "bytes_per_s")
    return None


def _two_digits(value: float, *, up: bool) -> float:
    """A pause of two digits, rounded to the safe side."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{(math.ceil if up else math.floor)(value / unit) * unit:.6g}")

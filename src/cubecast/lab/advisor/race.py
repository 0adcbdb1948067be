"""The race: which candidate is simulated next, and which is dropped.

All candidates run with the same seeds, so that differences are due to the candidates and not to the networks (common
random numbers). Three stages:

1. *Screening*, one seed. Δ trades time for bytes: with a longer pause a protocol sends less and is slower. Each
   configuration runs with one pause, from which its best pause is predicted (`pauses`); this one is tried next, the
   most promising configurations first, until the prediction is confirmed. A configuration whose best conceivable value
   is worse than the measured value of another one is dropped. The best ones also try neighbouring pauses, because very
   short ones can congest a network.
2. *Halving*. The configurations that may still be the best, given the noise between seeds, continue with twice the
   seeds, rung by rung, fewer on each rung. They are compared by the values that they have with the pauses that just
   keep the limits; if more seeds move such a pause, the configuration continues with the new one.
3. The race *ends* when one candidate is the best with probability `SURE`, when with this probability no other is better
   by more than 5 % (the indifference zone), or with `SEEDS[-1]` seeds.

The trials depend only on the question and the results, so a repeated race requests the same trials in the same order:
what was simulated before an interruption is not simulated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from cubecast.lab.advisor.candidates import DELTAS_MS, Candidate, Configuration
from cubecast.lab.advisor.pauses import PauseModel
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.selection import Selection, decide

SEEDS = (2, 4, 8, 16, 32)
"""The number of seeds of the candidates on each rung."""
KEPT = (24, 16, 10, 6, 4)
"""The largest number of candidates on each rung."""
CLOSE = 1.8
"""After one seed, a candidate continues if its value is at most this factor times the best."""
ERRORS = 2.0
"""From two seeds on, it continues if it is behind the best by at most so many standard errors of their difference …"""
CLOSE_MIN = 1.05
"""… or by this factor. The first `KEPT_MIN` always continue."""
KEPT_MIN = 3
SLACK = 1.2
"""How much better a configuration may turn out than one seed suggests."""
SAME_PAUSE = 0.04
"""A predicted pause is not tried if the period of a tried one differs by less than this share."""
TRIED_MAX = 5
"""How many pauses a configuration tries at most while screening."""
BATCH = 16
"""How many of the most promising configurations try their next pause together."""
REFINED = 6
"""The number of configurations that try longer pauses at the end of the screening."""
SURE = 0.95
SURE_FROM = 1
"""The first rung after which the race may end."""
FIRST_MS = 10.0
"""The first pause with a budget; without one, the first pause is none."""
FIRST_SHARE = 0.25
"""If bytes are minimised, the first pause is at most this share of the longest acceptable time."""

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
    contenders = _Screening(results, measure).run(configurations)
    for rung, count in enumerate(SEEDS):
        contenders = _best(results, contenders, rung)
        seeds = range(first, first + count)
        contenders = _lasting(contenders, seeds, results, measure)
        moved = _moved(results, _best(results, contenders, rung + 1))
        _measure(moved.values(), seeds, results, measure)
        finalists, selection = decide(results, _distinct(results, results.ranked([*contenders, *moved.values()])))
        contenders = [moved.get(one, one) for one in contenders]
        sure = max(selection.best, selection.near) >= SURE
        if len(finalists) == 1 or (rung >= SURE_FROM and sure):
            break
    return Finish(finalists=finalists, selection=selection, seeds=len(results.seeds(finalists[0])))


def _measure(candidates: Iterable[Candidate], seeds: range, results: Results, measure: Measure) -> None:
    trials = [Trial(candidate, seed) for seed in seeds for candidate in candidates]
    measure([trial for trial in trials if not results.is_known(trial)])


# Screening.


@dataclass
class _Line:
    """One configuration and the pauses that it has tried."""

    configuration: Configuration
    tried: list[Candidate] = field(default_factory=list)
    is_settled: bool = False


class _Screening:
    """Finds the best pause of every promising configuration with one seed."""

    def __init__(self, results: Results, measure: Measure) -> None:
        self._results = results
        self._measure = measure
        self._seed = results.question.seed

    def run(self, configurations: list[Configuration]) -> list[Candidate]:
        """One candidate of each configuration: the best, or the one that comes nearest to the limits."""
        lines = [_Line(configuration) for configuration in configurations]
        self._try([(line, first_pause_ms(self._results)) for line in lines])
        while waiting := self._waiting(lines):
            self._try(waiting[:BATCH])
        self._climb(lines)
        found = [one for line in lines if (one := self._representative(line)) is not None]
        return found or self._results.ranked(self._results.candidates)[:KEPT_MIN]

    def _try(self, wanted: list[tuple[_Line, float]]) -> None:
        candidates = [Candidate(line.configuration, delta_ms) for line, delta_ms in wanted]
        self._measure([Trial(one, self._seed) for one in candidates])
        for (line, _), candidate in zip(wanted, candidates, strict=True):
            line.tried.append(candidate)

    def _waiting(self, lines: list[_Line]) -> list[tuple[_Line, float]]:
        """The lines that are not settled with their next pauses, the most promising first."""
        most = SLACK * self._least()
        found = []
        for line in lines:
            if line.is_settled:
                continue
            bound = self._bound(line)
            next_ms = self._next_ms(line)
            if bound > most or next_ms is None or len(line.tried) >= TRIED_MAX:
                line.is_settled = True
                continue
            found.append((bound, line.configuration, line, next_ms))
        return [(line, next_ms) for _, _, line, next_ms in sorted(found, key=lambda one: one[:2])]

    def _least(self) -> float:
        """The smallest value so far within the limits."""
        results = self._results
        return min((results.value(one) for one in results.candidates if results.is_feasible(one)), default=math.inf)

    def _pauses(self, line: _Line) -> PauseModel:
        return PauseModel(self._results, tuple(sorted(one for one in line.tried if self._results.ended(one))))

    def _bound(self, line: _Line) -> float:
        good = [self._results.value(one) for one in line.tried if self._results.is_feasible(one)]
        return min([self._pauses(line).bound(), *good])

    def _next_ms(self, line: _Line) -> float | None:
        """The next pause to try; None if one that keeps the limits was tried already nearby."""
        pauses = self._pauses(line)
        if not pauses.tested:  # no run ended: a longer pause may help
            longer = [delta_ms for delta_ms in DELTAS_MS if delta_ms > line.tried[-1].delta_ms]
            return longer[len(longer) // 2] if longer else None
        next_ms = pauses.best_ms()
        good = [one for one in pauses.tested if self._results.is_feasible(one) and self._is_near(one, next_ms)]
        return None if good or any(one.delta_ms == next_ms for one in line.tried) else next_ms

    def _is_near(self, candidate: Candidate, delta_ms: float) -> bool:
        period_ms = candidate.delta_ms + self._results.mean(candidate, "round_ms")
        return abs(candidate.delta_ms - delta_ms) <= SAME_PAUSE * period_ms

    def _climb(self, lines: list[_Line]) -> None:
        """Try other pauses of the best lines as long as they are better: rounds too short can congest a network."""
        if self._results.objective == "bytes_per_s":
            return
        for _ in DELTAS_MS:
            best = {line.configuration: self._representative(line) for line in lines}
            first = self._results.ranked(one for one in best.values() if one is not None)[:REFINED]
            chosen = [(line, best[line.configuration]) for line in lines]
            wanted = [(line, self._neighbour_ms(line, own)) for line, own in chosen if own is not None and own in first]
            if not any(delta_ms is not None for _, delta_ms in wanted):
                return
            self._try([(line, delta_ms) for line, delta_ms in wanted if delta_ms is not None])

    def _neighbour_ms(self, line: _Line, own: Candidate) -> float | None:
        """The next longer pause if there is no longer one yet; the next shorter one above those that do not end."""
        tried_ms = [one.delta_ms for one in line.tried]
        if own.delta_ms == max(tried_ms):
            return next((delta_ms for delta_ms in DELTAS_MS if delta_ms > own.delta_ms), None)
        failed_ms = max((one.delta_ms for one in line.tried if not self._results.ended(one)), default=math.inf)
        shorter = [
            delta_ms for delta_ms in DELTAS_MS if failed_ms < delta_ms < min(own.delta_ms, *self._ended_ms(line))
        ]
        return shorter[-1] if shorter else None

    def _ended_ms(self, line: _Line) -> list[float]:
        return [one.delta_ms for one in line.tried if self._results.ended(one)]

    def _representative(self, line: _Line) -> Candidate | None:
        """The best candidate of a line; where none keeps the limits, the last one, which was predicted to keep them."""
        tested = [one for one in line.tried if self._results.ended(one)]
        good = self._results.ranked(one for one in tested if self._results.is_feasible(one))
        return next(iter(good or tested[-1:]), None)


def first_pause_ms(results: Results) -> float:
    """The first pause of every configuration, one of `DELTAS_MS`."""
    if results.objective == "bytes_per_s":
        aim_ms = FIRST_SHARE * results.limits.get("time_ms", math.inf)
        return max(delta_ms for delta_ms in DELTAS_MS if delta_ms <= aim_ms)
    return FIRST_MS if "bytes_per_s" in results.limits else 0.0


# Halving.


def _best(results: Results, contenders: list[Candidate], rung: int) -> list[Candidate]:
    """The candidates that continue to a rung, by their values with the pauses that just keep the limits."""
    ranked = _distinct(results, results.ranked(contenders))
    estimates = {one: _pauses(results, one).estimate() for one in ranked}
    ranked.sort(key=lambda one: estimates[one])
    most = _close(results, ranked) * estimates[ranked[0]]
    close = [one for one in ranked if estimates[one] <= most < math.inf]
    kept = KEPT[min(rung, len(KEPT) - 1)]
    return close[:kept] if len(close) >= KEPT_MIN else ranked[:KEPT_MIN]


def _close(results: Results, contenders: list[Candidate]) -> float:
    """The factor by which a contender may be behind the best, from the noise that all of them have in common.

    The noise is what remains of the logarithms of the values without the mean of each candidate and of each seed.
    """
    ended = [one for one in contenders if results.ended(one)]
    shared = sorted(set.intersection(*(set(results.seeds(one)) for one in ended))) if ended else []
    if len(shared) < 2 or len(ended) < 2:
        return CLOSE
    values = np.log(np.maximum([results.values(one, results.objective, shared) for one in ended], 1e-9))
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    variance = (rest**2).sum() / ((len(ended) - 1) * (len(shared) - 1))
    return max(CLOSE_MIN, math.exp(ERRORS * math.sqrt(2 * variance / len(shared))))


def _distinct(results: Results, ranked: list[Candidate]) -> list[Candidate]:
    """Drop candidates that behave exactly like an earlier one."""
    kept: list[Candidate] = []
    for candidate in ranked:
        if not any(results.same(candidate, other) for other in kept):
            kept.append(candidate)
    return kept


def _pauses(results: Results, candidate: Candidate) -> PauseModel:
    """Predictions from a candidate, with the slopes that all candidates of its configuration give."""
    every = [one for one in results.candidates if one.configuration == candidate.configuration and results.ended(one)]
    return PauseModel(results, (candidate,) if results.ended(candidate) else (), tuple(every))


def _lasting(contenders: list[Candidate], seeds: range, results: Results, measure: Measure) -> list[Candidate]:
    """Measure contenders; those whose runs do not all end continue with longer pauses, as short rounds congest."""
    _measure(contenders, seeds, results, measure)
    for _ in DELTAS_MS:
        failed = [one for one in contenders if not results.ended(one)]
        longer = {
            one: Candidate(one.configuration, next(delta_ms for delta_ms in DELTAS_MS if delta_ms > one.delta_ms))
            for one in failed
            if one.delta_ms < DELTAS_MS[-1]
        }
        if not longer:
            break
        contenders = [longer.get(one, one) for one in contenders]
        _measure(longer.values(), seeds, results, measure)
    return contenders


def _moved(results: Results, contenders: list[Candidate]) -> dict[Candidate, Candidate]:
    """For contenders that exceed a limit, or keep it with room to spare: the same with another pause."""
    moved = {}
    for one in contenders if results.limits else ():
        if results.ended(one):
            delta_ms = _pauses(results, one).best_ms()
            period_ms = one.delta_ms + results.mean(one, "round_ms")
            if abs(one.delta_ms - delta_ms) > SAME_PAUSE * period_ms or not results.is_feasible(one):
                moved[one] = Candidate(one.configuration, delta_ms)
    return moved

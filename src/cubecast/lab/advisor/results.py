"""The results of the simulations of a question so far, and the resulting order of the candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from cubecast.lab.advisor.candidates import Candidate
from cubecast.lab.advisor.question import GroupQuestion
from cubecast.lab.advisor.workload import Observation

_FIELDS = {"time-to-stable": "time_ms", "bytes": "bytes_per_s", "buffer": "buffer"}
SAFE_SEEDS = 4
SAFE_ERRORS = 1.3
"""How many standard errors a mean must be below a limit; the limit is then kept with a probability of about 90 %."""


class Trial(NamedTuple):
    """One simulation: a candidate with a seed."""

    candidate: Candidate
    seed: int


class Means(NamedTuple):
    """The means of a candidate over its seeds."""

    time_ms: float
    bytes_per_s: float
    buffer: float
    messages_per_s: float


class Results:
    """The measurements by candidate and seed, and their ranking for a question."""

    def __init__(self, question: GroupQuestion) -> None:
        """Nothing is measured yet."""
        self.question = question
        self.objective = _FIELDS[question.optimise]
        self.limits: dict[str, float] = {}
        if question.budget_bytes_per_s is not None:
            self.limits["bytes_per_s"] = question.budget_bytes_per_s
        if question.within_ms is not None:
            self.limits["time_ms"] = question.within_ms
        self._found: dict[Candidate, dict[int, Observation | None]] = {}
        self.cpu_s = 0.0
        """The CPU time of all simulations, those that did not end too."""

    def add(self, trial: Trial, measurement: Observation | None, *, cpu_s: float = 0.0) -> None:
        self._found.setdefault(trial.candidate, {})[trial.seed] = measurement
        self.cpu_s += cpu_s

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates that were simulated, in order."""
        return sorted(self._found)

    @property
    def runs(self) -> int:
        return sum(len(seeds) for seeds in self._found.values())

    def seeds(self, candidate: Candidate) -> list[int]:
        """The seeds with which a candidate was simulated, whether the run ended or not."""
        return sorted(self._found.get(candidate, ()))

    def is_known(self, trial: Trial) -> bool:
        return trial.seed in self._found.get(trial.candidate, ())

    def ended(self, candidate: Candidate) -> bool:
        """Did every run end, with every message stable?"""
        seeds = self._found.get(candidate, {})
        return bool(seeds) and all(one is not None for one in seeds.values())

    def values(self, candidate: Candidate, field: str, seeds: Sequence[int]) -> list[float]:
        found = self._found[candidate]
        return [math.inf if (one := found[seed]) is None else float(getattr(one, field)) for seed in seeds]

    def means(self, candidate: Candidate) -> Means:
        """The means over all seeds of a candidate; infinite if a run did not end."""
        seeds = self.seeds(candidate)
        return Means(*(fmean(self.values(candidate, field, seeds)) for field in Means._fields))

    def mean(self, candidate: Candidate, field: str) -> float:
        """The mean of one field over all seeds of a candidate."""
        return fmean(self.values(candidate, field, self.seeds(candidate)))

    def first(self, candidate: Candidate, field: str) -> float:
        """The value of one field with the first seed of a candidate."""
        return self.values(candidate, field, self.seeds(candidate)[:1])[0]

    def value(self, candidate: Candidate) -> float:
        """The value that is minimised."""
        return self.mean(candidate, self.objective)

    def excess(self, candidate: Candidate, field: str) -> float:
        """The share of a limit that a candidate uses, with a safety margin from two seeds on; 0 without a limit.

        Of many candidates the fastest that seems to keep a budget is likely one whose bytes were underestimated.
        """
        limit = self.limits.get(field)
        if limit is None:
            return 0.0
        values = self.values(candidate, field, self.seeds(candidate))
        if len(values) < SAFE_SEEDS or not self.ended(candidate):
            return fmean(values) / limit
        return (fmean(values) + SAFE_ERRORS * stdev(values) / math.sqrt(len(values))) / limit

    def is_feasible(self, candidate: Candidate) -> bool:
        """Do its runs end, within every limit?"""
        return self.ended(candidate) and all(self.excess(candidate, field) <= 1 for field in self.limits)

    def keeps_limits(self, candidate: Candidate) -> bool:
        """Do its runs end, with means within every limit? Without a safety margin."""
        return self.ended(candidate) and all(
            self.mean(candidate, field) <= limit for field, limit in self.limits.items()
        )

    def ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The best first: within the limits by value, then by excess over the limits; of equals the simplest first."""

        def key(candidate: Candidate) -> tuple[bool, float, int, Candidate]:
            feasible = self.is_feasible(candidate)
            beyond = max((self.excess(candidate, field) for field in self.limits), default=math.inf)
            how = self.value(candidate) if feasible else beyond
            return not feasible, how, len(candidate.configuration.parameters), candidate

        return sorted(candidates, key=key)

    def same(self, one: Candidate, other: Candidate) -> bool:
        """Did both behave exactly alike with every seed they share? Then they are two names for the same thing."""
        shared = [seed for seed in self._found[one] if seed in self._found[other]]
        pairs = [(self._found[one][seed], self._found[other][seed]) for seed in shared]
        return bool(pairs) and all(first is not None and first == second for first, second in pairs)

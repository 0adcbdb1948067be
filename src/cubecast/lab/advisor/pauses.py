"""The pause Δ with which a configuration should do best, predicted from the pauses that were simulated.

A protocol with rounds sends a fixed number of bytes per round, and a message waits for the next round. So the bytes per
second go as 1 / (Δ + round), and the time to stable and the buffer grow linearly with Δ. With one simulated pause the
length of its round gives the line: 1 / bytes is proportional to Δ + round, and so at most is the time. With two pauses
the line goes through both.

The best pause is the shortest that keeps the budget; if bytes are minimised, the longest that keeps the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cubecast.lab.advisor.candidates import DELTAS_MS, Candidate
from cubecast.lab.advisor.results import Results

AIM = 0.97
"""The share of a limit at which a predicted pause aims."""
WAIT_MIN = 0.5
"""A message waits for half a pause on average, at least."""
DELTA_MAX_MS = DELTAS_MS[-1]
DIGITS = 2


@dataclass(frozen=True)
class PauseModel:
    """Predictions for one configuration, from candidates of it with different pauses."""

    results: Results
    tested: tuple[Candidate, ...]
    """Sorted by pause; the runs of all of them ended."""
    slopes: tuple[Candidate, ...] = ()
    """Candidates that give the slopes where `tested` is only one."""

    def best_ms(self) -> float:
        """The pause to try next, of two digits, rounded to the side of the limit."""
        shortest = self._solve("bytes_per_s") if "bytes_per_s" in self.results.limits else 0.0
        if self.results.objective == "bytes_per_s":
            return two_digits(min(max(self._solve("time_ms"), 0.0), DELTA_MAX_MS), up=False)
        return two_digits(min(max(shortest, self._shortest_lasting_ms()), DELTA_MAX_MS), up=True)

    def _shortest_lasting_ms(self) -> float:
        """The shortest pause of the grid that is longer than those with which a run did not end."""
        configurations = {one.configuration for one in self.tested}
        others = [one for one in self.results.candidates if one.configuration in configurations]
        failed_ms = [one.delta_ms for one in others if not self.results.ended(one)]
        return next((delta_ms for delta_ms in DELTAS_MS if delta_ms > max(failed_ms, default=-1.0)), DELTA_MAX_MS)

    def estimate(self) -> float:
        """The value with the best pause; infinite if no pause keeps the limits."""
        delta_ms = self.best_ms()
        near = min(self.tested, key=lambda one: abs(one.delta_ms - delta_ms), default=None)
        if near is None:
            return math.inf
        at_end = delta_ms == near.delta_ms and delta_ms in (0.0, DELTA_MAX_MS)
        if at_end and not self.results.is_feasible(near):
            return math.inf
        good = [self.results.value(one) for one in self.tested if self.results.is_feasible(one)]
        # Without limits every pause may be tried, and nothing has to be predicted.
        return min([self._value_at(near, delta_ms), *good] if self.results.limits else good)

    def _value_at(self, near: Candidate, delta_ms: float) -> float:
        field = self.results.objective
        value = self.results.mean(near, field)
        if field == "bytes_per_s":
            round_ms = self._round_ms(near)
            return value * (near.delta_ms + round_ms) / max(delta_ms + round_ms, 1e-9)
        slope = self._slope((near.delta_ms, value), [], field, 1, math.inf)
        return max(value + slope * (delta_ms - near.delta_ms), 0.0)

    def bound(self) -> float:
        """A lower bound of the values that pauses within the limits can have, as far as the simulated ones tell."""
        if self.results.objective == "bytes_per_s":
            return self._bytes_bound()
        target_ms = self.best_ms()
        field = self.results.objective
        bounds = []
        for one in self.tested:
            value = self.results.mean(one, field)
            shorter = (target_ms + self._round_ms(one)) / max(one.delta_ms + self._round_ms(one), 1e-9)
            bounds.append(value * min(1.0, shorter))
        return max(bounds, default=0.0)

    def _bytes_bound(self) -> float:
        """The bytes with the longest pause that can keep the time: it adds half of itself to the time, at least."""
        limit_ms = self.results.limits.get("time_ms", math.inf)
        bounds = []
        for one in self.tested:
            period_ms = one.delta_ms + self._round_ms(one)
            spare_ms = max(limit_ms - self.results.mean(one, "time_ms"), 0.0)
            longest_ms = period_ms + spare_ms / WAIT_MIN
            bounds.append(self.results.mean(one, "bytes_per_s") * period_ms / longest_ms if longest_ms > 0 else 0.0)
        return max(bounds, default=0.0)

    def _solve(self, field: str) -> float:
        """The pause at which the use of a limit is `AIM`."""
        sign = -1 if field == "bytes_per_s" else 1  # 1 / bytes is linear
        aim = AIM**sign
        at = [(one.delta_ms, self.results.excess(one, field) ** sign) for one in self.tested]
        at = [(delta_ms, use) for delta_ms, use in at if 0 < use < math.inf]
        if not at:
            return DELTA_MAX_MS if field == "bytes_per_s" else 0.0
        first = min(at, key=lambda one: (abs(math.log(one[1] / aim)), one))
        return first[0] + (aim - first[1]) / self._slope(first, at, field, sign, aim)

    def _slope(
        self, first: tuple[float, float], at: list[tuple[float, float]], field: str, sign: int, aim: float
    ) -> float:
        """The slope at a point: through a second point, by the same or by other seeds, but not beyond the origin.

        A line that would be below zero without pause and round is due to noise.
        """
        one = next(one for one in self.tested if one.delta_ms == first[0])
        highest = first[1] / max(one.delta_ms + self._round_ms(one), 1e-3)
        slope = _slope(first, at, aim)
        if slope is None:
            line = [(other.delta_ms, self.results.first(other, field) ** sign) for other in self.slopes]
            now = [(delta_ms, value) for delta_ms, value in line if delta_ms == first[0]]
            own = _slope(now[0], line, math.inf) if now else None
            slope = own * first[1] / now[0][1] if own is not None else highest
        return min(slope, highest)

    def _round_ms(self, candidate: Candidate) -> float:
        return self.results.mean(candidate, "round_ms")


def _slope(first: tuple[float, float], others: Sequence[tuple[float, float]], aim: float) -> float | None:
    """The slope to the nearest point on the other side of the aim, or to the nearest one; None if it does not rise."""
    others = [one for one in others if one[0] != first[0]]
    across = [one for one in others if (one[1] < aim) != (first[1] < aim)]
    for other in sorted(across or others, key=lambda one: abs(one[0] - first[0])):
        slope = (other[1] - first[1]) / (other[0] - first[0])
        if slope > 0:
            return slope
    return None


def two_digits(value: float, *, up: bool) -> float:
    """A pause of two digits, rounded to the safe side."""
    if value < 0.01:
        return 0.0 if not up or value <= 0 else 0.01
    unit = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    # Rounded first, so that 20 stays 20.
    return float(f"{(math.ceil if up else math.floor)(round(value / unit, 6)) * unit:.6g}")

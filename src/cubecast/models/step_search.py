"""Find the window of good gossip step intervals by measuring (guo §5.3.2, Figs 5.8 and 5.9).

f(x) is the average TPR measured with step interval x. Part I shrinks [shortest, longest] by the golden ratio around a
near-minimum s; part II widens a window around s, in strides of p, 2p, 4p, … and back, as long as f stays within e of
f(s).

The search requests measurements; the caller measures, live or in a simulator:

    search = StepSearch(SearchPlan(shortest_s=0.0, longest_s=20.0, resolution_s=2.0, stride_s=1.0, tolerance=0.1))
    while (step_s := search.next()) is not None:
        search.report(step_s, measure(step_s))
    window = search.result()

| paper | here |
|---|---|
| a_0, b_0 | shortest_s, longest_s |
| g | resolution_s |
| e | tolerance, a share of f(s) |
| p | stride_s |
| s, s_1, s_2 | best_s, low_s, high_s |

Departures. The printed test |f(x) − f(s)| < e is read as |f(x) − f(s)| < e·f(s), as the legend of the figure says. The
window stays inside (0, longest_s]; the printed loops could leave it on both sides. A point that was measured, or lies
within a hundredth of the resolution of a measured one, is not measured again: one of the two golden points is always
an old one. Noise: every point is measured `repeats` times; when a comparison is closer than two standard errors, both
points are measured again, up to `repeats_max` times. As printed, halving stops at its first miss, so the window may
end before the edge; with `to_the_edge` halving continues. An infinite measurement (no round ended) is allowed and
counts as the worst; if the last midpoint is infinite, s is the best interval measured instead.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.models.checks import require_positive, require_whole

GOLDEN_NEAR, GOLDEN_FAR = 0.382, 0.618
CLEAR_STANDARD_ERRORS = 2.0
REUSE_SHARE = 0.01

Questions = Generator[float, float, None]
Decision = Generator[float, float, bool]


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The inputs of both parts, and how often to measure."""

    shortest_s: float
    longest_s: float
    resolution_s: float
    stride_s: float
    tolerance: float
    repeats: int = 1
    repeats_max: int = 1
    to_the_edge: bool = False

    def __post_init__(self) -> None:
        for name in ("longest_s", "resolution_s", "stride_s", "tolerance"):
            require_positive(name, getattr(self, name))
        if not 0 <= self.shortest_s < self.longest_s:
            raise LocalProtocolError(
                f"shortest_s={self.shortest_s!r}: give 0 or more, below longest_s={self.longest_s!r}"
            )
        if self.resolution_s < 1e-6 * self.longest_s or self.stride_s < 1e-6 * self.longest_s:
            raise LocalProtocolError(
                "resolution_s and stride_s below a millionth of longest_s would never end; give more"
            )
        require_whole("repeats", self.repeats, least=1)
        require_whole("repeats_max", self.repeats_max, least=self.repeats)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement of the caller."""

    step_s: float
    value: float


@dataclass(frozen=True, kw_only=True)
class StepWindow:
    """The intervals [low_s, high_s] whose measured TPR is within the tolerance of `best_value`."""

    best_s: float
    best_value: float
    low_s: float
    high_s: float
    golden_iterations: int
    window_iterations: int
    measurements: tuple[Measurement, ...]


class StepSearch:
    """Requests measurements with `next`, takes them with `report`, ends with `result`."""

    def __init__(self, plan: SearchPlan) -> None:
        self.plan = plan
        self.measurements: list[Measurement] = []
        self._values: dict[float, list[float]] = {}
        self._golden_iterations = 0
        self._window_iterations = 0
        self._best_s = self._low_s = self._high_s = math.nan
        self._questions = self._search()
        self._asked: float | None = next(self._questions)

    def next(self) -> float | None:
        """The step interval to measure next; the same one until it is reported; None when the search is over."""
        return self._asked

    def report(self, step_s: float, value: float) -> None:
        """Report the TPR measured with `step_s`, which must be the interval that `next` requested."""
        if self._asked is None:
            raise LocalProtocolError(f"step_s={step_s!r}: the search is over; read result()")
        if step_s != self._asked:
            raise LocalProtocolError(f"step_s={step_s!r}: the search asked for {self._asked!r}; report that one")
        if math.isnan(value) or value <= 0:
            raise LocalProtocolError(
                f"value={value!r} for step_s={step_s!r}: give a time above 0, or inf if no round ended"
            )
        self.measurements.append(Measurement(step_s=step_s, value=value))
        try:
            self._asked = self._questions.send(value)
        except StopIteration:
            self._asked = None

    def result(self) -> StepWindow:
        """The window, once `next` returned None."""
        if self._asked is not None:
            raise LocalProtocolError(f"the search still waits for step_s={self._asked!r}; report it before result()")
        return StepWindow(
            best_s=self._best_s,
            best_value=_mean(self._values[self._best_s]),
            low_s=self._low_s,
            high_s=self._high_s,
            golden_iterations=self._golden_iterations,
            window_iterations=self._window_iterations,
            measurements=tuple(self.measurements),
        )

    def _search(self) -> Questions:
        yield from self._golden()
        self._low_s = self._high_s = self._best_s
        yield from self._widen(-1)
        yield from self._widen(+1)

    def _golden(self) -> Questions:
        """Part I, Fig 5.8."""
        low, high = self.plan.shortest_s, self.plan.longest_s
        while high - low > self.plan.resolution_s:
            self._golden_iterations += 1
            near = self._settle(low + GOLDEN_NEAR * (high - low))
            far = self._settle(low + GOLDEN_FAR * (high - low))
            if (yield from self._is_no_better(near, far)):
                low = near
            else:
                high = far
        self._best_s = self._settle((low + high) / 2)
        yield from self._measure(self._best_s, self.plan.repeats)
        self._leave_the_cliff()

    def _leave_the_cliff(self) -> None:
        """If no round ended with the midpoint s, use the best interval measured instead."""
        if not math.isinf(_mean(self._values[self._best_s])):
            return
        self._best_s = min(self._values, key=lambda known: _mean(self._values[known]))
        if math.isinf(_mean(self._values[self._best_s])):
            raise LocalProtocolError(
                f"no round ended with any interval tried between {self.plan.shortest_s:g} and "
                f"{self.plan.longest_s:g} s; look between other bounds"
            )

    def _widen(self, direction: int) -> Questions:
        """Part II, Fig 5.9, one side: strides double while f stays near f(s), then halve."""
        edge, factor = self._best_s, 1
        while (yield from self._is_inside(edge + direction * factor * self.plan.stride_s)):
            edge += direction * factor * self.plan.stride_s
            self._move(direction, edge)
            factor *= 2
        factor //= 2
        while factor >= 1:
            if (yield from self._is_inside(edge + direction * factor * self.plan.stride_s)):
                edge += direction * factor * self.plan.stride_s
                self._move(direction, edge)
            elif not self.plan.to_the_edge:
                return
            factor //= 2

    def _move(self, direction: int, edge: float) -> None:
        self._window_iterations += 1
        if direction < 0:
            self._low_s = edge
        else:
            self._high_s = edge

    def _is_inside(self, step_s: float) -> Decision:
        """Whether f(step_s) lies within e of f(s)."""
        if not 0 < step_s <= self.plan.longest_s:
            return False
        step_s = self._settle(step_s)
        yield from self._measure(step_s, self.plan.repeats)
        while True:
            best = _mean(self._values[self._best_s])
            difference = abs(_mean(self._values[step_s]) - best)
            margin = abs(difference - self.plan.tolerance * best)
            if self._is_clear(margin, step_s, self._best_s):
                return difference < self.plan.tolerance * best
            yield from self._measure_once_more(step_s, self._best_s)

    def _is_no_better(self, near: float, far: float) -> Decision:
        """f(near) ≥ f(far)."""
        yield from self._measure(near, self.plan.repeats)
        yield from self._measure(far, self.plan.repeats)
        while True:
            one, other = _mean(self._values[near]), _mean(self._values[far])
            margin = math.inf if math.isinf(one) or math.isinf(other) else abs(one - other)
            if self._is_clear(margin, near, far):
                return one >= other
            yield from self._measure_once_more(near, far)

    def _is_clear(self, margin: float, *points: float) -> bool:
        """Whether the margin exceeds the noise of these points, or no further measurement is allowed."""
        if all(len(self._values[point]) >= self.plan.repeats_max for point in points):
            return True
        errors = [_squared_error(self._values[point]) for point in points]
        return margin > CLEAR_STANDARD_ERRORS * math.sqrt(sum(errors))

    def _measure_once_more(self, *points: float) -> Questions:
        for point in points:
            if len(self._values[point]) < self.plan.repeats_max:
                yield from self._measure(point, len(self._values[point]) + 1)

    def _measure(self, step_s: float, times: int) -> Questions:
        values = self._values.setdefault(step_s, [])
        while len(values) < times:
            values.append((yield step_s))

    def _settle(self, step_s: float) -> float:
        """A measured point close enough to stand for this one, or the point itself."""
        nearest = min(self._values, key=lambda known: abs(known - step_s), default=math.inf)
        return nearest if abs(nearest - step_s) <= REUSE_SHARE * self.plan.resolution_s else step_s


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _squared_error(values: list[float]) -> float:
    """Squared standard error of the mean; unknown, so infinite, for a single finite value."""
    if any(math.isinf(value) for value in values):
        return 0.0
    if len(values) < 2:
        return math.inf
    mean = _mean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)

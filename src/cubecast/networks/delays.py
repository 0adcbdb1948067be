"""How long a message or a link takes: a constant, a uniform or an exponential delay.

One formula covers the three, `low_ns + spread_ns * stretch(u)` for u uniform in [0, 1):

| shape       | low_ns   | spread_ns  | stretch(u)  |
|-------------|----------|------------|-------------|
| constant    | the delay| 0          | u           |
| uniform     | smallest | range      | u           |
| exponential | 0        | the mean   | −ln(1 − u)  |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError

NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class DelayDistribution:
    """A delay in nanoseconds; a constant is a uniform delay without spread."""

    shape: Literal["uniform", "exponential"]
    low_ns: int
    spread_ns: int

    def __post_init__(self) -> None:
        if self.low_ns < 0 or self.spread_ns < 0:
            raise LocalProtocolError(
                f"delay of {self.low_ns} ns plus up to {self.spread_ns} ns: a delay cannot be negative"
            )

    @property
    def mean_ns(self) -> float:
        return self.low_ns + (self.spread_ns if self.shape == "exponential" else self.spread_ns / 2)

    def draw_ns(self, generator: Generator, count: int) -> NDArray[np.int64]:
        """`count` independent delays, rounded to whole nanoseconds."""
        uniform = generator.random(count)
        stretch = -np.log1p(-uniform) if self.shape == "exponential" else uniform
        return np.rint(self.low_ns + self.spread_ns * stretch).astype(np.int64)


def constant(delay_ns: int) -> DelayDistribution:
    return DelayDistribution(shape="uniform", low_ns=delay_ns, spread_ns=0)


def uniform(low_ns: int, high_ns: int) -> DelayDistribution:
    if high_ns < low_ns:
        raise LocalProtocolError(f"delay from {low_ns} ns to {high_ns} ns: put the smaller delay first")
    return DelayDistribution(shape="uniform", low_ns=low_ns, spread_ns=high_ns - low_ns)


def exponential(mean_ns: int) -> DelayDistribution:
    return DelayDistribution(shape="exponential", low_ns=0, spread_ns=mean_ns)

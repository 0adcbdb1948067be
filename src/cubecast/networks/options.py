"""The options after a network's kind: `random:p=0.02,delay=0-1ms` has the options p and delay.

Values are plain numbers, bandwidths in bit/s (`10e6`), or delays with a unit (`1ms`, `0.5-1.5ms`, `exp:1ms`).
A value that cannot be parsed raises LocalProtocolError; its message names the value and the choices.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import DelayDistribution, constant, exponential, uniform

_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_NUMBER = r"\d+\.?\d*(?:e[+-]?\d+)?"
_UNIT = "|".join(_UNIT_NS)
_ONE_DELAY = re.compile(rf"({_NUMBER})({_UNIT})", re.IGNORECASE)
_DELAY_RANGE = re.compile(rf"({_NUMBER})({_UNIT})?-({_NUMBER})({_UNIT})", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for: the spec as written, its options, the number of members and the seed."""

    name: str
    values: dict[str, str]
    members: int
    seed: int

    def has(self, key: str) -> bool:
        return key in self.values

    def number(self, key: str, default: float = math.nan) -> float:
        if key not in self.values:
            return default
        try:
            return float(self.values[key])
        except ValueError:
            raise self._unreadable(key, "a number") from None

    def whole_number(self, key: str, default: int) -> int:
        text = self.values.get(key, str(default))
        if not text.isascii() or not text.isdigit():
            raise self._unreadable(key, "a whole number")
        return int(text)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words, the first of which is the default."""
        word = self.values.get(key, choices[0])
        if word not in choices:
            raise self._unreadable(key, " or ".join(choices))
        return word

    def probability(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if not 0 <= value <= 1:
            raise self._unreadable(key, "a probability from 0 to 1" if key != "radius" else "a share from 0 to 1")
        return value

    def average_degree(self) -> float:
        """The option `degree`: the average number of edges at a node."""
        degree = self.number("degree")
        if not 0 < degree <= self.members - 1:
            raise self._unreadable(
                "degree", f"a degree above 0 and at most {self.members - 1} for {self.members} members"
            )
        return degree

    def bandwidth_bps(self, default: float) -> float:
        bandwidth = self.number("bandwidth", default)
        if not 0 < bandwidth < math.inf:
            raise self._unreadable("bandwidth", "bits per second above 0, such as 10e6")
        return bandwidth

    def delay(self, default: DelayDistribution) -> DelayDistribution:
        return parse_delay(self.values["delay"]) if "delay" in self.values else default

    def _unreadable(self, key: str, wanted: str) -> LocalProtocolError:
        return LocalProtocolError(f"{key}={self.values[key]} in network {self.name}: give {wanted}")


def parse_delay(text: str) -> DelayDistribution:
    """Read `1ms`, `0-1ms`, `0.5ms-2s` or `exp:1ms`."""
    if text.startswith("exp:") and (mean := _ONE_DELAY.fullmatch(text[4:])):
        return exponential(_nanoseconds(mean[1], mean[2]))
    if one := _ONE_DELAY.fullmatch(text):
        return constant(_nanoseconds(one[1], one[2]))
    if both := _DELAY_RANGE.fullmatch(text):
        return uniform(_nanoseconds(both[1], both[2] or both[4]), _nanoseconds(both[3], both[4]))
    raise LocalProtocolError(
        f"delay={text}: give a delay such as 1ms, a range such as 0-1ms, or exp:1ms, in ns, us, ms or s"
    )


def _nanoseconds(number: str, unit: str) -> int:
    delay_ns = float(number) * _UNIT_NS[unit.lower()]
    # A year: beyond it sums along a route leave the range of int64.
    if delay_ns > 3.2e16:
        raise LocalProtocolError(f"delay {number}{unit}: give a delay under a year")
    return round(delay_ns)

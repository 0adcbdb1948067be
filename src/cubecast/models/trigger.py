"""Whether a trigger X exists for a buffer and its load, how long it suffices, and what to change if none exists (guo
ch. 6).

`models.trigger_level` computes X.

Departure: 6.3 considers two rounds only. When a round releases fewer messages than are sent meanwhile, rounds run back
to back and the buffer rises to r·f/α at the start of a round; if r·f·(1 + 1/α) > g it overflows some rounds later,
although X satisfies the paper's conditions. This case has a verdict of its own here.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.models.checks import require_positive, require_probability, require_whole
from cubecast.models.trigger_level import trigger_level

# Below this share a round releases less than one message of any real buffer.
NOTHING_STABLE = 1e-6


class Feasibility(enum.Enum):
    """The verdict on a case."""

    FEASIBLE = "feasible"
    OVERFLOWS_LATER = "overflows later"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, kw_only=True)
class TriggerCase:
    """A buffer and its load. `buffer_messages` is g, `rate_per_s` r, `round_s` f, `stable_fraction` α."""

    buffer_messages: int
    rate_per_s: float
    round_s: float
    stable_fraction: float = 1.0

    def __post_init__(self) -> None:
        require_whole("buffer_messages", self.buffer_messages, least=1)
        require_positive("rate_per_s", self.rate_per_s)
        require_positive("round_s", self.round_s)
        require_positive("rate_per_s · round_s", self.sent_in_round)
        require_probability("stable_fraction", self.stable_fraction, zero=True, one=True)

    @property
    def sent_in_round(self) -> float:
        """Q = r·f, the messages sent while one round runs."""
        return self.rate_per_s * self.round_s


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The result. `level` is X, or None when no X exists; `sentence` is advice for the user."""

    verdict: Feasibility
    level: float | None
    sentence: str

    @property
    def level_messages(self) -> int:
        """X in whole messages; with 0 a round starts as soon as the last one has ended."""
        if self.level is None:
            raise LocalProtocolError(self.sentence)
        return math.floor(self.level)


def trigger(case: TriggerCase) -> Trigger:
    """Compute the optimal X for a case, and its verdict."""
    sent = case.sent_in_round
    if 2 * sent > case.buffer_messages:
        return Trigger(verdict=Feasibility.INFEASIBLE, level=None, sentence=_infeasible_sentence(case))
    level = trigger_level(
        room=case.buffer_messages,
        rate_per_s=case.rate_per_s,
        round_s=case.round_s,
        stable_fraction=case.stable_fraction,
    )
    if _overflows_later(case):
        sentence = _overflows_later_sentence(case, level)
        return Trigger(verdict=Feasibility.OVERFLOWS_LATER, level=level, sentence=sentence)
    sentence = f"start a round when the output buffer holds {math.floor(level)} of {case.buffer_messages} messages"
    return Trigger(verdict=Feasibility.FEASIBLE, level=level, sentence=sentence)


def _overflows_later(case: TriggerCase) -> bool:
    """Whether the level r·f/α, which back-to-back rounds approach, leaves no room for one more round."""
    return case.sent_in_round * (1 + case.stable_fraction) > case.stable_fraction * case.buffer_messages


def _infeasible_sentence(case: TriggerCase) -> str:
    buffer, rate, seconds = case.buffer_messages, case.rate_per_s, case.round_s
    return (
        f"2·r·f = {2 * case.sent_in_round:g} messages do not fit a buffer of {buffer}: take a buffer of "
        f"{math.ceil(2 * case.sent_in_round)} messages, or send at most {buffer / (2 * seconds):.4g}/s, "
        f"or make a round faster than {buffer / (2 * rate):.4g} s"
    )


def _overflows_later_sentence(case: TriggerCase, level: float) -> str:
    start = f"X = {math.floor(level)} lasts two rounds, not forever"
    if case.stable_fraction < NOTHING_STABLE:
        return f"{start}: next to nothing is ever released; repair losses so that the stable fraction is above 0"
    needed = case.sent_in_round * (1 + 1 / case.stable_fraction)
    ease = case.buffer_messages / needed
    return (
        f"{start}: each round releases {case.stable_fraction:.0%} only; take a buffer of {math.ceil(needed)} messages, "
        f"or send at most {case.rate_per_s * ease:.4g}/s, or make a round faster than {case.round_s * ease:.4g} s"
    )

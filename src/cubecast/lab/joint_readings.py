"""The reading at which most statements of a paper hold at once, among those that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubecast.lab.claims import NOT_TESTED, Judgement
from cubecast.lab.outcomes import CONTRADICTED, HOLDS
from cubecast.lab.questions import Reading


@dataclass(frozen=True, kw_only=True)
class JointReading:
    """A reading, and how the claims of a study fare at it."""

    study: str
    reading: Reading
    held: int
    contradicted: int
    tested: int


def best_joint_reading(judgements: Sequence[Judgement]) -> JointReading | None:
    """By claims that hold, then by claims that are not contradicted; None where no claim leaves anything open.

    A claim that depends on fewer parameters than others counts at every reading that agrees with one of its own.
    """
    widest = max(judgements, key=lambda one: len(one.claim.readings), default=None)
    if widest is None or not widest.claim.readings:
        return None
    found = [_at(reading.reading, judgements) for reading in widest.readings]
    return max(found, key=lambda one: (one.held, -one.contradicted), default=None)


def _at(reading: Reading, judgements: Sequence[Judgement]) -> JointReading:
    verdicts = [
        own.verdict
        for one in judgements
        for own in one.readings
        if own.verdict != NOT_TESTED and all(reading.get(name, value) == value for name, value in own.reading.items())
    ]
    return JointReading(
        study=judgements[0].plan.id,
        reading=reading,
        held=verdicts.count(HOLDS),
        contradicted=verdicts.count(CONTRADICTED),
        tested=len(verdicts),
    )

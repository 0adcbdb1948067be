"""The reading at which most statements of a paper hold at the same time, among those that were tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cubecast.lab.claims import NOT_TESTED, UNDECIDED, Judgement
from cubecast.lab.outcomes import CONTRADICTED, HOLDS
from cubecast.lab.questions import Reading


@dataclass(frozen=True, kw_only=True)
class JointReading:
    """A reading, and the outcomes of the claims of a study at it."""

    study: str
    reading: Reading
    held: int
    contradicted: int
    tested: int


def best_joint_reading(judgements: Sequence[Judgement]) -> JointReading | None:
    """The reading with the most claims that hold, then the fewest contradicted; None if few claims have readings.

    The parameters are those that most claims depend on. A claim that depends on fewer or more counts by the most severe
    verdict at those of its readings that agree.
    """
    parameters = Counter(tuple(one.claim.readings) for one in judgements if one.claim.readings)
    usual, count = max(parameters.items(), key=lambda one: (one[1], len(one[0])), default=((), 0))
    if count < 2 or 2 * count < len(judgements):
        return None  # readings of a few claims only: parameters of the study, not what the paper leaves open
    widest = next(one for one in judgements if tuple(one.claim.readings) == usual)
    found = [_at(reading.reading, judgements) for reading in widest.readings]
    return max(found, key=lambda one: (one.held, -one.contradicted), default=None)


def _at(reading: Reading, judgements: Sequence[Judgement]) -> JointReading:
    verdicts = [verdict for one in judgements if (verdict := _verdict_at(reading, one)) != NOT_TESTED]
    return JointReading(
        study=judgements[0].plan.id,
        reading=reading,
        held=verdicts.count(HOLDS),
        contradicted=verdicts.count(CONTRADICTED),
        tested=len(verdicts),
    )


def _verdict_at(reading: Reading, judgement: Judgement) -> str:
    """The most severe verdict at the readings of a claim that agree with this one."""
    agreeing = {
        own.verdict
        for own in judgement.readings
        if all(reading.get(name, value) == value for name, value in own.reading.items())
    }
    return next((verdict for verdict in (CONTRADICTED, UNDECIDED, HOLDS) if verdict in agreeing), NOT_TESTED)

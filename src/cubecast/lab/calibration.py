"""Calibration: the settings at which most statements of a paper hold at the same time and its numbers are nearest.

*Space.* The table `calibrate` of a plan names the parameters that the paper leaves open: ranges (`between`, on a
logarithmic scale) and choices (`among`). Several plans of one paper are calibrated together: the space has the
parameters of all of them (`lab.joint_space`), and each plan runs with the parameters that it names. A setting is a
point of the unit cube, one coordinate per open parameter.

*Start.* The matrices A, B and AB of a Sobol sequence (Saltelli 2010), from which SciPy's `sobol_indices` gives the
share of the score's variance that each parameter explains alone (first order) and with all others (total).

*Refinement.* Around the best settings found so far, in a box that halves from round to round.

*Score* of a setting: the claims that hold at it; one that is undecided, or that holds at some of its own readings only
(group sizes, variants), counts half. The distance of the paper's numbers, as the mean of |ln(ours / theirs)|, decides
between equals.

The result depends only on the plan and its runs: the same plan finds the same setting, interrupted or not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc, sobol_indices

from cubecast.lab.claims import (
    EVERYWHERE,
    NOT_TESTED,
    REGION,
    UNDECIDED,
    JudgedReading,
    Judgement,
    distance,
    verdict_of,
)
from cubecast.lab.outcomes import CONTRADICTED
from cubecast.lab.plan import Calibration
from cubecast.lab.questions import Reading
from cubecast.lab.tables import sortable

Unit = npt.NDArray[np.float64]
"""Points of the unit cube, one per row."""
CALIBRATED = "calibrate-"
"""Prefix of a study id: its plan with the settings of a calibration as readings."""
PARENTS = 4
"""The number of best settings around which a round of refinement searches."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A setting and the outcomes of the claims at it."""

    setting: Reading
    held: int
    in_part: int
    """Claims that hold at some of their own readings only."""
    undecided: int
    tested: int
    distance: float
    """Mean of |ln(ours / theirs)| over the numbers that the paper gives; 0 if it gives none."""

    @property
    def score(self) -> float:
        return self.held + 0.5 * (self.in_part + self.undecided)

    @property
    def rank(self) -> tuple[float, float]:
        """The sort key: larger is better."""
        return self.score, -self.distance


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The share of the variance of the score that a parameter explains."""

    first_order: float
    total: float


def settings_at(space: Calibration, points: Unit) -> list[Reading]:
    """The settings at these points of the unit cube."""
    return [
        {name: _value(space, name, float(share)) for name, share in zip(space.names, row, strict=True)}
        for row in points
    ]


def _value(space: Calibration, name: str, share: float) -> Any:
    if name in space.among:
        choices = space.among[name]
        return choices[min(int(share * len(choices)), len(choices) - 1)]
    low, high = space.between[name]
    return float(f"{low * (high / low) ** share:.4g}")


def start(space: Calibration) -> Unit:
    """The matrices A, B and AB, stacked: start · (parameters + 2) points."""
    count, parameters = space.start, len(space.names)
    drawn = qmc.Sobol(d=2 * parameters, scramble=True, rng=np.random.default_rng(0)).random(count)
    a, b = drawn[:, :parameters], drawn[:, parameters:]
    mixed = [np.where(np.arange(parameters) == column, b, a) for column in range(parameters)]
    return np.concatenate([a, b, *mixed])


def around(best: Unit, *, number: int, width: int) -> Unit:
    """The settings of a round of refinement: `width` points in boxes around the best, half as wide each round."""
    drawn = qmc.Sobol(d=best.shape[1], scramble=True, rng=np.random.default_rng(number)).random(width)
    reach = 0.5**number
    centres = best[np.arange(width) % len(best)]
    return np.clip(centres + reach * (drawn - 0.5), 0.0, np.nextafter(1.0, 0.0))


def score_settings(judgements: Sequence[Judgement], settings: Sequence[Reading]) -> list[Scored]:
    """Score each setting by the outcomes of the claims."""
    return [_score(judgements, setting) for setting in settings]


def readings_at(judgement: Judgement, setting: Reading) -> list[JudgedReading]:
    """The outcomes of a claim at a setting: one, or one per own reading of the claim."""
    opened = set(setting)
    return [
        own
        for own in judgement.readings
        if all(setting[name] == value for name, value in own.reading.items() if name in opened)
    ]


def claim_name(judgement: Judgement) -> str:
    """The name of a claim, with its study."""
    return f"{judgement.plan.id.removeprefix(CALIBRATED)}/{judgement.claim.id}"


def claims_with(verdict: str, judgements: Sequence[Judgement], setting: Reading) -> list[str]:
    """The claims with this verdict at a setting."""
    return [claim_name(one) for one in judgements if _verdict_at(one, setting) == verdict]


def _verdict_at(judgement: Judgement, setting: Reading) -> str:
    """The verdict on a claim over its own readings at a setting."""
    return verdict_of([own.verdict for own in readings_at(judgement, setting)])


def _score(judgements: Sequence[Judgement], setting: Reading) -> Scored:
    apart = [
        distance(finding.estimate.value, finding.test.paper)
        for one in judgements
        for own in readings_at(one, setting)
        if own.verdict != NOT_TESTED
        for finding in own.findings
        if finding.test.paper is not None and math.isfinite(finding.estimate.value)
    ]
    verdicts = [verdict for one in judgements if (verdict := _verdict_at(one, setting)) != NOT_TESTED]
    return Scored(
        setting=setting,
        held=verdicts.count(EVERYWHERE),
        in_part=verdicts.count(REGION),
        undecided=verdicts.count(UNDECIDED),
        tested=len(verdicts),
        distance=float(np.mean(apart)) if apart else 0.0,
    )


def sensitivities(space: Calibration, scores: Sequence[float]) -> dict[str, Sensitivity]:
    """Sobol indices of every open parameter, from the scores of the settings of `start`."""
    count, parameters = space.start, len(space.names)
    f_a, f_b, *mixed = np.asarray(scores, dtype=np.float64).reshape(parameters + 2, 1, count)
    if np.ptp(np.concatenate([f_a, f_b])) == 0:  # nothing varies, so nothing explains it
        return dict.fromkeys(space.names, Sensitivity(first_order=0.0, total=0.0))
    found = sobol_indices(func={"f_A": f_a, "f_B": f_b, "f_AB": np.array(mixed)}, n=count)
    first, total = np.ravel(found.first_order), np.ravel(found.total_order)
    return {
        name: Sensitivity(first_order=float(first[place]), total=float(total[place]))
        for place, name in enumerate(space.names)
    }


def acceptable(scored: Sequence[Scored], *, within: float = 1.0) -> dict[str, list[Any]]:
    """The values of each parameter in the settings whose score is within `within` claims of the best."""
    best = max((one.score for one in scored), default=0.0)
    near = [one.setting for one in scored if one.score >= best - within]
    names = list(near[0]) if near else []
    return {name: sorted({setting[name] for setting in near}, key=sortable) for name in names}


def exclusions(judgements: Sequence[Judgement], settings: Sequence[Reading]) -> list[tuple[str, str]]:
    """Pairs of claims that each hold at some setting, while at every setting one of the two is contradicted."""
    verdicts = {claim_name(one): [_verdict_at(one, setting) for setting in settings] for one in judgements}
    holding = [claim for claim, own in verdicts.items() if {EVERYWHERE, REGION} & set(own)]
    pairs = itertools.combinations(holding, 2)
    return [(one, other) for one, other in pairs if not _are_compatible(verdicts[one], verdicts[other])]


def _are_compatible(one: Sequence[str], other: Sequence[str]) -> bool:
    """Is there a setting at which both were tested, and neither is contradicted?"""
    return any({mine, theirs} <= {EVERYWHERE, REGION, UNDECIDED} for mine, theirs in zip(one, other, strict=True))


def nowhere(judgements: Sequence[Judgement]) -> list[str]:
    """The claims that are contradicted at every setting at which they were tested."""
    return [claim_name(one) for one in judgements if one.verdict == CONTRADICTED]

"""From a plan to its runs: one row per run, with its seed and an id derived from its content.

The id of a run is a hash of everything that determines its result: the experiment and every setting, including the
seed. A run that two studies have in common is one run; a plan that changes has other runs, so that old results are
never mistaken for new ones.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.lab.own_metrics import MEASURE, own_metrics
from cubecast.lab.plan import SIMULATED, Plan
from cubecast.lab.select import matches
from cubecast.lab.source_hash import source_hash
from cubecast.protocol.parameters import ParameterInfo
from cubecast.sim.roles import is_parameter, parameter_of
from cubecast.sim.scenario import Scenario

RUNS_MAX = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a study."""

    study: str
    experiment: str
    common: dict[str, Any]
    """The settings that all runs of a point share: a million runs store them once per point."""
    seed: int
    point: dict[str, Any]
    """The values that identify a point of the study; a point has one run per seed."""
    number: int = 0
    """The number of the point in its study."""
    code_of_point: Callable[[], str] | None = None
    """The code version, if the runs of the point share it: it does not depend on the seed."""

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the experiment, including the seed."""
        return self.common | {"seed": self.seed}

    @cached_property
    def id(self) -> str:
        return run_id(self.experiment, self.settings)

    @cached_property
    def code(self) -> str:
        """The code version, so that results of other versions are distinct."""
        return source_hash(self.common) if self.code_of_point is None else self.code_of_point()


def canonical(settings: dict[str, Any]) -> str:
    """Settings as canonical text: equal settings give equal text."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def run_id(experiment: str, settings: dict[str, Any]) -> str:
    """The name of a run, which depends only on its content."""
    return hashlib.sha256(f"{experiment}\n{canonical(settings)}".encode()).hexdigest()[:24]


def runs_of(plan: Plan, size: str, seeds: Mapping[int, int] | None = None) -> list[Run]:
    """The runs of a plan, by point and then by seed; seeds are 0 … repeats − 1, or as many as `seeds` gives."""
    counts = seeds or {}
    repeats = plan.sizes[size].repeats
    return [
        run
        for number, point in enumerate(points_of(plan, size))
        for run in _runs_at(plan, size, number, point, counts.get(number, repeats))
    ]


def _runs_at(plan: Plan, size: str, number: int, point: dict[str, Any], repeats: int) -> Iterator[Run]:
    settings = settings_of(plan, size, point)
    code = cache(lambda: source_hash(settings))
    for seed in range(repeats):
        yield Run(
            study=plan.id,
            experiment=plan.experiment,
            common=settings,
            seed=seed,
            point=point,
            number=number,
            code_of_point=code,
        )


def settings_of(plan: Plan, size: str, point: dict[str, Any]) -> dict[str, Any]:
    """The settings of the experiment at a point; a variant is replaced by its settings, without its label."""
    own = next((dict(one) for one in plan.variants if one["label"] == point.get("variant")), {})
    settings = {**plan.sizes[size].fixed, **own, **point}
    measured = sorted(set(plan.measured) & set(own_metrics())) if plan.experiment == "simulate" else []
    return {
        name: value
        for name, value in settings.items()
        if name not in ("label", "variant") and not (plan.experiment in SIMULATED and _is_of_others(name, settings))
    } | ({MEASURE: measured} if measured else {})


def _is_of_others(name: str, settings: dict[str, Any]) -> bool:
    """Is this a parameter of protocols that are not in this run? It has no effect, so the run does not have it."""
    if "protocol" not in settings or f"{{{name}}}" in str(settings.get("network", "")):
        return False
    return _is_parameter(name) and _parameter_of(name, settings) is None


@cache
def _is_parameter(name: str) -> bool:
    return name not in _FIELDS and is_parameter(name)


def _parameter_of(name: str, settings: dict[str, Any]) -> ParameterInfo | None:
    """The parameter of the protocols of this run."""
    values = {key: value for key, value in settings.items() if key in _FIELDS}
    # A setting may be of a wrong type: the run reports it.
    with suppress(LocalProtocolError, TypeError, AttributeError):
        return parameter_of(name, settings["protocol"], values)
    return None


_FIELDS = {field.name for field in fields(Scenario)}


def run_count(plan: Plan, size: str) -> int:
    """An upper bound of the number of runs, without constructing them."""
    chosen = plan.sizes[size]
    count = max(chosen.repeats, chosen.repeats_max) * max(len(plan.protocols), len(plan.variants), 1)
    for values in chosen.sweep.values():
        count *= len(values)
    for table in chosen.zips:
        count *= max(len(next(iter(table.values()), [])), 1)
    return count


def points_of(plan: Plan, size: str) -> list[dict[str, Any]]:
    """Every combination of swept and zipped values, except those that are skipped or left out."""
    chosen = plan.sizes[size]
    axes: list[list[dict[str, Any]]] = []
    if plan.protocols:
        axes.append([{"protocol": name} for name in plan.protocols])
    if plan.variants:
        axes.append([{"variant": variant["label"]} for variant in plan.variants])
    axes += [[{name: value} for value in values] for name, values in chosen.sweep.items()]
    axes += [list(_rows(table)) for table in chosen.zips]
    points = [{key: value for part in parts for key, value in part.items()} for parts in itertools.product(*axes)]
    kept = [point for point in points if matches(plan.only, point)]
    return [point for point in kept if not any(matches(skip, point) for skip in plan.skip)]


def _rows(table: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*table.values(), strict=True):
        yield dict(zip(table, values, strict=True))

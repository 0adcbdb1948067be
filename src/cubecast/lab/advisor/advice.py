"""The answer of the advisor: the best candidate, the confidence, and the cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.lab.advisor.candidates import Candidate, Choice, Configuration, candidates_of
from cubecast.lab.advisor.evidence import write_evidence
from cubecast.lab.advisor.question import GroupQuestion, parse_budget, parse_rate, parse_time_ms
from cubecast.lab.advisor.race import Finish, Measure, race
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.selection import Selection, pareto_front
from cubecast.lab.advisor.trials import LOCAL_MEMBERS_MAX, Progress, Trials, spark_session
from cubecast.lab.advisor.workload import Workload
from cubecast.lab.remote import AnyPath, path_of
from cubecast.lab.stats import Estimate, mean_estimate
from cubecast.lab.store import Store

Verdict = Literal["clear", "too close to call", "nothing fits"]
CLEAR = 0.9
"""The probability of being the best that the first candidate needs, to be called the best."""
ROUND_EVERY_S_MIN = 1e-6  # the shortest pause of a live member


@dataclass(frozen=True, kw_only=True)
class Row:
    """One candidate, as measured."""

    candidate: Candidate
    seeds: int
    time_ms: Estimate
    bytes_per_s: Estimate
    buffer: Estimate
    messages_per_s: Estimate
    fits: bool
    """Does it keep the requested budget and time?"""
    probability: float | None
    """The probability that it is the best; None for a candidate that was dropped early."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        own = self.candidate.configuration
        return {
            "protocol": own.protocol,
            "parameters": dict(own.parameters),
            "placement": own.placement or None,
            "delta_ms": self.candidate.delta_ms,
            "seeds": self.seeds,
            "time_to_stable_ms": self.time_ms.value,
            "time_to_stable_ci95": self.time_ms.half_width,
            "bytes_per_member_s": self.bytes_per_s.value,
            "buffer_messages": self.buffer.value,
            "messages_per_member_s": self.messages_per_s.value,
            "fits": self.fits,
            "probability_best": self.probability,
        }


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What the advisor found."""

    question: GroupQuestion
    verdict: Verdict
    selection: Selection
    ranking: list[Row]
    """The finalists, then the best of each other protocol."""
    front: list[Row]
    """The candidates that no other one beats both in time and in bytes, the cheapest first."""
    current: Row | None
    """The configuration that the group runs now, if it was given."""
    impossible: dict[str, str]
    """Protocols that cannot serve this group, and why."""
    candidates: int
    simulations: int
    cpu_s: float

    @property
    def best(self) -> Row | None:
        """The first of the ranking; None if no candidate keeps the limits."""
        return None if self.verdict == "nothing fits" else self.ranking[0]

    @property
    def rivals(self) -> list[Row]:
        """The candidates that may well be the best instead of the first."""
        return [row for row in self.ranking[1:] if row.fits and (row.probability or 0.0) >= 1 - CLEAR]

    def live_settings(self) -> str | None:
        """The settings of a live member that runs the best candidate, as Python; None if none keeps the limits."""
        if self.best is None:
            return None
        candidate = self.best.candidate
        words = [f'stability="{candidate.configuration.protocol}"']
        if candidate.configuration.parameters:
            words.append(f"stability_parameters={dict(candidate.configuration.parameters)!r}")
        words.append(f"round_every_s={max(candidate.delta_ms / 1e3, ROUND_EVERY_S_MIN):g}")
        return f"Settings({', '.join(words)})"

    def live_cost(self) -> dict[str, float] | None:
        """The cost of the best candidate in a live group."""
        if self.best is None:
            return None
        members = self.question.members
        return {
            "bytes_per_member_s": self.best.bytes_per_s.value,
            "bytes_of_group_s": self.best.bytes_per_s.value * members,
            "messages_per_member_s": self.best.messages_per_s.value,
            "buffer_messages": self.best.buffer.value,
            "buffer_bytes": self.best.buffer.value * self.question.payload_bytes,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the same question gives the same values."""
        return {
            "verdict": self.verdict,
            "probability_best": self.selection.best,
            "probability_within_5_percent": self.selection.near,
            "best": None if self.best is None else self.best.to_dict(),
            "rivals": [row.to_dict() for row in self.rivals],
            "ranking": [row.to_dict() for row in self.ranking],
            "pareto_front": [row.to_dict() for row in self.front],
            "live": None if self.best is None else {"settings": self.live_settings(), **(self.live_cost() or {})},
            "current": None if self.current is None else self.current.to_dict(),
            "impossible": self.impossible,
            "candidates": self.candidates,
            "simulations": self.simulations,
        }


def advise(
    *,
    members: int,
    rate: str | float = 100.0,
    budget: str | float | None = None,
    within: str | float | None = None,
    protocols: list[str] | tuple[str, ...] = (),
    out: str | AnyPath = "advice",
    master: str | None = None,
    conf: dict[str, str] | None = None,
    spark: bool | None = None,
    progress: Progress | None = None,
    network: str = "random:p=0.02",
    senders: int | None = None,
    loss: float = 0.0,
    payload_bytes: int = 100,
    optimise: Literal["time-to-stable", "bytes", "buffer"] = "time-to-stable",
    placement: bool = True,
    seed: int = 0,
    current: dict[str, Any] | None = None,
    **settings: Any,
) -> Advice:
    """Say which stability protocol, with which parameters, is best for a group.

    >>> advice = advise(members=100, network="random:degree=5", loss=0.02, budget="30kb/s")  # doctest: +SKIP
    >>> advice.best.candidate.label, advice.selection.best  # doctest: +SKIP

    `rate` is in messages per second and sender ("50/s"), `budget` what the stability protocol may send per member
    ("30kb/s", or bytes per second), `within` the longest time to stable ("200ms", or milliseconds). `current` is what
    the group runs now (`protocol`, `parameters`, `round_every_s`), to be compared with the best. Other `settings` are
    fields of `Scenario` that all candidates share. Results, plan and report are written into `out`, a folder
    or an address in a store; the same question asked again continues there. Groups of more than 200 members are
    simulated on Spark (`spark`, `master`, `conf`).
    """
    if not isinstance(protocols, list | tuple):
        raise LocalProtocolError(f"protocols = {protocols!r}: give a list of names")
    question = GroupQuestion(
        members=members,
        network=network,
        senders=senders,
        loss=loss,
        rate=parse_rate(rate) if isinstance(rate, str) else rate,
        payload_bytes=payload_bytes,
        budget_bytes_per_s=parse_budget(budget) if isinstance(budget, str) else budget,
        within_ms=parse_time_ms(within) if isinstance(within, str) else within,
        optimise=optimise,
        protocols=tuple(protocols),
        placement=placement,
        seed=seed,
        settings=tuple(sorted(settings.items())),
    )
    return answer(question, current=current, out=path_of(out), master=master, conf=conf, spark=spark, progress=progress)


def answer(
    question: GroupQuestion,
    *,
    out: AnyPath,
    current: dict[str, Any] | None = None,
    master: str | None = None,
    conf: dict[str, str] | None = None,
    spark: bool | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Race the candidates of a question and write the evidence."""
    choice = candidates_of(question)
    if not choice.configurations:
        reasons = "; ".join(choice.impossible.values())
        raise LocalProtocolError(f"no protocol can serve this group: {reasons}")
    store = Store(out)
    store.make()
    wanted = question.members > LOCAL_MEMBERS_MAX if spark is None else spark
    with store.alone(), spark_session(master, conf, wanted=wanted) as session:
        store.set_aside_unreadable()
        store.clear_unfinished()
        results = Results(question)
        workload = Workload(question)
        trials = Trials(store, workload, progress or (lambda _done, _next: None), spark=session)
        advice = recommend(choice, results, lambda wanted: trials.measure(results, wanted))
        if current is not None:
            running = _running(current, choice.configurations)
            advice = replace(advice, current=_measured(running, advice.ranking[0].candidate, results, trials))
        write_evidence(store.root, advice, workload)
    return advice


def recommend(choice: Choice, results: Results, measure: Measure) -> Advice:
    """Race the candidates, without storing anything; `measure` simulates trials and adds them to the results."""
    finish = race(choice.configurations, results, measure)
    return _advice(results.question, results, finish, len(choice.configurations), choice.impossible)


def _running(current: dict[str, Any], configurations: list[Configuration]) -> Candidate:
    """The configuration that a group runs now, as a candidate."""
    parameters = tuple(current["parameters"].items())
    same = [one for one in configurations if one.protocol == current["protocol"] and not one.placement]
    known = next((one for one in same if one.parameters == parameters), None)
    configuration = known or Configuration(len(configurations), current["protocol"], parameters)
    return Candidate(configuration, current["round_every_s"] * 1e3)


def _measured(candidate: Candidate, first: Candidate, results: Results, trials: Trials) -> Row:
    """Measure a candidate with the seeds of the first one."""
    wanted = [Trial(candidate, seed) for seed in results.seeds(first)]
    trials.measure(results, [trial for trial in wanted if not results.is_known(trial)])
    return _row(results, candidate, None)


def _advice(
    question: GroupQuestion, results: Results, finish: Finish, candidates: int, impossible: dict[str, str]
) -> Advice:
    chances = dict(zip(finish.finalists, finish.selection.shares, strict=True))
    others = [one for one in _best_of_each_protocol(results) if one not in chances]
    raced = {one.configuration.protocol for one in finish.finalists if results.is_feasible(one)}
    # What was dropped early has few seeds: a lucky one must not come before the finalists.
    dropped = results.ranked(one for one in others if one.configuration.protocol not in raced)
    rows = [_row(results, one, chances.get(one)) for one in [*finish.finalists, *dropped]]
    return Advice(
        question=question,
        verdict=_verdict(results, finish),
        selection=finish.selection,
        ranking=rows,
        front=[_row(results, one, chances.get(one)) for one in pareto_front(results)],
        current=None,
        impossible=impossible,
        candidates=candidates,
        simulations=results.runs,
        cpu_s=results.cpu_s,
    )


def _verdict(results: Results, finish: Finish) -> Verdict:
    if not results.keeps_limits(finish.finalists[0]):
        return "nothing fits"
    best = finish.selection.best
    return "clear" if not math.isnan(best) and best >= CLEAR else "too close to call"


def _best_of_each_protocol(results: Results) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for candidate in results.ranked(results.candidates):
        found.setdefault(candidate.configuration.protocol, candidate)
    return list(found.values())


def _row(results: Results, candidate: Candidate, probability: float | None) -> Row:
    seeds = results.seeds(candidate)

    def estimate(field: str) -> Estimate:
        return mean_estimate(np.array(results.values(candidate, field, seeds)))

    return Row(
        candidate=candidate,
        seeds=len(seeds),
        time_ms=estimate("time_ms"),
        bytes_per_s=estimate("bytes_per_s"),
        buffer=estimate("buffer"),
        messages_per_s=estimate("messages_per_s"),
        fits=results.keeps_limits(candidate),
        probability=probability,
    )

"""The race of the advisor, against candidates whose true values are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cubecast.lab.advisor.advice import recommend
from cubecast.lab.advisor.candidates import DELTAS_MS, Candidate, Configuration, candidates_of
from cubecast.lab.advisor.pauses import PauseModel, two_digits
from cubecast.lab.advisor.question import GroupQuestion
from cubecast.lab.advisor.race import SEEDS, Finish, race
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.selection import decide, pareto_front, select
from cubecast.lab.advisor.workload import Observation

Truth = Callable[[Candidate], tuple[float, float]]
"""The time and the bytes per second of a candidate, without noise."""


def configurations(count: int) -> list[Configuration]:
    return [Configuration(number, "coord", (("number", number),)) for number in range(count)]


def rounds(candidate: Candidate) -> tuple[float, float]:
    """Rounds of 10, 11, 12, … ms: a longer pause is slower and cheaper."""
    round_ms = 10.0 + candidate.configuration.number
    return round_ms + candidate.delta_ms / 2, 1e6 / (round_ms + candidate.delta_ms)


def noisy(trial: Trial, truth: Truth, noise: float) -> Observation:
    """A seed makes a network slow for all candidates alike, and each a little more so."""
    time_ms, bytes_per_s = truth(trial.candidate)
    shared = np.random.default_rng(trial.seed).normal()
    own = np.random.default_rng([trial.seed, trial.candidate.configuration.number, int(trial.candidate.delta_ms)])
    slow = math.exp(0.3 * shared + noise * own.normal())
    return Observation(time_ms * slow, bytes_per_s, time_ms * slow / 10, 1.0)


def run(
    count: int = 30, truth: Truth = rounds, noise: float = 0.02, **question: Any
) -> tuple[Finish, Results, list[Trial]]:
    """A race of so many configurations."""
    results = Results(GroupQuestion(members=8, network="star", **question))
    asked: list[Trial] = []

    def measure(trials: list[Trial]) -> None:
        asked.extend(trials)
        for trial in trials:
            results.add(trial, noisy(trial, truth, noise))

    return race(configurations(count), results, measure), results, asked


def best_time(count: int, budget: float) -> float:
    """The best value over all configurations and pauses."""
    return min(rounds(Candidate(one, max(0.0, 1e6 / budget - 10 - one.number)))[0] for one in configurations(count))


@pytest.mark.parametrize("budget", [90_000.0, 40_000.0, 7_000.0, 3_000.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_choice_keeps_the_budget_and_is_close_to_the_best_of_all_pauses(budget: float, seed: int) -> None:
    finish, _, _ = run(budget_bytes_per_s=budget, seed=seed)
    time_ms, bytes_per_s = rounds(finish.finalists[0])
    assert bytes_per_s <= budget
    assert time_ms <= 1.06 * best_time(30, budget)


def test_it_costs_a_fraction_of_an_exhaustive_search() -> None:
    _, results, asked = run(budget_bytes_per_s=20_000.0)
    assert len(asked) == results.runs
    assert results.runs < 0.1 * 30 * len(DELTAS_MS) * SEEDS[-1]


def test_simulations_that_did_not_end_cost_time_too() -> None:
    results = Results(GroupQuestion(members=8, network="star"))
    results.add(Trial(Candidate(configurations(1)[0], 0.0), 0), None, cpu_s=2.0)
    assert results.cpu_s == 2.0


def test_no_trial_is_asked_for_twice_and_the_order_is_always_the_same() -> None:
    _, _, asked = run(budget_bytes_per_s=20_000.0)
    assert len(set(asked)) == len(asked)
    assert run(budget_bytes_per_s=20_000.0)[2] == asked


def test_without_limits_the_shortest_pause_wins() -> None:
    finish, _, _ = run()
    assert finish.finalists[0] == Candidate(configurations(1)[0], 0.0)


def test_the_fewest_bytes_are_those_of_the_longest_pause_that_is_fast_enough() -> None:
    finish, _, _ = run(noise=0.0, optimise="bytes", within_ms=40.0)
    time_ms, bytes_per_s = rounds(finish.finalists[0])
    shared = [math.exp(0.3 * np.random.default_rng(seed).normal()) for seed in range(finish.seeds)]
    limit_ms = 40.0 / float(np.mean(shared))
    assert time_ms <= limit_ms
    assert bytes_per_s <= 1.3 * min(1e6 / (2 * limit_ms - 10 - one.number) for one in configurations(30))


def test_a_budget_that_nobody_keeps_ends_with_the_nearest() -> None:
    finish, results, _ = run(budget_bytes_per_s=10.0)
    assert not results.is_feasible(finish.finalists[0])
    assert finish.selection.best == 0.0
    assert finish.finalists[0].delta_ms == DELTAS_MS[-1]


def test_two_names_of_one_behaviour_do_not_compete() -> None:
    def twins(candidate: Candidate) -> tuple[float, float]:
        return 20.0 + candidate.delta_ms / 2, 1e6 / (20.0 + candidate.delta_ms)

    results = Results(GroupQuestion(members=8, network="star"))

    def measure(trials: list[Trial]) -> None:
        for trial in trials:
            results.add(trial, Observation(*twins(trial.candidate), 1.0, 1.0))

    finish = race(configurations(2), results, measure)
    assert [one.configuration.number for one in finish.finalists] == [0]
    assert finish.selection.best == 1.0


def test_equal_candidates_are_too_close_to_call() -> None:
    finish, _, _ = run(count=2, truth=lambda one: (20.0 + one.delta_ms / 2, 1e6 / (20.0 + one.delta_ms)), noise=0.05)
    assert finish.selection.best < 0.9
    assert finish.selection.near > 0.9
    assert finish.seeds < SEEDS[-1]  # which is the better one does not matter


def test_a_candidate_whose_runs_do_not_end_never_wins() -> None:
    results = Results(GroupQuestion(members=8, network="star"))

    def measure(trials: list[Trial]) -> None:
        for trial in trials:
            failed = trial.candidate.configuration.number == 0
            results.add(trial, None if failed else noisy(trial, rounds, 0.02))

    finish = race(configurations(4), results, measure)
    assert finish.finalists[0].configuration.number == 1


def test_where_no_run_ends_nothing_fits() -> None:
    results = Results(GroupQuestion(members=8, network="star"))

    def measure(trials: list[Trial]) -> None:
        for trial in trials:
            results.add(trial, None)

    finish = race(configurations(4), results, measure)
    assert not any(results.is_feasible(one) for one in finish.finalists)
    assert finish.selection.best == 0.0


def results_of(*rows: list[float], **question: Any) -> tuple[Results, list[Candidate]]:
    """Candidates with these times, one per seed."""
    results = Results(GroupQuestion(members=8, network="star", **question))
    candidates = [Candidate(one, 1.0) for one in configurations(len(rows))]
    for candidate, row in zip(candidates, rows, strict=True):
        for seed, time_ms in enumerate(row):
            results.add(Trial(candidate, seed), Observation(time_ms, 100.0 * time_ms, 1.0, 1.0))
    return results, candidates


def test_a_small_difference_with_every_seed_is_sure_although_the_seeds_differ_widely() -> None:
    slow = [10.0, 50.0, 20.0, 90.0, 40.0, 70.0]
    results, candidates = results_of([one - 0.5 for one in slow], slow)
    assert select(results, candidates).best > 0.99
    mixed, candidates = results_of([one - 0.5 for one in slow], slow[::-1])
    assert select(mixed, candidates).best < 0.7


def test_the_probability_of_a_normal_difference_is_that_of_student() -> None:
    differences = np.array([1.0, -0.5, 0.8, 0.3, -0.2, 0.9])
    results, candidates = results_of([10.0] * 6, (10.0 + differences).tolist())
    from scipy import stats

    t = differences.mean() / (differences.std(ddof=1) / math.sqrt(6))
    assert select(results, candidates).best == pytest.approx(stats.t.cdf(t, 5), abs=0.02)


def test_a_limit_that_may_be_missed_lowers_the_probability() -> None:
    times = [9.0, 11.0, 10.0, 9.5, 10.3, 10.0]
    safe, candidates = results_of(times, [20.0] * 6, budget_bytes_per_s=5000.0)
    assert select(safe, candidates).best > 0.99
    near, candidates = results_of(times, [20.0] * 6, budget_bytes_per_s=1040.0)
    assert 0.8 < select(near, candidates).best < 0.97


def test_a_mean_just_below_a_limit_is_not_yet_within_it() -> None:
    times = [9.0, 11.0, 10.0, 9.5, 10.3, 10.0]  # a mean of 9.97 with an error of 0.28
    near, candidates = results_of(times, budget_bytes_per_s=1000.0)
    assert near.means(candidates[0]).bytes_per_s < 1000
    assert not near.is_feasible(candidates[0])
    below, candidates = results_of(times, budget_bytes_per_s=1040.0)
    assert below.is_feasible(candidates[0])
    few, candidates = results_of([*times[:2], 9.5], budget_bytes_per_s=1000.0)
    assert few.is_feasible(candidates[0])  # the spread is not known yet


def test_the_first_is_the_one_that_probably_keeps_the_limits_and_is_near_the_best() -> None:
    times = [9.0, 11.0, 10.0, 9.5, 10.3, 10.0]  # a mean of 9.97, which is not safely within 10.2
    candidates = [Candidate(one, 1.0) for one in configurations(2)]
    limited = Results(GroupQuestion(members=8, network="star", budget_bytes_per_s=1020.0))
    for candidate, slow in zip(candidates, (1.0, 2.0), strict=True):
        for seed, time_ms in enumerate(times):
            limited.add(Trial(candidate, seed), Observation(slow * time_ms, 100.0 * time_ms / slow, 1.0, 1.0))
    ranked = limited.ranked(candidates)
    assert not limited.is_feasible(candidates[0])
    assert ranked[0] == candidates[1]
    first, selection = decide(limited, ranked)
    assert first[0] == candidates[0]
    assert selection.best > 0.6
    assert selection.shares[0] == selection.best


def test_the_pareto_front_is_what_no_other_beats_in_time_and_bytes() -> None:
    results = Results(GroupQuestion(members=8, network="star"))
    points = [(10.0, 100.0), (20.0, 50.0), (20.0, 60.0), (9.9, 150.0), (40.0, 10.0), (50.0, 20.0)]
    for one, point in zip(configurations(len(points)), points, strict=True):
        results.add(Trial(Candidate(one, 1.0), 0), Observation(*point, 1.0, 1.0))
    # The fourth is faster than the first by 1 % only.
    assert [one.configuration.number for one in pareto_front(results)] == [4, 1, 0]


# The prediction of the best pause.


def measured(*points: tuple[float, float, float], round_ms: float, **question: Any) -> PauseModel:
    """One configuration with these pauses, times and bytes per second."""
    results = Results(GroupQuestion(members=8, network="star", **question))
    [configuration] = configurations(1)
    for delta_ms, time_ms, bytes_per_s in points:
        trial = Trial(Candidate(configuration, delta_ms), 0)
        results.add(trial, Observation(time_ms, bytes_per_s, time_ms / 10, 1.0, round_ms))
    return PauseModel(results, tuple(results.candidates))


def test_the_pause_that_keeps_a_budget_is_predicted_from_one_round() -> None:
    pauses = measured((10.0, 30.0, 1e6 / 30), round_ms=20.0, budget_bytes_per_s=1e6 / 97)
    assert pauses.best_ms() == 80.0  # a period of 100 ms
    assert pauses.bound() == pytest.approx(30.0)  # a longer pause is not faster
    assert pauses.estimate() == pytest.approx(100.0)


def test_two_pauses_give_the_line_on_which_a_limit_of_time_lies() -> None:
    pauses = measured(
        *((10.0, 60.0, 1e6 / 30), (20.0, 66.0, 1e6 / 40)), round_ms=20.0, optimise="bytes", within_ms=90.0 / 0.97
    )
    assert pauses.best_ms() == 60.0
    assert pauses.estimate() == pytest.approx(1e6 / 80)


def test_bytes_are_bounded_by_half_of_each_pause_that_the_time_must_have() -> None:
    pauses = measured((10.0, 60.0, 3000.0), round_ms=20.0, optimise="bytes", within_ms=90.0)
    assert pauses.bound() == pytest.approx(1000.0)  # at most 60 ms more


def test_a_budget_that_the_longest_pause_misses_has_no_estimate() -> None:
    pauses = measured((DELTAS_MS[-1], 600.0, 5000.0), round_ms=20.0, budget_bytes_per_s=1000.0)
    assert pauses.best_ms() == DELTAS_MS[-1]
    assert pauses.estimate() == math.inf


@pytest.mark.parametrize(("value", "up", "rounded"), [(123.4, True, 130.0), (123.4, False, 120.0), (20.0, True, 20.0)])
def test_pauses_have_two_digits_on_the_side_of_the_limit(value: float, up: bool, rounded: float) -> None:
    assert two_digits(value, up=up) == rounded


def test_rounds_that_congest_the_network_are_not_the_best() -> None:
    """A time that falls with a longer pause, as when too short rounds fill the queues."""

    def congested(one: Candidate) -> tuple[float, float]:
        return 20.0 + one.configuration.number + one.delta_ms / 2 + 200.0 / (1 + one.delta_ms**2), 1000.0

    finish, _, _ = run(truth=congested, noise=0.0)
    assert finish.finalists[0].delta_ms == 10.0


@pytest.mark.parametrize("budget", [None, 1e5])
def test_a_configuration_that_ends_only_with_longer_pauses_is_not_lost(budget: float | None) -> None:
    """Without pauses, some networks are congested, though not that of the first seed."""
    results = Results(GroupQuestion(members=8, network="star", budget_bytes_per_s=budget))

    def measure(trials: list[Trial]) -> None:
        for trial in trials:
            congested = trial.candidate.delta_ms < 5 and (trial.seed % 3 == 1 or trial.candidate.configuration.number)
            results.add(trial, None if congested else noisy(trial, rounds, 0.0))

    finish = race(configurations(10), results, measure)
    assert results.is_feasible(finish.finalists[0])
    assert finish.finalists[0].configuration.number == 0
    assert 5.0 <= finish.finalists[0].delta_ms <= 10.0


def test_a_contender_that_keeps_a_limit_only_with_one_seed_continues_with_another_pause() -> None:
    """With the first seed all are faster than on average, and would exceed the time with the pauses chosen there."""

    def truth(one: Candidate) -> tuple[float, float]:
        return 30.0 + one.configuration.number + one.delta_ms, 1e6 / (10.0 + one.delta_ms)

    finish, results, _ = run(truth=truth, noise=0.0, optimise="bytes", within_ms=100.0)
    assert results.is_feasible(finish.finalists[0])
    assert results.mean(finish.finalists[0], "time_ms") >= 85.0


def test_a_candidate_that_was_dropped_early_is_never_ranked_before_the_finalists() -> None:
    """With the first seed the second protocol is ahead of what the finalists have on average."""
    question = GroupQuestion(members=8, network="random:degree=3", protocols=("dissemination", "coord"))
    results = Results(question)

    def measure(trials: list[Trial]) -> None:
        for trial in trials:
            own = trial.candidate.configuration
            slow = 1.0 if trial.seed == 0 else 5.0
            time_ms = slow * (10.0 + own.number if own.protocol == "dissemination" else 30.0) + trial.candidate.delta_ms
            results.add(trial, Observation(time_ms, 100.0, 1.0, 1.0, 5.0))

    advice = recommend(candidates_of(question), results, measure)
    assert advice.ranking[0].candidate.configuration.protocol == "dissemination"
    assert advice.ranking[-1].candidate.configuration.protocol == "coord"
    assert advice.ranking[-1].time_ms.value < advice.ranking[0].time_ms.value

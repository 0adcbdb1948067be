"""Judge the advisor on random scenarios: is its choice as good as the best of an exhaustive search?

    python bench/advise.py --first 20000 --scenarios 200 --out advise-scores.jsonl
                                                                 resumable; prints the score at the end
    python bench/advise.py --first 1000000 --scenarios 20 --out tuning.jsonl
                                                                 other scenarios, for tuning the advisor

A scenario is drawn from its number: `--members-min` to `--members-max` members, a network, loss, load, what to minimise
and a limit. The exhaustive search simulates every configuration with every Δ of the grid and `--seeds` seeds. The judge
finds the best of this search with fewer simulations: every candidate is simulated, but only those that may still be the
best (`STEPS`) with all seeds. `--full` does without this saving. The best 8 are measured with 24 seeds, because the
first of many noisy means looks better than it is. The best of these and the advisor's choice are then compared with
`--fresh` new seeds. The advisor has other seeds than the search.

A choice is good if its mean is at most 5 % above that of the best and it keeps the limits within 5 %. If nothing in the
grid keeps the limits, it is good if the advisor says so, or if its choice keeps them.

Costs are CPU seconds of simulations. The cost of the exhaustive search is the mean cost of each candidate's simulations
times `--seeds`, summed over the candidates: that of the search without the judge's saving. The 24 seeds of the best and
the fresh seeds are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from cubecast.lab.advisor.advice import Advice, recommend
from cubecast.lab.advisor.candidates import DELTAS_MS, Candidate, Choice, candidates_of
from cubecast.lab.advisor.question import GroupQuestion, Optimise
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.workload import EXPERIMENT, Workload, read_observation
from cubecast.lab.batch import run_row
from cubecast.lab.runs import Run
from cubecast.lab.stats import proportion
from cubecast.lab.task_file import pending_row

EXHAUSTIVE_FROM, FRESH_FROM = 1_000, 100_000
STEPS = ((1, 1.7, 1.4), (3, 1.25, 1.12))
"""After so many seeds, a candidate may be the best if its value is at most this factor times that of the best so far,
and if it exceeds no limit by more than that factor."""
FINALISTS, FINAL_SEEDS = 8, 24
TOLERANCE = 0.05


def draw_question(number: int, members_min: int, members_max: int) -> GroupQuestion:
    """The scenario of that number."""
    draw = random.Random(number)
    members = round(math.exp(draw.uniform(math.log(members_min), math.log(members_max))))
    networks = [
        f"random:degree={draw.choice([3, 4, 5, 8])}",
        f"random:degree={draw.choice([3, 5])},delay={draw.choice(['1-5ms', '5-20ms'])}",
        f"random:degree=5,bandwidth={draw.choice(['2e6', '10e6'])}",
        f"waxman:degree={draw.choice([4, 6])}",
        "transit-stub",
        "regions",
    ]
    optimise: Optimise = draw.choice(["time-to-stable", "time-to-stable", "bytes", "buffer"])
    budget = None if draw.random() < 0.2 else math.exp(draw.uniform(math.log(1_000), math.log(50_000)))
    return GroupQuestion(
        members=members,
        network=draw.choice(networks),
        senders=draw.randint(1, min(members, 20)),
        loss=draw.choice([0.0, 0.0, 0.005, 0.02, 0.05]),
        rate=float(draw.choice([10, 20, 50, 100])),
        payload_bytes=draw.choice([50, 200, 1000]),
        optimise=optimise,
        budget_bytes_per_s=budget if optimise != "bytes" else None,
        within_ms=math.exp(draw.uniform(math.log(50), math.log(2_000))) if optimise == "bytes" else None,
        seed=0,
    )


class Search:
    """Simulations of one question, without a store, and their results."""

    def __init__(self, question: GroupQuestion, workload: Workload) -> None:
        self.results = Results(question)
        self.cpu_s: dict[Candidate, list[float]] = {}
        self._workload = workload

    def measure(self, trials: Iterable[Trial]) -> None:
        """Simulate these trials."""
        for trial in trials:
            common = self._workload.settings(trial.candidate)
            run = Run(study="", experiment=EXPERIMENT, common=common, seed=trial.seed, point={})
            row = run_row(pending_row(run))
            members, delta_ms = self.results.question.members, trial.candidate.delta_ms
            found = read_observation(dict(row["metrics"]), members=members, delta_ms=delta_ms)
            self.results.add(trial, found, cpu_s=row["cpu_seconds"])
            self.cpu_s.setdefault(trial.candidate, []).append(row["cpu_seconds"])

    def fill(self, candidates: Iterable[Candidate], seeds: range) -> None:
        """Simulate these candidates with those of the seeds that they lack; seed by seed, on one network each."""
        wanted = [Trial(one, seed) for seed in seeds for one in candidates]
        self.measure(trial for trial in wanted if not self.results.is_known(trial))


def load_code(question: GroupQuestion, workload: Workload, choice: Choice) -> None:
    """Run each protocol once, so that neither the advisor nor the search pays for compiling and loading its code."""
    first = {one.protocol: one for one in reversed(choice.configurations)}
    Search(question, workload).measure(Trial(Candidate(one, 0.0), 0) for one in first.values())


def find_best(search: Search, grid: list[Candidate], seeds: int, *, full: bool) -> Candidate:
    """The best candidate of the grid."""
    results = search.results
    left = grid
    for count, factor, excess in () if full else STEPS:
        search.fill(left, range(EXHAUSTIVE_FROM, EXHAUSTIVE_FROM + count))
        left = plausible(results, left, factor, excess)
    search.fill(left, range(EXHAUSTIVE_FROM, EXHAUSTIVE_FROM + seeds))
    finalists = results.ranked(left)[:FINALISTS]
    search.fill(finalists, range(EXHAUSTIVE_FROM, EXHAUSTIVE_FROM + FINAL_SEEDS))
    return results.ranked(finalists)[0]


def plausible(results: Results, candidates: list[Candidate], factor: float, excess: float) -> list[Candidate]:
    """The candidates that may be the best, judged by few seeds."""
    least = min((results.value(one) for one in candidates if results.is_feasible(one)), default=math.inf)
    near = [
        one
        for one in candidates
        if results.ended(one)
        and results.value(one) <= factor * least
        and all(results.excess(one, field) <= excess for field in results.limits)
    ]
    return near if len(near) >= FINALISTS else results.ranked(candidates)[: max(FINALISTS, len(near))]


def judge(number: int, options: argparse.Namespace) -> dict[str, Any]:
    """One scenario."""
    question = draw_question(number, options.members_min, options.members_max)
    workload = Workload(question)
    choice = candidates_of(question)
    load_code(question, workload, choice)
    own = Search(question, workload)
    advice = recommend(choice, own.results, own.measure)
    grid = [Candidate(one, delta_ms) for one in choice.configurations for delta_ms in DELTAS_MS]
    exhaustive = Search(question, workload)
    best = find_best(exhaustive, grid, options.seeds, full=options.full)
    again = Search(question, workload)
    again.fill(dict.fromkeys([advice.ranking[0].candidate, best]), range(FRESH_FROM, FRESH_FROM + options.fresh))
    costs_s = [options.seeds * fmean(exhaustive.cpu_s[one]) for one in grid]
    cost = {
        "cost_share": advice.cpu_s / sum(costs_s),
        "runs_share": advice.simulations / (options.seeds * len(grid)),
        "exhaustive_s": sum(costs_s),
        "exhaustive_runs": options.seeds * len(grid),
        "advice_s": advice.cpu_s,
        "advice_runs": advice.simulations,
    }
    return {
        "number": number,
        **_described(question),
        **_compared(advice, best, exhaustive.results, again.results),
        **cost,
    }


def _described(question: GroupQuestion) -> dict[str, Any]:
    return {
        "question": {name: value for name, value in vars(question).items() if name not in ("protocols", "settings")}
    }


def _compared(advice: Advice, best: Candidate, exhaustive: Results, again: Results) -> dict[str, Any]:
    """Compare the advisor's choice with the best, by fresh seeds."""
    choice = advice.ranking[0].candidate
    fits = exhaustive.is_feasible(best)
    found = advice.best is not None
    ratio = again.value(choice) / again.value(best)
    excess = max((getattr(again.means(choice), field) / limit for field, limit in again.limits.items()), default=0.0)
    keeps = excess <= 1 + TOLERANCE
    return {
        "good": (keeps and (not fits or ratio <= 1 + TOLERANCE)) if found else not fits,
        "verdict": advice.verdict,
        "probability": advice.selection.best,
        "near": advice.selection.near,
        "choice": choice.label,
        "best": best.label,
        "fits": fits,
        "ratio": ratio,
        "excess": excess,
    }


def score(found: list[dict[str, Any]]) -> None:
    """Print how many choices are good, at what cost, and those that are not."""
    good = sum(one["good"] for one in found)
    share = proportion(good, len(found))
    print(f"{good} of {len(found)} choices are good: {share.value:.1%} (95 %: {share.low:.1%} to {share.high:.1%})")
    shares = sorted(one["cost_share"] for one in found)
    whole = sum(one["advice_s"] for one in found) / sum(one["exhaustive_s"] for one in found)
    print(f"CPU time: {whole:.1%} of the exhaustive search's in all; mean {fmean(shares):.1%}, ", end="")
    print(f"at most {shares[-1]:.1%}, {sum(one <= 0.1 for one in shares)} of {len(shares)} scenarios within 10 %")
    runs = [one["runs_share"] for one in found]
    print(f"simulations: {fmean(runs):.1%} of the exhaustive ones on average, at most {max(runs):.1%}")
    better = sum(one["ratio"] < 1 - TOLERANCE for one in found if one["fits"])
    print(f"{better} choices are more than 5 % better than the best of the grid (the advisor refines Δ)")
    for verdict in ("clear", "too close to call", "nothing fits"):
        own = [one["good"] for one in found if one["verdict"] == verdict]
        print(f"{verdict}: {len(own)}, {sum(own)} of them good")
    for one in found:
        if not one["good"]:
            print(f"  {one['number']}: {one['choice']} instead of {one['best']}: ratio {one['ratio']:.3f}", end="")
            print(f", excess {one['excess']:.3f}, {one['verdict']}")


def main() -> None:
    """Judge the scenarios that are not in the file yet, and print the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--members-min", type=int, default=8, help="size of the smallest group")
    parser.add_argument("--members-max", type=int, default=24, help="size of the largest group")
    parser.add_argument("--seeds", type=int, default=8, help="of the exhaustive search")
    parser.add_argument("--fresh", type=int, default=32, help="seeds with which the choice and the best are compared")
    parser.add_argument("--full", action="store_true", help="simulate every candidate with every seed")
    parser.add_argument("--out", type=Path, default=Path("advise-scores.jsonl"), help="existing results are kept")
    options = parser.parse_args()
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    found = {one["number"]: one for one in map(json.loads, lines)}
    for number in range(options.first, options.first + options.scenarios):
        if number in found:
            continue
        one = found[number] = judge(number, options)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
        print(
            f"{number}: {'good' if one['good'] else 'BAD'} ratio {one['ratio']:.3f} excess {one['excess']:.2f} "
            f"cost {one['cost_share']:.1%} of {one['exhaustive_s']:.0f} s, {one['choice']} | {one['best']}",
            flush=True,
        )
    score([one for one in found.values() if options.first <= one["number"] < options.first + options.scenarios])


if __name__ == "__main__":
    main()

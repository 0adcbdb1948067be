"""Judge the advisor on random scenarios: is its choice as good as the best of an exhaustive search?

    python bench/advise.py --scenarios 200 --out advise-scores.jsonl       resumable; prints the score at the end
    python bench/advise.py --first 1000000 --scenarios 20 --out tuning.jsonl
                                                                           other scenarios, for tuning the advisor

A scenario is drawn from its number: 16 to `--members-max` members, a network, loss, load, what to minimise and a limit.
The exhaustive search simulates every configuration with every Δ of the grid and `--seeds` seeds. Its best configuration
and the advisor's choice are then measured again with `--fresh` new seeds, because the least of 600 noisy means looks
better than it is. A choice counts as good if its mean is at most 5 % above that of the best and it keeps the limits
within 5 %; if nothing keeps the limits, it counts as good if the advisor says so.

Costs are the CPU seconds of the simulations (and, in `runs_share`, their number).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from cubecast.lab.advisor.advice import answer
from cubecast.lab.advisor.candidates import DELTAS_MS, Candidate, candidates_of
from cubecast.lab.advisor.question import GroupQuestion, Optimise
from cubecast.lab.advisor.results import Results, Trial
from cubecast.lab.advisor.workload import EXPERIMENT, Workload, read_observation
from cubecast.lab.batch import run_row
from cubecast.lab.runs import Run
from cubecast.lab.stats import proportion
from cubecast.lab.task_file import pending_row

EXHAUSTIVE_FROM, FRESH_FROM = 1_000, 100_000
TOLERANCE = 0.05


def draw_question(number: int, members_max: int) -> GroupQuestion:
    """The scenario of that number."""
    draw = random.Random(number)
    members = round(math.exp(draw.uniform(math.log(16), math.log(members_max))))
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


def simulate(results: Results, workload: Workload, trials: Iterable[Trial]) -> None:
    """Simulate these trials and add their results, without a store."""
    for trial in trials:
        run = Run(study="", experiment=EXPERIMENT, common=workload.settings(trial.candidate), seed=trial.seed, point={})
        row = run_row(pending_row(run))
        found = read_observation(
            dict(row["metrics"]),
            members=results.question.members,
            delta_ms=trial.candidate.delta_ms,
        )
        results.add(trial, found, cpu_s=row["cpu_seconds"])


def load_code(question: GroupQuestion) -> None:
    """Run each protocol once, so that neither the advisor nor the search pays for compiling and loading its code."""
    first = {one.protocol: one for one in reversed(candidates_of(question).configurations)}
    simulate(Results(question), Workload(question), [Trial(Candidate(one, 0.0), 0) for one in first.values()])


def judge(number: int, members_max: int, seeds: int, fresh: int) -> dict[str, Any]:
    """One scenario."""
    question = draw_question(number, members_max)
    load_code(question)
    with tempfile.TemporaryDirectory() as folder:
        advice = answer(question, out=Path(folder), spark=False)
    workload = Workload(question)
    grid = [
        Candidate(configuration, delta_ms)
        for configuration in candidates_of(question).configurations
        for delta_ms in DELTAS_MS
    ]
    exhaustive = Results(question)
    simulate(
        exhaustive,
        workload,
        (Trial(one, seed) for seed in range(EXHAUSTIVE_FROM, EXHAUSTIVE_FROM + seeds) for one in grid),
    )
    best = exhaustive.ranked(grid)[0]
    fits = exhaustive.is_feasible(best)
    choice = advice.ranking[0].candidate
    again = Results(question)
    simulate(
        again,
        workload,
        (Trial(one, seed) for seed in range(FRESH_FROM, FRESH_FROM + fresh) for one in {choice, best}),
    )
    ratio = again.value(choice) / again.value(best)
    excess = max((getattr(again.means(choice), field) / limit for field, limit in again.limits.items()), default=0.0)
    found = advice.best is not None
    good = (ratio <= 1 + TOLERANCE and excess <= 1 + TOLERANCE) if found and fits else found == fits
    return {
        "number": number,
        "question": {name: value for name, value in vars(question).items() if name not in ("protocols", "settings")},
        "good": good,
        "verdict": advice.verdict,
        "probability": advice.selection.best,
        "choice": choice.label,
        "best": best.label,
        "fits": fits,
        "ratio": ratio,
        "excess": excess,
        "cost_share": advice.cpu_s / exhaustive.cpu_s,
        "runs_share": advice.simulations / exhaustive.runs,
        "exhaustive_s": exhaustive.cpu_s,
        "advice_s": advice.cpu_s,
    }


def score(found: list[dict[str, Any]]) -> None:
    good = sum(one["good"] for one in found)
    share = proportion(good, len(found))
    cost = sum(one["advice_s"] for one in found) / sum(one["exhaustive_s"] for one in found)
    print(f"{good} of {len(found)} choices are good: {share.value:.1%} (95 %: {share.low:.1%} to {share.high:.1%})")
    print(f"cost: {cost:.1%} of the exhaustive CPU time; at most {max(one['cost_share'] for one in found):.1%}")
    print(f"runs: {fmean(one['runs_share'] for one in found):.1%} of the exhaustive ones on average")
    sure = [one for one in found if one["verdict"] == "clear"]
    print(f"{len(sure)} clear, {sum(one['verdict'] == 'too close to call' for one in found)} too close to call")
    for one in found:
        if not one["good"]:
            print(f"  {one['number']}: {one['choice']} instead of {one['best']}: ratio {one['ratio']:.3f}", end="")
            print(f", excess {one['excess']:.3f}, {one['verdict']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--members-max", type=int, default=128, help="size of the largest group; the smallest has 16")
    parser.add_argument("--seeds", type=int, default=8, help="of the exhaustive search")
    parser.add_argument("--fresh", type=int, default=40, help="seeds with which the choice and the best are compared")
    parser.add_argument("--out", type=Path, default=Path("advise-scores.jsonl"), help="existing results are kept")
    options = parser.parse_args()
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    found = {one["number"]: one for one in map(json.loads, lines)}
    for number in range(options.first, options.first + options.scenarios):
        if number in found:
            continue
        found[number] = judge(number, options.members_max, options.seeds, options.fresh)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found[number]) + "\n")
        one = found[number]
        print(
            f"{number}: {'good' if one['good'] else 'BAD'} ratio {one['ratio']:.3f} excess {one['excess']:.2f} "
            f"cost {one['cost_share']:.1%} of {one['exhaustive_s']:.0f} s, {one['choice']} | {one['best']}",
            flush=True,
        )
    score([one for one in found.values() if options.first <= one["number"] < options.first + options.scenarios])


if __name__ == "__main__":
    main()

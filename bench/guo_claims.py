"""Test every claim of guo about the WAN tree (chapter 5) with the stated parameters.

`python bench/guo_claims.py` runs the protocols on dense and sparse trees at 30 kb/s, 50 … 500 members, 1 and 50
senders, and prints one line per claim: the claim, our value, and whether it is confirmed; with `--tables` also the
measurements. Gossip has the step intervals of Table 5.1, queues of 64 messages and two lost messages per step
(simulation II); the others lose nothing. `--seeds` is the number of repetitions of random runs (20 in the paper).
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from statistics import mean, stdev
from typing import Any

import numpy as np

from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario

DENSE, SPARSE = "wan-tree", "wan-tree:nodes=1000"
TABLE_5_1 = {
    1: {50: 0.1, 100: 0.2, 200: 0.5, 300: 0.6, 400: 0.9, 500: 1.0},
    50: {50: 0.7, 100: 0.7, 200: 3.0, 300: 3.0, 400: 4.0, 500: 5.0},
}
"""Near-optimal step intervals in s, by senders and members."""
BASIC, STRUCTURED = ("train", "gossip", "full_dist", "coord"), ("s_coord", "s_train", "s_gossip")
UNTIL_MS = 6e6


@cache
def _network(spec: str, members: int, seed: int) -> Network:
    return build_network(spec, members=members, seed=seed)


@cache
def _run(protocol: str, members: int, senders: int, network: str, seed: int, **settings: Any) -> Result:
    scenario = Scenario.of(
        protocol,
        members=members,
        senders=senders,
        network=network,
        seed=seed,
        until_ms=UNTIL_MS,
        **settings,
    )
    return run_scenario(scenario, _network(network, members, seed))


class Bench:
    """The measurements; each is made once."""

    def __init__(self, sizes: list[int], seeds: int) -> None:
        """Take `seeds` samples of random runs."""
        self.sizes, self.seeds = sizes, seeds
        self.verdicts: list[str] = []

    def runs(
        self, protocol: str, members: int, senders: int = 50, network: str = DENSE, **settings: Any
    ) -> list[Result]:
        """One run if nothing is random, otherwise `seeds` runs."""
        if protocol in ("gossip", "s_gossip") and "queue_limit" not in settings:
            settings |= {"queue_limit": 64, "losses_per_step": 2}
        if protocol == "gossip":
            settings.setdefault("step_s", TABLE_5_1[senders][members])
        chance = network.startswith(SPARSE) or protocol in ("gossip", "s_gossip") or "scatter" in settings
        return [
            _run(protocol, members, senders, network, seed, **settings) for seed in range(self.seeds if chance else 1)
        ]

    def tpr_s(self, protocol: str, members: int, senders: int = 50, network: str = DENSE, **settings: Any) -> float:
        """Mean TPR."""
        return mean(one.rtt_first_ms for one in self.runs(protocol, members, senders, network, **settings)) / 1e3

    def of(self, metric: str, protocol: str, members: int, senders: int = 50, network: str = DENSE) -> float:
        """Mean of any metric."""
        return mean(float(getattr(one, metric)) for one in self.runs(protocol, members, senders, network))

    def claim(self, text: str, figure: str, *holds: bool) -> None:
        """Note and print one verdict: it holds at every point, at some, or at none."""
        verdict = "confirmed" if all(holds) else "partly" if any(holds) else "refuted"
        self.verdicts.append(verdict)
        print(f"{verdict:>9} | {text} | {figure}", flush=True)


def _table(bench: Bench, metric: str, senders: int, network: str) -> None:
    print(f"\n{metric}, {network}, m = {senders}\n" + " " * 12 + " ".join(f"{members:>9}" for members in bench.sizes))
    for protocol in (*BASIC, *STRUCTURED):
        cells = [bench.of(metric, protocol, members, senders, network) for members in bench.sizes]
        print(f"{protocol:>11} " + " ".join(f"{cell:9.1f}" for cell in cells), flush=True)


def tables(bench: Bench) -> None:
    """Print the measurements."""
    for network in (DENSE, SPARSE):
        for senders in (50, 1):
            _table(bench, "rtt_first_ms", senders, network)
        for metric in ("hops", "queue_max", "queue_mean"):
            _table(bench, metric, 50, network)
    print()


def _descending(bench: Bench, metric: str, senders: int, order: tuple[str, ...]) -> tuple[list[int], str]:
    """The sizes at which the order holds, and the order found at each of the others."""
    holds, other = [], []
    for members in bench.sizes:
        found = sorted(((bench.of(metric, protocol, members, senders), protocol) for protocol in order), reverse=True)
        names = tuple(protocol for _, protocol in found)
        if names == order:
            holds.append(members)
        else:
            other.append(f"n={members}: " + " > ".join(names))
    return holds, f"holds at n = {holds}" + (f"; {'; '.join(other)}" if other else "")


def orders(bench: Bench) -> None:
    """Test the orders of the protocols by TPR, hops and queues."""
    for text, metric, order in (
        ("TPR: Train > Gossip > FullDist > CoordP", "rtt_first_ms", BASIC),
        ("hops: FullDist > Gossip > Train > CoordP", "hops", ("full_dist", "gossip", "train", "coord")),
        ("queue: FullDist > CoordP > Gossip > Train", "queue_max", ("full_dist", "coord", "gossip", "train")),
    ):
        for senders in (50, 1):
            holds, figure = _descending(bench, metric, senders, order)
            bench.claim(f"{text} (dense, m={senders})", figure, *(n in holds for n in bench.sizes))


def structure(bench: Bench) -> None:
    """Structured against basic."""
    pairs = (("coord", "s_coord"), ("train", "s_train"), ("gossip", "s_gossip"))
    for metric in ("rtt_first_ms", "hops"):
        for basic, better in pairs:
            ratios = [bench.of(metric, basic, n) / bench.of(metric, better, n) for n in bench.sizes]
            figure = "basic/structured " + ", ".join(f"{ratio:.2f}" for ratio in ratios)
            bench.claim(f"{better} beats {basic} by {metric} (dense, m=50)", figure, *(ratio > 1 for ratio in ratios))


def full_dist(bench: Bench) -> None:
    """Smallest and largest TPR; scattering."""
    spread = [mean(one.rtt_last_ms / one.rtt_first_ms for one in bench.runs("full_dist", n)) for n in bench.sizes]
    holds = [1.6 < ratio < 2.5 for ratio in spread]
    bench.claim("largest FullDist TPR about twice its smallest", ", ".join(f"{one:.2f}" for one in spread), *holds)
    to_coord = [bench.tpr_s("full_dist", n) / bench.tpr_s("coord", n) for n in bench.sizes]
    holds = [0.75 < ratio < 1.33 for ratio in to_coord]
    bench.claim("smallest FullDist TPR about CoordP's", ", ".join(f"{one:.2f}" for one in to_coord), *holds)
    for senders in (50, 1):
        ratios = {
            n: bench.tpr_s("full_dist", n, senders, scatter=True) / bench.tpr_s("gossip", n, senders)
            for n in bench.sizes
        }
        figure = "scattered FullDist/Gossip " + ", ".join(f"{n}: {ratio:.2f}" for n, ratio in ratios.items())
        holds = [(ratio > 1) == (n > 200) for n, ratio in ratios.items()]
        bench.claim(f"scattered, Gossip overtakes FullDist above n = 200 (m={senders})", figure, *holds)


def gossip(bench: Bench) -> None:
    """Growth, limits, dense and sparse, senders, bandwidth, spread."""
    n = np.array(bench.sizes, float)
    for senders in (50, 1):
        tpr = np.array([bench.tpr_s("gossip", size, senders, SPARSE) for size in bench.sizes])
        slope = float(np.polyfit(np.log(n), np.log(tpr), 1)[0])
        bench.claim(f"Gossip TPR linear in n (sparse, m={senders})", f"exponent {slope:.2f}", 0.75 <= slope <= 1.25)
        for name, settings in (("Table 5.1's steps", {}), ("steps of 10 s, nothing queues", {"step_s": 10.0})):
            samples = [bench.runs("gossip", size, senders, SPARSE, **settings) for size in bench.sizes]
            steps = [mean(one.steps or 0.0 for one in found) for found in samples]
            fit = np.corrcoef(np.log(n), steps)[0, 1] ** 2
            figures = ", ".join(f"{one:.1f}" for one in steps)
            text = f"Gossip steps grow like log n (sparse, m={senders}, {name})"
            bench.claim(text, f"{figures}; r² {fit:.2f}", bool(fit > 0.8))
    unlimited = [bench.tpr_s("gossip", 200, subset=3, step_s=step, queue_limit=0) for step in (1.0, 2.0, 4.0)]
    limited = [bench.tpr_s("gossip", 200, subset=3, step_s=step) for step in (1.0, 2.0, 4.0)]
    figures = ", ".join(f"{a:.0f} → {b:.0f} s" for a, b in zip(unlimited, limited, strict=True))
    bench.claim(
        "64-message queues beat unlimited ones below the critical step (n=200, p=3, step 1, 2, 4 s)",
        figures,
        *(b < a for a, b in zip(unlimited, limited, strict=True)),
    )
    ratios = [bench.tpr_s("gossip", size, 50, SPARSE) / bench.tpr_s("gossip", size, 50) for size in bench.sizes]
    figures = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    bench.claim("Gossip: dense ≈ sparse", f"sparse/dense {figures}", *(0.75 < ratio < 1.33 for ratio in ratios))
    faster = {p: bench.tpr_s(p, 200, 50) / bench.tpr_s(p, 200, 1) for p in (*BASIC, *STRUCTURED)}
    figures = ", ".join(f"{p} {ratio:.1f}" for p, ratio in faster.items())
    bench.claim(
        "m = 1 much faster than m = 50 (dense, n=200)",
        f"TPR(50)/TPR(1): {figures}",
        *(one > 1.5 for one in faster.values()),
    )
    fast = [
        bench.tpr_s("gossip", s, 50, f"{SPARSE},bandwidth=300e3", step_s=TABLE_5_1[50][s] / 10) for s in bench.sizes
    ]
    ratios = [bench.tpr_s("gossip", s, 50, SPARSE) / one for s, one in zip(bench.sizes, fast, strict=True)]
    figures = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    bench.claim("300 kb/s is ten times as fast as 30 (Gossip, sparse)", figures, *(8 < ratio < 12 for ratio in ratios))


def sparse(bench: Bench) -> None:
    """Sub-groups of the structured protocols in sparse groups."""
    for protocol, better, worse in (("s_coord", 50, None), ("s_train", None, 50)):
        ratios = [
            bench.tpr_s(protocol, n, 50, SPARSE, group_size=better)
            / bench.tpr_s(protocol, n, 50, SPARSE, group_size=worse)
            for n in bench.sizes
            if n > 50
        ]
        names = {50: "50", None: "4"}
        bench.claim(
            f"sparse {protocol}: sub-groups of {names[better]} beat {names[worse]} (n > 50)",
            "TPR ratio " + ", ".join(f"{ratio:.2f}" for ratio in ratios),
            *(ratio < 1 for ratio in ratios),
        )
    ratio = {
        n: bench.tpr_s("s_coord", n, 50, SPARSE, group_size=50) / bench.tpr_s("coord", n, 50, SPARSE)
        for n in bench.sizes
    }
    figures = ", ".join(f"{n}: {one:.2f}" for n, one in ratio.items())
    holds = [(one > 1) == (n < 150) for n, one in ratio.items()]
    bench.claim("sparse: CoordP beats S_CoordP below n = 150", f"S_CoordP(50)/CoordP {figures}", *holds)


def spread(bench: Bench) -> None:
    """guo §5.3.1: simulation I, dense, n = 200, p = 3, steps of 1 … 20 s."""
    worst = {"queue_mean": 0.0, "rtt_first_ms": 0.0}
    for step_s in range(1, 21):
        found = bench.runs("gossip", 200, subset=3, step_s=float(step_s), queue_limit=0)
        for metric in worst:
            values = [getattr(one, metric) for one in found]
            worst[metric] = max(worst[metric], stdev(values) / mean(values))
    figures = f"largest {worst['queue_mean']:.1%} (queue), {worst['rtt_first_ms']:.1%} (TPR), {bench.seeds} samples"
    holds = [worst["queue_mean"] <= 0.07, worst["rtt_first_ms"] <= 0.05]
    bench.claim("standard deviation ≤ 7 % (mean queue) and ≤ 5 % (TPR) of the mean", figures, *holds)


def main() -> None:
    """Read the options, measure, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[50, 100, 200, 300, 400, 500])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", action="store_true", help="print the measurements too")
    options = parser.parse_args()
    bench = Bench(options.members, options.seeds)
    began = time.perf_counter()
    for judge in (orders, structure, full_dist, gossip, sparse, spread):
        judge(bench)
    if options.tables:
        tables(bench)
    counted = ", ".join(f"{bench.verdicts.count(one)} {one}" for one in ("confirmed", "partly", "refuted"))
    print(f"{len(bench.verdicts)} claims: {counted}; {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

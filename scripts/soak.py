"""Groups of real processes at load, a kill -9 every few seconds, for minutes: `python -m scripts.soak --minutes 10`.

A group begins with all its members and loses one every few seconds until few are left; then it settles, every trace
checker judges it, and the next group begins. One line a group; the exit code says whether all went well.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from cubecast.core.failure.survivors import survivors
from cubecast.core.overlays import hypercube
from cubecast.live.settings import CAUSAL
from tests.live.harness import Troupe


def holds_together(living: set[int], members: set[int], everybody: int) -> bool:
    """Are the living connected, when the others among the members have crashed? The guarantees ask for it."""
    cube = hypercube(everybody)
    reached, unvisited = set(), [min(living)]
    while unvisited:
        rank = unvisited.pop()
        reached.add(rank)
        near = survivors(cube, rank, sorted(members)).neighbours.tolist()
        unvisited += ({*near} & living) - reached
    return reached == living


def kill_one(group: Troupe, chosen: argparse.Namespace, chance: random.Random) -> None:
    """kill -9 of a member without which the others hold together; those who crashed of late still count as members."""
    living = {*range(group.members)} - {*group.crashes}
    late_ns = time.monotonic_ns() - int(1e9 * (chosen.suspect_s + 3))
    members = living | {rank for rank, when_ns in group.crashes.items() if when_ns > late_ns}
    victims = [rank for rank in living if holds_together(living - {rank}, members, group.members)]
    if victims:
        group.kill(chance.choice(sorted(victims)))


def one_group(folder: Path, chosen: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Start, kill one by one, settle, judge."""
    chance = random.Random(seed)
    causal = chance.choice([way for way in CAUSAL if way != "auto"])
    options: dict[str, Any] = {"gossip_every_s": 0.25, "suspect_after_s": chosen.suspect_s, "causal": causal}
    began = time.monotonic()
    with closing(
        Troupe(folder, chosen.members, light=chosen.light, seed=seed, pause_s=chosen.pause_s, **options)
    ) as group:
        started_s = time.monotonic() - began
        while chosen.members - len(group.crashes) > chosen.leave:
            time.sleep(chance.uniform(0.5, 1.5) * chosen.every_s)
            kill_one(group, chosen, chance)
        time.sleep(1)
        reports = group.finish()
        talked_s = time.monotonic() - began - started_s
        judged = group.judge(seed=seed)
    if chosen.traces is not None:
        chosen.traces.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "run.parquet", chosen.traces / f"seed-{seed}.parquet")
    counted = [report for report in reports.values() if not report["excluded"]]
    return {
        "seed": seed,
        "causal": causal,
        "kills": len(group.crashes),
        "left": len(counted),
        "wrongly_excluded": len(reports) - len(counted),
        "delivered": counted[0]["delivered"],
        "per_s": round(counted[0]["delivered"] / talked_s),
        "agree": len({(r["delivered"], str(r["frontier"])) for r in counted}) == 1,
        "unstable": max(report["unstable"] for report in counted),
        "mib": max(report["mib"] for report in counted),
        "violations": len(judged.violations),
        "first": [str(one) for one in judged.violations[:2]],
    }


def main() -> None:
    """Run groups until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--leave", type=int, default=5, help="kill until so many are left")
    parser.add_argument("--every-s", type=float, default=3.0, help="mean time between kills")
    parser.add_argument("--suspect-s", type=float, default=6.0)
    parser.add_argument("--pause-s", type=float, default=0.05, help="mean pause between a member's bursts")
    parser.add_argument("--light", action="store_true", help="members without the compiler")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--traces", type=Path, help="keep the trace of every group in this folder")
    chosen = parser.parse_args()
    until = time.monotonic() + 60 * chosen.minutes
    totals = {"groups": 0, "kills": 0, "delivered": 0, "violations": 0, "disagree": 0, "wrongly_excluded": 0}
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder:
            row = one_group(Path(folder), chosen, chosen.seed + totals["groups"])
        print(json.dumps(row), flush=True)
        totals["groups"] += 1
        totals["disagree"] += not row["agree"]
        for name in ("kills", "delivered", "violations", "wrongly_excluded"):
            totals[name] += row[name]
    print(json.dumps(totals))
    sys.exit(totals["violations"] + totals["disagree"] > 0)


if __name__ == "__main__":
    main()

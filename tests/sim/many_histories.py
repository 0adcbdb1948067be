"""Very many random histories, in the background: `python -m tests.sim.many_histories LOG [FIRST LAST]`.

The log gets one line for every `STEP` seeds, and one for every broken promise. A run that was stopped goes on after the
last line when it is started again with the same log.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from cubecast.sim.churn.random_histories import run_history

STEP = 500


def totals_of(log: Path) -> Counter[str]:
    """What the last line says."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return Counter(next((line for line in reversed(lines) if "histories" in line), {}))


def run(log: Path, first: int, last: int) -> None:
    """Seeds first … last, each judged by every checker."""
    totals = totals_of(log)
    began, before_s = time.process_time(), totals["cpu_s"]
    with log.open("a") as lines:
        for seed in range(first + totals["histories"], last + 1):
            outcome, world = run_history(seed)
            totals["histories"] += 1
            totals["violations"] += len(outcome.broken)
            totals["lost their quorum"] += outcome.is_lost
            totals["views"] += outcome.views
            totals["deliveries"] += outcome.deliveries
            totals["messages"] += outcome.messages
            for event in ("stroke", "crash", "stop", "resume", "excluded", "left", "restore", "blocked"):
                totals[event] += sum(row.event == event for row in world.history)
            for promise in outcome.broken:
                print(json.dumps({"seed": seed, "broken": promise}), file=lines, flush=True)
            if totals["histories"] % STEP == 0 or seed == last:
                totals["cpu_s"] = before_s + round(time.process_time() - began)
                print(json.dumps({**totals, "through": seed}), file=lines, flush=True)


if __name__ == "__main__":
    place, *seeds = sys.argv[1:]
    run(Path(place), *map(int, seeds or (0, 99_999)))

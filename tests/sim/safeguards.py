"""The first random history that shows each missing safeguard: `python -m tests.sim.safeguards LOG [LAST]`.

The log gets one line a safeguard, as soon as it is caught, or when the seeds 0 … LAST are at an end. A run that was
stopped goes on with the next safeguard when it is started again with the same log.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from cubecast.sim.churn.random_histories import run_history
from tests.sim.broken_membership import BROKEN, caught

STEP = 500


def broken_history(seed: int) -> tuple[str, ...]:
    """What was broken in one history; every `STEP` seeds the screen says how far it is."""
    if seed % STEP == 0 and sys.stderr.isatty():
        print(f"\rseed {seed:,}", end="", file=sys.stderr, flush=True)
    return run_history(seed)[0].broken


def run(log: Path, last: int) -> None:
    """Every safeguard that is not in the log yet."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {line["missing"] for line in lines}
    with log.open("a") as rows:
        for missing in BROKEN:
            if missing in done:
                continue
            began = time.process_time()
            seed, shown = caught(missing, broken_history, range(last + 1)) or (None, "not caught")
            cpu_s = round(time.process_time() - began, 1)
            row = {"missing": missing, "seed": seed, "shown": shown, "cpu_s": cpu_s}
            print(json.dumps(row), file=rows, flush=True)


if __name__ == "__main__":
    place, *rest = sys.argv[1:]
    run(Path(place), *map(int, rest or (99_999,)))

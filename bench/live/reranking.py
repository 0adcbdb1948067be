"""Ranks from measured round-trip times: eight processes in two regions, with the worst possible initial ranks.

    python -m bench.live.reranking [--delay-ms 30] [--messages 20]

Members are in network namespaces with a delay between the two regions (needs root and Linux). At first every link of
the hypercube crosses from one region to the other. A ninth member leaves; with `rerank_gain` the next view assigns new
ranks. Each line: links that cross, and milliseconds from a multicast to its stability at the sender, before and after.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.live.bad_network import BadNetwork
from tests.live.cast import Cast
from tests.live.two_regions import LEAVER, MEASURED_S, crossing, two_regions


def stable_ms(cast: Cast, messages: int) -> float:
    """The median time from a multicast to its stability."""
    found = []
    for number in range(messages):
        began = time.monotonic()
        cast.command(0, f"set bench {number}")
        assert cast.read(0, 30.0) == "stable", cast.said(0)
        found.append(1e3 * (time.monotonic() - began))
    return statistics.median(found)


def measure(rerank_gain: float, delay_s: float, messages: int) -> dict[str, float]:
    """Run one group, with stable ranks or with ranks from round-trip times."""
    settings: dict[str, Any] = {"data": "timestamp", "stability": "cube_full_dist", "rerank_gain": rerank_gain}
    with tempfile.TemporaryDirectory() as folder, closing(BadNetwork(9)) as network:
        two_regions(network, delay_s)
        with closing(Cast(Path(folder), 9, network=network, is_light=False, **settings)) as cast:
            cast.form(*range(9))
            for place in range(9):
                cast.command(place, "quiet")
            time.sleep(MEASURED_S)
            cast.leave(LEAVER)
            found = cast.report(0)
            while len(found["members"]) > LEAVER:
                time.sleep(0.1)
                found = cast.report(0)
            time.sleep(1.0)
            return {
                "rerank_gain": rerank_gain,
                "crossing_links": crossing(cast.addresses, found["members"]),
                "stable_ms": round(stable_ms(cast, messages), 1),
            }


def main() -> None:
    """Print one line for stable ranks, and one for ranks from round-trip times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=30.0)
    parser.add_argument("--messages", type=int, default=20)
    chosen = parser.parse_args()
    for gain in (0.0, 0.2):
        print(json.dumps(measure(gain, chosen.delay_ms / 1e3, chosen.messages)), flush=True)


if __name__ == "__main__":
    main()

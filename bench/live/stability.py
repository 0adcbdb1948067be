"""Compare stability protocols in a live group under a steady load, alternating on this machine's loopback.

python -m bench.live.stability                                     # n = 8, 16, 64
python -m bench.live.stability --members 8 --protocols cascade s_coord --rate 100 --repeat 3

One line per protocol: the median over the repeats of the time until a message is stable at its sender (median and 99th
percentile), and of the bytes and the processor time of all members together for each message.
"""

from __future__ import annotations

import argparse
import json
import statistics

from bench.live import measure

PROTOCOLS = ("cube_full_dist", "s_coord", "dissemination", "cascade")


def main() -> None:
    """Print one line per group size and protocol."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="*", default=[8, 16, 64])
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS))
    parser.add_argument("--rate", type=float, default=50.0, help="messages per second of each of the four senders")
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeat", type=int, default=1)
    chosen = parser.parse_args()
    load = {"rate": chosen.rate, "payload": chosen.payload, "seconds": chosen.seconds}
    for members in chosen.members:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in chosen.protocols}
        for _ in range(chosen.repeat):
            for name, found in runs.items():
                found.append(measure.steady(members, **load, settings={"stability": name}))
        for name, found in runs.items():
            row = {key: round(statistics.median(one[key] for one in found), 1) for key in found[0]}
            print(json.dumps({"members": members, "stability": name, "rate": chosen.rate, **row}), flush=True)


if __name__ == "__main__":
    main()

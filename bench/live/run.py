"""Measure the live runtime on this machine's loopback, with one process per member.

python -m bench.live.run                                   # rate at n = 8 and 16
python -m bench.live.run --members 8 --payload 1000 --tls
python -m bench.live.run --members 8 --latency            # --sender 7: from one that is not in the middle
python -m bench.live.run --peers --repeat 3                # with JGroups and NATS, alternating
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

from bench.live import measure


def contenders(chosen: argparse.Namespace) -> dict[str, Callable[[int], dict[str, float]]]:
    """The measured systems by name."""
    load = {"payload": chosen.payload, "seconds": chosen.seconds}
    settings = {"data": chosen.data}
    found: dict[str, Callable[[int], dict[str, float]]] = {
        "cubecast": lambda members: measure.throughput(members, **load, settings=settings)
    }
    if chosen.tls:
        found["cubecast with TLS"] = lambda members: measure.throughput(members, **load, tls=True, settings=settings)
    if chosen.journal:
        durable = {**settings, "sync": "interval"}
        found["cubecast with a journal"] = lambda members: measure.throughput(
            members, **load, journal=True, settings=durable
        )
    if chosen.peers:
        found["JGroups"] = lambda members: measure.jgroups(members, **load)
        found["NATS"] = lambda members: measure.nats(members, **load)
    return found


def compare(chosen: argparse.Namespace) -> None:
    """Measure all systems in turn, several times: other work on the machine disturbs all of them alike."""
    for members in chosen.members:
        runs: dict[str, list[dict[str, Any]]] = {}
        for _ in range(chosen.repeat):
            for name, run in contenders(chosen).items():
                runs.setdefault(name, []).append(run(members))
        for name, found in runs.items():
            row = {key: round(statistics.median(one[key] for one in found), 2) for key in found[0]}
            rates = [round(one["rate"]) for one in found]
            what = {"members": members, "payload": chosen.payload, "who": name}
            print(json.dumps({**what, **row, "rates": rates}), flush=True)


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="*", default=[8, 16])
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="measure with TLS too")
    parser.add_argument("--journal", action="store_true", help='measure with a journal (sync="interval") too')
    parser.add_argument("--peers", action="store_true", help="measure JGroups and NATS too")
    parser.add_argument("--data", default="auto", help="the data protocol (default: auto)")
    parser.add_argument("--latency", action="store_true", help="measure latency instead of the rate")
    parser.add_argument("--sender", type=int, default=0, help="of the messages whose latency is measured")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two such messages")
    parser.add_argument("--messages", type=int, default=200, help="how many such messages")
    chosen = parser.parse_args()
    if not chosen.latency:
        compare(chosen)
        return
    for members in chosen.members:
        for hurry in (True, False):
            load = {"sender": chosen.sender, "hurry": hurry, "messages": chosen.messages, "pause_s": chosen.pause}
            found = measure.latency(members, **load, settings={"data": chosen.data})
            print(json.dumps({"members": members, "data": chosen.data, **load, **found}), flush=True)


if __name__ == "__main__":
    main()

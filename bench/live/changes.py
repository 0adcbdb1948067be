"""The cost of changes of a live group: the pause of a view change, a join under full load, a TCP reset under full load.

python -m bench.live.changes --members 16
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from bench.live.processes import ROOT, hear
from bench.live.timeline import BIN_S
from cubecast.live.local import free_addresses
from tests.support.processes import LineProcess

SENDERS = 4
SECONDS = 14.0
EVENT_S = 5.5
"""When the change happens, after a start."""
WATCHED_S = 1.5
WINDOW_S = 0.25


class Members:
    """Processes of one benchmark."""

    def __init__(self, members: int, *, sends: bool, seconds: float, reset_rank: int = -1) -> None:
        """Start them and wait until all are in the group."""
        self.addresses = free_addresses(members + 1)
        self._spoken: list[LineProcess] = []
        self._seconds = seconds
        peers = self.addresses[:members]
        for rank, address in enumerate(peers):
            task = {"listen": address, "peers": peers, "sends": sends and rank < SENDERS, "seconds": seconds}
            if rank == reset_rank:
                task["reset_after_s"] = EVENT_S
            self._spoken.append(self._start(task))
        for member in self._spoken:
            hear(member, "ready")

    def _start(self, task: dict[str, Any]) -> LineProcess:
        command = [sys.executable, "-m", "bench.live.timeline", json.dumps(task)]
        return LineProcess(command, folder=ROOT, errors=subprocess.DEVNULL)

    def begin(self) -> float:
        """Let the members send; return the time of the start."""
        start = time.time() + 0.5
        for member in self._spoken:
            member.write_line(f"{start}")
        return start

    @contextmanager
    def newcomer(self) -> Iterator[LineProcess]:
        """One more process, which has loaded its code and joins when it gets a line."""
        task = {"listen": self.addresses[-1], "contact": self.addresses[0], "sends": False, "seconds": 0.0}
        newcomer = self._start(task)
        try:
            hear(newcomer, "loaded")
            yield newcomer
        finally:
            newcomer.close()

    def end(self) -> list[dict[str, Any]]:
        """Their reports."""
        reports = [json.loads(hear(member, "{")) for member in self._spoken]
        for member in self._spoken:
            member.write_line("leave")
        return reports

    def close(self) -> None:
        """End all processes."""
        for member in self._spoken:
            member.close()


def join(newcomer: LineProcess) -> None:
    """Let it join."""
    newcomer.write_line("join")
    hear(newcomer, "ready")


def leave(newcomer: LineProcess, *, after_s: float) -> None:
    """Let it leave after a while."""
    time.sleep(after_s)
    newcomer.write_line("0")
    hear(newcomer, "{")
    newcomer.write_line("leave")
    newcomer.process.wait(30)


def pauses(members: int, changes: int) -> dict[str, float]:
    """Milliseconds during which one member delivered nothing, over joins and leaves in a quiet group."""
    group = Members(members, sends=False, seconds=1.0)
    try:
        for _ in range(changes):
            with group.newcomer() as newcomer:
                join(newcomer)
                leave(newcomer, after_s=0.3)
        group.begin()
        found = sorted(1e3 * pause for report in group.end() for _, pause in report["pauses"] if pause)
    finally:
        group.close()
    return {
        "changes": 2 * changes,
        "pause_p50_ms": round(statistics.median(found), 2),
        "pause_p99_ms": round(found[int(0.99 * len(found))], 2),
    }


def under_load(members: int, *, is_reset: bool) -> dict[str, float]:
    """The throughput, in seconds of the usual rate, that a join or reset costs, and when the rate has recovered."""
    group = Members(members, sends=True, seconds=SECONDS, reset_rank=members - 1 if is_reset else -1)
    try:
        with nullcontext() if is_reset else group.newcomer() as newcomer:
            start = group.begin()
            if newcomer is not None:
                time.sleep(max(0.0, start + EVENT_S - time.time()))
                join(newcomer)
            reports = group.end()
    finally:
        group.close()
    at = start + EVENT_S
    if not is_reset:
        installs = [when for report in reports for when, pause in report["pauses"] if pause and when >= at]
        at = min(installs) if installs else at
    lost, back = zip(*[_cost(report["bins"], at) for report in reports], strict=True)
    _, back_before = zip(*[_cost(report["bins"], at - WATCHED_S - WINDOW_S) for report in reports], strict=True)
    return {
        "lost_seconds_of_throughput": round(statistics.median(lost), 3),
        "full_rate_after_s": round(statistics.median(back), 2),
        "the_same_without_event_s": round(statistics.median(back_before), 2),
    }


def _cost(bins: list[list[int]], at: float) -> tuple[float, float]:
    """Seconds of the usual throughput that are missing after a time, and when 80 % of it was reached permanently.

    The rate is averaged over windows: with more processes than cores a member delivers in bursts.
    """
    counts = {place: count for place, count in bins}  # noqa: C416
    first = int(at / BIN_S)
    usual = statistics.mean(counts.get(place, 0) for place in range(first - round(WATCHED_S / BIN_S), first))
    watched = range(first, first + round(WATCHED_S / BIN_S))
    lost = sum(usual - counts.get(place, 0) for place in watched) * BIN_S / usual
    wide = round(WINDOW_S / BIN_S)
    slow = [place for place in watched if statistics.mean(counts.get(place + k, 0) for k in range(wide)) < 0.8 * usual]
    return lost, BIN_S * (slow[-1] + 1 - first) if slow else 0.0


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--changes", type=int, default=10)
    chosen = parser.parse_args()
    print(
        json.dumps({"members": chosen.members, "what": "quiet view changes", **pauses(chosen.members, chosen.changes)})
    )
    for is_reset, what in ((False, "a join under full load"), (True, "a TCP reset under full load")):
        found = under_load(chosen.members, is_reset=is_reset)
        print(json.dumps({"members": chosen.members, "what": what, **found}), flush=True)


if __name__ == "__main__":
    main()

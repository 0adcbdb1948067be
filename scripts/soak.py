"""Real processes under faults at full load, judged by the checkers: `python -m scripts.soak --minutes 30`.

Every process is a replica of the key–value store with a journal and a trace, in a network namespace of its own (with
`--no-namespaces`, or without root, on loopback). Every few seconds a fault is injected into one or several of them:
kill -9 with the journal kept or lost, SIGSTOP, connection resets, a partition, a link that is cut one way or that
loses, delays and reorders, a join, a leave, a restart; now and then kill -9 of all at once. The run is divided into
*epochs*, each a group of its own with the next data protocol: at its end everything heals, the group settles, the
replicas are compared, and all checkers judge the merged trace. The last line is the verdict; the exit code says the
same.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cubecast.live.trace_writer import merge_traces
from cubecast.trace.checkers import Report, check_all
from cubecast.trace.files import StoredTrace
from tests.live.bad_network import BadNetwork, LinkState, is_possible
from tests.live.cast import Cast

SETTLE_S = 120.0
EXCLUSION_S = 6.0
"""How long a member that is reachable again may take to be excluded and to rejoin."""
HEALTHY: dict[str, Any] = {"cut": False, "loss": 0.0, "delay_s": 0.0, "jitter_s": 0.0}
BAD: dict[str, Any] = {"loss": 0.1, "delay_s": 0.05, "jitter_s": 0.03}
DATA = ("timestamp", "tree", "causal_plumtree", "overlay", "causal_rasm", "star")
SETTINGS: dict[str, Any] = {
    "heartbeat_s": 0.25,
    "suspect_after_s": 3.0,
    "patience_s": 1.0,
    "takeover_s": 1.5,
    "sync": "never",
}
FAULTS = (
    *("start", "start", "start", "start", "leave", "kill", "kill", "kill_and_lose", "stop", "stop"),
    *("reset", "reset", "partition", "cut", "bad_link"),
)


class Faults:
    """Draws the next fault, and knows which places it has disturbed."""

    def __init__(self, cast: Cast, network: BadNetwork | None, chance: random.Random) -> None:
        """No member is disturbed yet."""
        self.cast = cast
        self.network = network
        self.chance = chance
        self.places = range(len(cast.addresses))
        self.injected: Counter[str] = Counter()
        self.crashes: list[tuple[str, int]] = []
        """Incarnations that stopped for good, and when."""
        self._disturbed: dict[int, float] = {}
        """Until when a place may be unreachable for the others."""
        self._ends: list[tuple[float, Callable[[], None]]] = []

    def inject(self) -> str:
        """Inject the next fault, drawn from those that are possible now."""
        for kind in self.chance.sample(FAULTS, len(FAULTS)):
            done: str = getattr(self, f"_{kind}")()
            if done:
                self.injected[kind] += 1
                return done
        return ""

    def end_what_is_over(self, *, all_of_it: bool = False) -> None:
        """Continue stopped processes and heal links."""
        now = time.monotonic()
        over = [one for one in self._ends if all_of_it or one[0] <= now]
        self._ends = [one for one in self._ends if one not in over]
        for _, end in over:
            end()

    def restart_all(self) -> str:
        """kill -9 of all processes at once; then all continue from their journals."""
        self.end_what_is_over(all_of_it=True)
        living = self._living()
        self.cast.kill(*living, keep_journal=True)
        for place in living:
            self.cast.start_soon(place, self.chance.choice([other for other in living if other != place]))
        self.injected["restart_all"] += 1
        return "kill all, and start them again"

    def reap(self) -> None:
        """Remove processes that ended on their own: they left, or could not join in time."""
        for place in list(self.cast.processes):
            if not self.cast.is_alive(place) and self.cast.reap(place):
                self.injected["gave_up"] += 1

    # Who may be disturbed.

    def _living(self) -> list[int]:
        return [place for place in self.places if self.cast.is_alive(place)]

    def _well(self) -> list[int]:
        now = time.monotonic()
        self._disturbed = {place: until for place, until in self._disturbed.items() if until > now}
        return [place for place in self._living() if place not in self._disturbed]

    def _may_disturb(self, places: set[int]) -> bool:
        """Would more than half of the living members still be undisturbed?"""
        well = [place for place in self._well() if place not in places]
        return 2 * len(well) > len(self._living()) + 1

    def _disturb(self, places: Iterable[int], seconds: float = 0.0) -> None:
        for place in places:
            self._disturbed[place] = time.monotonic() + seconds + EXCLUSION_S

    def _victims(self, most: int) -> set[int]:
        living = self._living()
        victims = set(self.chance.sample(living, min(len(living), self.chance.randint(1, most))))
        return victims if len(living) > 3 and self._may_disturb(victims) else set()

    # Faults of processes.

    def _start(self) -> str:
        absent, well = [place for place in self.places if place not in self.cast.processes], self._well()
        if not absent or not well:
            return ""
        place = self.chance.choice(absent)
        self.cast.start_soon(place, self.chance.choice(well))
        self._disturb([place], 2.0)
        return f"{place} starts"

    def _leave(self) -> str:
        well = self._well()
        if len(well) < 5 or not self._may_disturb({well[0]}):
            return ""
        place = self.chance.choice(well)
        self.cast.command(place, "leave")
        self._disturb([place], 2.0)
        return f"{place} leaves"

    def _kill(self) -> str:
        victims = self._victims(3)
        if victims:
            self.cast.kill(*victims, keep_journal=True)
            self._disturb(victims)
        return f"kill {sorted(victims)}" if victims else ""

    def _kill_and_lose(self) -> str:
        """Only while all others are undisturbed: a lost journal is one vote less for earlier decisions."""
        victims = self._victims(1)
        if not victims or len(self._well()) < len(self._living()):
            return ""
        self.cast.kill(*victims, keep_journal=False)
        self.crashes += [(self.cast.addresses[place], time.monotonic_ns()) for place in victims]
        self._disturb(victims)
        return f"kill {sorted(victims)}, their journals are lost"

    def _stop(self) -> str:
        victims = {place for place in self._victims(2) if place not in self.cast.frozen}
        seconds = self.chance.choice([0.5, 1.0, 3.0, 6.0, 9.0])
        for place in victims:
            self.cast.freeze(place)
            self._ends.append((time.monotonic() + seconds, lambda place=place: self._continue(place)))  # type: ignore[misc]
        self._disturb(victims, seconds)
        return f"stop {sorted(victims)} for {seconds} s" if victims else ""

    def _continue(self, place: int) -> None:
        if self.cast.is_alive(place) and place in self.cast.frozen:
            self.cast.thaw(place)

    # Faults of the network.

    def _reset(self) -> str:
        """Reset both ends of the connections between two members; data in transit is lost."""
        living = self._living()
        if shutil.which("ss") is None or len(living) < 2:
            return ""
        one, other = self.chance.sample(living, 2)
        host, _, port = self.cast.addresses[other].rpartition(":")
        inside = self.network.enter(one) if self.network is not None else []
        where = ["dst", host] if self.network is not None else ["dport", "=", f":{port}"]
        done = subprocess.run([*inside, "ss", "-K", "-t", *where], capture_output=True, check=False)
        return f"reset the connections of {one} with {other}" if done.returncode == 0 else ""

    def _partition(self) -> str:
        minority = self._victims(5)
        if self.network is None or not minority:
            return ""
        seconds = self.chance.uniform(1, 10)
        self._set_links(self.network.between(minority, set(self.places) - minority), seconds, cut=True)
        self._disturb(minority, seconds)
        return f"partition {sorted(minority)} from the others for {seconds:.1f} s"

    def _cut(self) -> str:
        """Cut one link in one direction, which need not exclude any member."""
        return self._one_link("cut", cut=True)

    def _bad_link(self) -> str:
        return self._one_link("lose, delay and reorder on", **BAD)

    def _one_link(self, verb: str, **state: Any) -> str:
        if self.network is None:
            return ""
        pair = self.chance.choice(list(self.network.links))
        seconds = self.chance.uniform(1, 10)
        self._set_links([self.network.links[pair]], seconds, **state)
        return f"{verb} the link {pair} for {seconds:.1f} s"

    def _set_links(self, links: Iterable[LinkState], seconds: float, **state: Any) -> None:
        changed = list(links)

        def set_to(state: dict[str, Any]) -> None:
            for link in changed:
                vars(link).update(state)

        set_to(state)
        self._ends.append((time.monotonic() + seconds, lambda: set_to(HEALTHY)))


@dataclass
class Totals:
    """The totals over all epochs."""

    epochs: int = 0
    deliveries: int = 0
    events: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def one_epoch(folder: Path, chosen: argparse.Namespace, number: int, until: float, totals: Totals) -> None:
    """Form a group, inject faults until the time is over, heal, settle, judge."""
    data = chosen.data or DATA[number % len(DATA)]
    network = BadNetwork(chosen.members) if chosen.namespaces else None
    chance = random.Random(f"{chosen.seed} {number}")
    options: dict[str, Any] = {
        "pause_s": chosen.pause_s,
        "burst": chosen.burst,
        "is_light": chosen.light,
    }
    options |= {"durable": True, "seed": chosen.seed + number, "data": data, **SETTINGS}
    cast = Cast(folder, chosen.members, network=network, **options)
    try:
        with closing(cast):
            faults = Faults(cast, network, chance)
            cast.form(*range(chosen.members), wait_s=120.0)
            print(f"epoch {number}: {chosen.members} members formed a group, data={data}", flush=True)
            run_faults(faults, chosen, until)
            reports, report = finish(cast, faults, folder)
            report_epoch(number, faults, reports, report, totals)
    except Exception as error:
        totals.problems.append(f"epoch {number}: {str(error)[:2000] or type(error).__name__}")
        raise
    finally:
        if network is not None:
            network.close()
        if chosen.keep is None:
            for path in folder.glob("*.journal*"):
                path.unlink()


def run_faults(faults: Faults, chosen: argparse.Namespace, until: float) -> None:
    """Inject one fault after another."""
    restart_all_at = time.monotonic() + 60 * chosen.restart_all_minutes
    while time.monotonic() < until:
        time.sleep(min(faults.chance.expovariate(1 / chosen.every_s), 5 * chosen.every_s))
        faults.end_what_is_over()
        faults.reap()
        if time.monotonic() > until:
            break
        if time.monotonic() > restart_all_at:
            said = faults.restart_all()
            restart_all_at = time.monotonic() + 60 * chosen.restart_all_minutes
        else:
            said = faults.inject()
        if said and chosen.verbose:
            print(f"{until - time.monotonic():7.1f} s left: {said}", flush=True)


def finish(cast: Cast, faults: Faults, folder: Path) -> tuple[dict[int, dict[str, Any]], Report]:
    """Heal everything, let the group settle, and judge the merged trace."""
    faults.end_what_is_over(all_of_it=True)
    time.sleep(EXCLUSION_S)
    faults.reap()
    reports = cast.settle(SETTLE_S)
    time.sleep(0.5)  # those who live write the end of their traces a little later
    traces = [path for path in sorted(folder.glob("*.trace")) if path.stat().st_size]
    merged = folder / "run.parquet"
    merge_traces(traces, merged, crashes=faults.crashes, scenario={"quorum": "majority"})
    with closing(StoredTrace(merged)) as trace:
        return reports, check_all(trace)


def report_epoch(
    number: int, faults: Faults, reports: dict[int, dict[str, Any]], report: Report, totals: Totals
) -> None:
    """Print the result of an epoch, and add it to the totals."""
    digests = {one["digest"] for one in reports.values()}
    delivered = sum(one["delivered"] for one in reports.values())
    totals.epochs += 1
    totals.deliveries += delivered
    totals.events += report.events
    totals.injected += faults.injected
    if len(digests) != 1:
        totals.problems.append(f"epoch {number}: the replicas differ: {digests}")
    totals.problems += [f"epoch {number}: {violation}" for violation in report.violations]
    print(
        f"epoch {number}: {', '.join(f'{count} {what}' for what, count in faults.injected.most_common())}; view "
        f"{max(one['view'] for one in reports.values())}, {len(reports)} members, {delivered} deliveries to them, "
        f"{sum(one['reconnections'] for one in reports.values())} reconnections, at most "
        f"{max(one['mib'] for one in reports.values())} MiB; replicas {'agree' if len(digests) == 1 else 'differ'}; "
        f"{report.events} trace rows, {len(report.violations)} violations",
        flush=True,
    )


def print_verdict(totals: Totals) -> bool:
    """Print the verdict; return True if there was no problem."""
    for problem in totals.problems[:20]:
        print("  ", problem)
    faults = sum(totals.injected.values())
    outcome = "FAILED" if totals.problems or not totals.epochs else "passed"
    print(
        f"verdict: {outcome}: {totals.epochs} epochs, {faults} faults, {totals.deliveries} deliveries, "
        f"{totals.events} trace rows, {len(totals.problems)} problems",
        flush=True,
    )
    return outcome == "passed"


def main() -> None:
    """Run epochs until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--epoch-minutes", type=float, default=5.0, help="lifetime of one group")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--every-s", type=float, default=3.0, help="mean time between two faults")
    parser.add_argument("--restart-all-minutes", type=float, default=2.0)
    parser.add_argument("--pause-s", type=float, default=0.02, help="mean pause between a member's bursts")
    parser.add_argument("--burst", type=int, default=10, help="writes in a burst")
    parser.add_argument("--data", default="", help="one data protocol instead of all in turn")
    parser.add_argument("--light", action="store_true", help="members without the compiler")
    parser.add_argument("--no-namespaces", dest="namespaces", action="store_false", help="on loopback, no partitions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep all files below this folder; run.parquet is an epoch's trace")
    parser.add_argument("--verbose", action="store_true", help="one line per fault")
    chosen = parser.parse_args()
    chosen.namespaces = chosen.namespaces and is_possible()
    print(
        "network:", "namespaces, with partitions" if chosen.namespaces else "loopback, without partitions", flush=True
    )
    end = time.monotonic() + 60 * chosen.minutes
    totals = Totals()
    number = 0
    with tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() < end and not totals.problems:
            folder = (chosen.keep or Path(scratch)) / f"epoch-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            try:
                one_epoch(folder, chosen, number, min(end, time.monotonic() + 60 * chosen.epoch_minutes), totals)
            except Exception as error:
                print(f"epoch {number} ended early: {error!r}"[:4000], flush=True)
            if chosen.keep is None and not totals.problems:
                shutil.rmtree(folder)
            number += 1
        sys.exit(not print_verdict(totals))


if __name__ == "__main__":
    main()

"""A changing group of real processes, hurt every few seconds: `python -m scripts.churn_live --minutes 30`.

Every process is a replica of the key–value store in a network namespace of its own, and keeps a log. Every few seconds
one of these happens to one or several of them: a join, a leave, kill -9 (the log stays, or is lost), a return, SIGSTOP,
a partition of the network, a link that is cut one way, a link that loses and delays; now and then kill -9 of all at
once. In the end all heals, the group settles, the replicas are compared, and the judge of `cubecast churn` reads the
histories of all processes. The exit code says whether all went well.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from cubecast.sim.churn.recorded import pauses_ns
from tests.live.bad_network import BadNetwork, is_possible
from tests.live.cast import Cast

SETTLE_S = 90.0
KINDS = (
    *("join", "join", "return", "return", "return", "leave", "kill", "kill", "kill and lose", "freeze", "freeze"),
    *("divide", "cut", "bad link"),
)


class Churn:
    """Draws what happens next, and knows who is hurt."""

    def __init__(self, cast: Cast, network: BadNetwork | None, chance: random.Random) -> None:
        """Everybody is well."""
        self.cast = cast
        self.network = network
        self.chance = chance
        self.places = range(len(cast.addresses))
        self.happened: Counter[str] = Counter()
        self.hurt: dict[int, float] = {}
        """Until when a place may not be within reach of the others."""
        self.ends: list[tuple[float, Callable[[], None]]] = []

    def living(self) -> list[int]:
        """Places whose process runs, as far as is known."""
        return [place for place in self.places if self.cast.is_alive(place)]

    def may_hurt(self, places: set[int]) -> bool:
        """Would more than half of those who live still be well?"""
        now = time.monotonic()
        self.hurt = {place: until for place, until in self.hurt.items() if until > now}
        living = self.living()
        well = [place for place in living if place not in self.hurt and place not in places]
        return 2 * len(well) > len(living) + 1

    def mark(self, places: set[int], seconds: float) -> None:
        """They are not well for so long, and the time of an exclusion after it."""
        for place in places:
            self.hurt[place] = time.monotonic() + seconds + 6.0

    def happen(self) -> str:
        """One thing, whatever is possible now."""
        for kind in self.chance.sample(KINDS, len(KINDS)):
            done: str = getattr(self, "_" + kind.replace(" ", "_"))()
            if done:
                self.happened[kind] += 1
                return done
        return ""

    def end_what_is_over(self, *, all_of_it: bool = False) -> None:
        """Thaw and heal."""
        now = time.monotonic()
        for _, what in [one for one in self.ends if all_of_it or one[0] <= now]:
            what()
        self.ends = [one for one in self.ends if one[0] > now and not all_of_it]

    def kill_all(self) -> None:
        """Everybody at once; then everybody goes on from its log."""
        self.end_what_is_over(all_of_it=True)
        living = self.living()
        self.cast.kill(*living, keep_log=True)
        for place in living:
            self.cast.start_soon(place, self.chance.choice([other for other in living if other != place]))
        self.happened["kill all"] += 1

    def bury(self) -> None:
        """Processes that ended by themselves: they left, or nobody took them in, in time."""
        for place in list(self.cast.processes):
            if not self.cast.is_alive(place) and self.cast.reap(place):
                self.happened["gave up"] += 1

    # What can happen.

    def _absent(self) -> list[int]:
        return [place for place in self.places if place not in self.cast.processes]

    def _join(self) -> str:
        absent, living = self._absent(), [place for place in self.living() if place not in self.hurt]
        if not absent or not living:
            return ""
        place = self.chance.choice(absent)
        self.cast.start_soon(place, self.chance.choice(living))
        return f"{place} starts"

    _return = _join

    def _leave(self) -> str:
        living = [place for place in self.living() if place not in self.hurt]
        if len(living) < 6 or not self.may_hurt({living[0]}):
            return ""
        place = self.chance.choice(living)
        self.cast.tell(place, "leave")
        self.mark({place}, 1.0)
        return f"{place} leaves"

    def _victims(self, most: int) -> set[int]:
        living = self.living()
        victims = set(self.chance.sample(living, min(len(living), self.chance.randint(1, most))))
        return victims if len(living) > 5 and self.may_hurt(victims) else set()

    def _kill(self) -> str:
        victims = self._victims(3)
        if victims:
            self.cast.kill(*victims, keep_log=True)
            self.mark(victims, 0)
        return f"kill {sorted(victims)}" if victims else ""

    def _kill_and_lose(self) -> str:
        victims = self._victims(1)
        if self.hurt or not victims:
            return ""
        self.cast.kill(*victims, keep_log=False)
        self.mark(victims, 0)
        return f"kill {sorted(victims)}, their logs are lost"

    def _freeze(self) -> str:
        victims = {place for place in self._victims(2) if place not in self.cast.frozen}
        seconds = self.chance.choice([0.5, 1.0, 3.0, 6.0, 9.0])
        for place in victims:
            self.cast.freeze(place)
            self.ends.append((time.monotonic() + seconds, lambda place=place: self._thaw(place)))  # type: ignore[misc]
        self.mark(victims, seconds)
        return f"freeze {sorted(victims)} for {seconds} s" if victims else ""

    def _thaw(self, place: int) -> None:
        if self.cast.is_alive(place) and place in self.cast.frozen:
            self.cast.thaw(place)

    def _divide(self) -> str:
        minority = self._victims(5)
        if self.network is None or not minority:
            return ""
        seconds = self.chance.uniform(1, 10)
        links = list(self.network.between(minority, set(self.places) - minority))
        self._set(links, cut=True)
        self.ends.append((time.monotonic() + seconds, lambda: self._set(links, cut=False)))
        self.mark(minority, seconds)
        return f"divide {sorted(minority)} from the others for {seconds:.1f} s"

    def _cut(self) -> str:
        """One link, one way: nobody is excluded for it."""
        return self._hurt_link("cut", cut=True)

    def _bad_link(self) -> str:
        return self._hurt_link("lose and delay on", loss=0.2, delay_s=0.1, jitter_s=0.05)

    def _hurt_link(self, word: str, **state: Any) -> str:
        if self.network is None:
            return ""
        pair = self.chance.choice(list(self.network.links))
        link = self.network.links[pair]
        seconds = self.chance.uniform(1, 10)
        self._set([link], **state)
        healed = {"cut": False, "loss": 0.0, "delay_s": 0.0, "jitter_s": 0.0}
        self.ends.append((time.monotonic() + seconds, lambda: self._set([link], **healed)))
        return f"{word} the link {pair} for {seconds:.1f} s"

    def _set(self, links: list[Any], **state: Any) -> None:
        for link in links:
            for name, value in state.items():
                setattr(link, name, value)


def run(cast: Cast, churn: Churn, chosen: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """Start all, hurt them until the time is over, heal, settle."""
    cast.start(0)
    for place in range(1, chosen.members):
        cast.start(place, churn.chance.randrange(place))
    print(f"{chosen.members} members are in the group", flush=True)
    until = time.monotonic() + 60 * chosen.minutes
    next_kill_all = time.monotonic() + 60 * chosen.kill_all_minutes
    while time.monotonic() < until:
        time.sleep(churn.chance.expovariate(1 / chosen.every_s))
        churn.end_what_is_over()
        churn.bury()
        if time.monotonic() > next_kill_all:
            churn.kill_all()
            said = "kill all, and start them again"
            next_kill_all = time.monotonic() + 60 * chosen.kill_all_minutes
        else:
            said = churn.happen()
        if said and chosen.verbose:
            print(f"{until - time.monotonic():7.1f} s left: {said}", flush=True)
    churn.end_what_is_over(all_of_it=True)
    time.sleep(5)
    churn.bury()
    return cast.settle(SETTLE_S)


def summary(cast: Cast, churn: Churn, reports: dict[int, dict[str, Any]]) -> bool:
    """Judge and print; True when all went well."""
    lines = cast.lines()
    broken = cast.judge(lines, [one["me"] for one in reports.values()])
    pauses = sorted(ns / 1e6 for ns in pauses_ns(lines))
    events = Counter(line[3] for line in lines)
    views = {line[4][0] for line in lines if line[3] == "install"}
    digests = {one["digest"] for one in reports.values()}
    print("happened:", ", ".join(f"{count} {what}" for what, count in churn.happened.most_common()))
    print("history:", ", ".join(f"{count} {what}" for what, count in events.most_common()))
    lives = {(line[1], line[2]) for line in lines if line[2] is not None}
    print(f"views: {max(views)}; members at the end: {len(reports)}; lives: {len(lives)}")
    if pauses:
        middle, late = pauses[len(pauses) // 2], pauses[int(0.99 * len(pauses))]
        print(f"{len(pauses)} pauses: median {middle:.0f} ms, p99 {late:.0f} ms, most {pauses[-1]:.0f} ms")
    print(
        f"replicas: {'all the same' if len(digests) == 1 else f'{len(digests)} kinds'}, "
        f"{max(one['keys'] for one in reports.values())} keys; "
        f"memory at most {max(one['mib'] for one in reports.values())} MiB"
    )
    print(f"promises broken: {len(broken)}")
    for one in broken[:10]:
        print("  ", one[:300])
    return not broken and len(digests) == 1


def main() -> None:
    """Run, judge, say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--every-s", type=float, default=4.0, help="mean time between two things that happen")
    parser.add_argument("--kill-all-minutes", type=float, default=6.0)
    parser.add_argument("--pause-s", type=float, default=1.0, help="mean pause between a member's writes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the files here")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    network = BadNetwork(chosen.members) if is_possible() else None
    print("network:", "namespaces, with partitions" if network else "loopback, no partitions: that needs root")
    settings = {"tick_s": 0.25, "suspect_after_s": 3.0, "patience_s": 1.0, "takeover_s": 1.5, "sync": "never"}
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = chosen.keep or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            options = {"pause_s": chosen.pause_s, "tell_every_s": 3.0, **settings}
            cast = Cast(folder, chosen.members, network=network, durable=True, seed=chosen.seed, **options)
            with closing(cast):
                churn = Churn(cast, network, random.Random(chosen.seed))
                is_well = summary(cast, churn, run(cast, churn, chosen))
    finally:
        if network is not None:
            network.close()
    sys.exit(not is_well)


if __name__ == "__main__":
    main()

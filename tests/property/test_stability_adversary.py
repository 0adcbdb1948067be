"""An adversary schedules: what arrives, when, twice or never; who crashes; whom the detectors report, and when.

Safety is judged after every step: no member calls stable what a live member does not hold, and S never shrinks.
Liveness is judged once the adversary rests: everything then arrives and every timer rings, and every member that is
left must end the rounds that the driver still asks for.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocol.group import STABILITY
from cubecast.protocol.overlays import hypercube
from tests.oracles.stability import true_minimum
from tests.transcripts.talk import Message, Talk

PROTOCOLS = [
    *("coord", "full_dist", "s_coord", "cube_full_dist", "train", "gossip", "s_train", "s_gossip"),
    *("dissemination", "cascade"),
]
STEPS = 120
CALM_STEPS = 4000


class Adversary:
    """A group under attack. In the reliable form links are FIFO and lose nothing; in the lossy form anything goes."""

    goal = STABILITY

    def __init__(self, protocol: str, members: int, seed: int, *, lossy: bool, rounds: int) -> None:
        self.random = random.Random(seed)
        received = [[self.random.randint(0, 5) for _ in range(2)] for _ in range(members)]
        self.talk = Talk(protocol, received, lossy=lossy, goal=self.goal, **self._parameters(protocol))
        self.lossy = lossy
        self.rounds = rounds
        self.alive = set(range(members))
        self.to_report: list[tuple[int, int]] = []
        self.may_lose = self._losses_max(protocol, members)
        self.before = self.talk.group.stable.copy()

    def _parameters(self, protocol: str) -> dict[str, Any]:
        degree = self.random.choice([1, 2, 3])
        if protocol == "gossip":
            return {"ending": self.random.choice(["piggyback", "optimised"])}
        if protocol == "dissemination":
            return {"radix": self.random.choice([2, 3, 4])}
        if protocol == "cascade":
            overlay = self.random.choice(["tree", "dissemination", "hypercube"])
            return {"overlay": overlay, "tree_degree": degree, "linger": self.random.random() < 0.5}
        if protocol == "s_gossip":
            return {"group_size": self.random.choice([50, 2, 3]), "shuffled": self.random.random() < 0.5}
        if protocol in ("s_train", "s_coord"):
            size = self.random.choice([None, 2, 3])
            own = {"relayed": self.random.random() < 0.5} if protocol == "s_coord" else {}
            return {"tree_degree": degree, "group_size": size, "shuffled": self.random.random() < 0.5} | own
        return {}

    def _losses_max(self, protocol: str, members: int) -> int:
        if protocol == "cube_full_dist":
            return int(np.diff(hypercube(members).offsets).min()) - 1
        return members - 1

    def attack(self) -> None:
        for rank in self.random.sample(sorted(self.alive), len(self.alive)):
            if self.random.random() < 0.1:
                self.crash()
            if rank in self.alive:
                self.talk.start(rank)
        steps = [self.deliver] * 8 + [self.wake] * 3 + [self.grow, self.report, self.report, self.crash]
        if self.lossy:
            steps += [self.lose] * 2 + [self.repeat_copy] * 2
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.judge()

    def rest(self) -> None:
        """Everything arrives, in order; timers ring when nothing is under way."""
        for _ in range(CALM_STEPS):
            if all(self.talk.done[rank] >= self.rounds for rank in self.alive):
                return
            if self.talk.under_way:
                self.receive(self.talk.under_way.pop(0))
            elif self.to_report:
                self.report()
            elif not self.wake():
                break
            self.judge()
        raise AssertionError(f"rounds never end: {self.talk.done}, alive {sorted(self.alive)}\n{self.talk.said()}")

    def judge(self) -> None:
        group = self.talk.group
        received = {rank: tuple(int(one) for one in group.received[rank]) for rank in self.alive}
        limit = true_minimum(received, self.alive)
        for rank in self.alive:
            assert tuple(self.talk.stable(rank)) <= limit or (group.stable[rank] <= limit).all(), self.talk.said()
        assert (group.stable >= self.before).all()
        self.before = group.stable.copy()

    def pick(self) -> Message | None:
        """Any copy in the lossy form; the oldest between two members in the reliable form."""
        if not self.talk.under_way:
            return None
        chosen = self.random.choice(self.talk.under_way)
        if not self.lossy:
            same = (one for one in self.talk.under_way if (one.source, one.to) == (chosen.source, chosen.to))
            chosen = next(same)
        return chosen

    def receive(self, message: Message) -> None:
        if message.to in self.alive:
            self.talk.receive(message)

    def deliver(self) -> None:
        message = self.pick()
        if message is not None:
            self.talk.under_way.remove(message)
            self.receive(message)

    def repeat_copy(self) -> None:
        message = self.pick()
        if message is not None:
            self.receive(message)

    def lose(self) -> None:
        message = self.pick()
        if message is not None:
            self.talk.under_way.remove(message)

    def wake(self) -> bool:
        """A timer rings; the driver lets no round begin beyond those it wants."""
        for timer in self.random.sample(self.talk.timers, len(self.talk.timers)):
            if timer.rank not in self.alive or (timer.name == "NEXT_ROUND" and timer.tag >= self.rounds):
                self.talk.timers.remove(timer)
                continue
            self.talk.wake(timer.rank, timer.name)
            return True
        return False

    def grow(self) -> None:
        rank = self.random.choice(sorted(self.alive))
        self.talk.group.received[rank, self.random.randrange(2)] += 1

    def crash(self) -> None:
        if self.may_lose == 0 or len(self.alive) < 2 or self.random.random() < 0.5:
            return
        who = self.random.choice(sorted(self.alive))
        if self.random.random() < 0.5:
            who = min(self.alive)  # the coordinator
        self.may_lose -= 1
        self.alive.remove(who)
        self.to_report += [(rank, who) for rank in sorted(self.alive)]

    def report(self) -> None:
        if self.to_report:
            rank, who = self.to_report.pop(self.random.randrange(len(self.to_report)))
            if rank in self.alive:
                self.talk.leave(rank, who)


@pytest.mark.parametrize("lossy", [False, True], ids=["reliable", "lossy"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(seed=st.integers(0, 2**40), members=st.integers(2, 9), rounds=st.integers(1, 4))
@settings(max_examples=400)
def test_no_schedule_breaks_safety_or_stops_the_rounds(
    protocol: str, lossy: bool, seed: int, members: int, rounds: int
) -> None:
    adversary = Adversary(protocol, members, seed, lossy=lossy, rounds=rounds)
    adversary.attack()
    adversary.rest()

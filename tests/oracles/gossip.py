"""Gossip as guo Figs 4.5 and 4.6 print it, with sets and dictionaries and the two repairs of MODELS §1."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GossipMember:
    """One member: R, M, W, S, r, and the newest round whose S it knows."""

    rank: int
    received: list[int]
    members: set[int]
    piggyback: bool
    minimum: list[int] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)
    stable: list[int] = field(default_factory=list)
    round: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.stable = [0] * len(self.received)
        self.enter(1)

    def enter(self, number: int) -> None:
        self.round, self.minimum, self.heard = number, list(self.received), {self.rank}
        self.finish_if_covered()

    def learn(self, stable: list[int]) -> None:
        self.stable = [max(pair) for pair in zip(self.stable, stable, strict=True)]

    def finish_if_covered(self) -> None:
        if self.members <= self.heard:
            self.learn(self.minimum)
            self.done = max(self.done, self.round)

    def hear_gossip(self, number: int, minimum: list[int], heard: set[int], stable: list[int] | None) -> None:
        if stable is not None:
            self.learn(stable)
            if number > self.round:
                self.done = max(self.done, number - 1)
        if number < self.round or number <= self.done:
            return
        if number > self.round:
            self.round, self.minimum, self.heard = number, list(self.received), {self.rank}
        if not heard <= self.heard:
            if self.heard <= heard:
                self.minimum, self.heard = list(minimum), set(heard)
            else:
                self.minimum = [min(pair) for pair in zip(self.minimum, minimum, strict=True)]
                self.heard = self.heard | heard
        self.finish_if_covered()

    def hear_result(self, number: int, stable: list[int]) -> None:
        self.learn(stable)
        if number > self.done:
            self.done = number
            self.round = max(self.round, number)

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        if self.done < self.round:
            self.finish_if_covered()

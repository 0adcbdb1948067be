"""The cores say, message for message, what the paper's own pseudo-code says: reliable FIFO links, nobody fails."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocol.overlays import hypercube
from tests.oracles import stability as oracle
from tests.transcripts.talk import Talk

PROTOCOLS = ["coord", "full_dist", "s_coord", "s_coord relayed", "cube_full_dist"]


def reference(protocol: str, received: dict[int, oracle.Numbers]) -> oracle.Reference:
    if protocol == "cube_full_dist":
        offsets, near = hypercube(len(received))
        neighbours = {rank: near[offsets[rank] : offsets[rank + 1]].tolist() for rank in received}
        return oracle.CubeFullDist(received, neighbours)
    kinds: dict[str, Callable[[dict[int, oracle.Numbers]], oracle.Reference]] = {
        "coord": oracle.Coord,
        "full_dist": oracle.FullDist,
        "s_coord": oracle.SCoord,
        "s_coord relayed": oracle.RelayedSCoord,
    }
    return kinds[protocol](received)


class Pair:
    """The core and its reference, fed alike; links are FIFO, otherwise the order is random."""

    def __init__(self, protocol: str, received: list[list[int]], seed: int) -> None:
        self.random = random.Random(seed)
        name = protocol.removesuffix(" relayed")
        self.talk = Talk(name, received, **({"relayed": name != protocol} if name == "s_coord" else {}))
        self.reference = reference(protocol, {rank: tuple(row) for rank, row in enumerate(received)})

    def agree(self, source: int, sent: oracle.Sent, before: int) -> None:
        said = [
            (one.to, (one.kind, one.round, one.iteration, one.numbers, one.heard))
            for one in self.talk.under_way[before:]
        ]
        assert all(one.source == source for one in self.talk.under_way[before:])
        assert said == sent
        assert self.talk.done == list(self.reference.done.values())
        assert [tuple(self.talk.stable(rank)) for rank in self.reference.ranks] == list(self.reference.stable.values())

    def start(self) -> None:
        for rank in self.random.sample(self.reference.ranks, len(self.reference.ranks)):
            before = len(self.talk.under_way)
            self.talk.start(rank)
            self.agree(rank, self.reference.begin(rank, 1), before)

    def deliver(self) -> None:
        ways = sorted({(one.source, one.to) for one in self.talk.under_way})
        source, to = self.random.choice(ways)
        message = self.talk.lose(source=source, to=to)
        wire = (message.kind, message.round, message.iteration, message.numbers, message.heard)
        before = len(self.talk.under_way)
        self.talk.receive(message)
        self.agree(to, self.reference.receive(to, source, wire), before)

    def wake(self) -> None:
        any_timer = self.random.choice(self.talk.timers)
        before = len(self.talk.under_way)
        timer = self.talk.wake(any_timer.rank, any_timer.name)
        current = self.reference.done[timer.rank] == timer.tag
        self.agree(timer.rank, self.reference.begin(timer.rank, timer.tag + 1) if current else [], before)

    def grow(self) -> None:
        """A member holds one more message of some sender."""
        rank = self.random.choice(self.reference.ranks)
        sender = self.random.randrange(self.talk.group.received.shape[1])
        self.talk.group.received[rank, sender] += 1
        self.reference.received[rank] = tuple(int(one) for one in self.talk.group.received[rank])

    def run(self, rounds: int, growth: float) -> None:
        self.start()
        while min(self.talk.done) < rounds:
            if self.random.random() < growth:
                self.grow()
            if self.talk.under_way and (not self.talk.timers or self.random.random() < 0.8):
                self.deliver()
            else:
                self.wake()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(
    seed=st.integers(0, 2**32), members=st.integers(2, 11), senders=st.integers(1, 3), growth=st.sampled_from([0, 0.3])
)
@settings(max_examples=60)
def test_the_core_and_the_paper_say_the_same(
    protocol: str, seed: int, members: int, senders: int, growth: float
) -> None:
    draw = random.Random(seed)
    received = [[draw.randint(0, 9) for _ in range(senders)] for _ in range(members)]
    Pair(protocol, received, seed).run(rounds=3, growth=growth)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(seed=st.integers(0, 2**32), members=st.integers(2, 20))
@settings(max_examples=40)
def test_in_a_frozen_reliable_round_everybody_ends_with_the_true_minimum(
    protocol: str, seed: int, members: int
) -> None:
    """S is the element-wise minimum of all R, at every member (MODELS §1)."""
    draw = random.Random(seed)
    received = [[draw.randint(0, 99) for _ in range(3)] for _ in range(members)]
    pair = Pair(protocol, received, seed)
    pair.run(rounds=1, growth=0)
    wanted = oracle.true_minimum({rank: tuple(row) for rank, row in enumerate(received)}, range(members))
    assert {tuple(pair.talk.stable(rank)) for rank in range(members)} == {wanted}

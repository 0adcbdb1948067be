"""Dissemination and cascade do what plain dictionaries do, and every overlay covers everyone, whoever is left."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocol import rank_sets
from tests.oracles import stability as oracle
from tests.property.test_stability_reference import Pair
from tests.transcripts.talk import Talk

KINDS = ["dissemination", "tree", "dissemination pattern", "hypercube"]


def protocol_of(kind: str, fanout: int) -> tuple[str, dict[str, Any]]:
    """The protocol and its parameters."""
    if kind == "dissemination":
        return "dissemination", {"radix": fanout}
    overlay = kind.partition(" ")[0]
    return "cascade", {"overlay": overlay, "tree_degree": fanout, "radix": fanout}


def edges_of(kind: str, members: int, fanout: int) -> tuple[oracle.Edges, oracle.Edges]:
    """The overlay of the oracle."""
    if kind == "tree":
        return oracle.tree_edges(members, fanout)
    return oracle.cube_edges(members) if kind == "hypercube" else oracle.dissemination_edges(members, fanout)


class AggregationPair(Pair):
    """The core and its oracle. Timers ring only when nothing is under way: none of them is then overdue."""

    def __init__(self, kind: str, fanout: int, received: list[list[int]], seed: int) -> None:
        self.random = random.Random(seed)
        protocol, parameters = protocol_of(kind, fanout)
        self.talk = Talk(protocol, received, **parameters)
        plain = {rank: tuple(row) for rank, row in enumerate(received)}
        self.reference = oracle.Aggregation(plain, edges_of(kind, len(received), fanout))

    def run(self, rounds: int, growth: float) -> None:
        self.start()
        while min(self.talk.done) < rounds:
            if self.talk.under_way:
                if self.random.random() < growth:
                    self.grow()
                self.deliver()
                continue
            for rank in self.reference.ranks:  # whoever has something unstable begins the next wave
                self.talk.group.received[rank] += 1
                self.reference.received[rank] = tuple(int(one) for one in self.talk.group.received[rank])
            self.talk.timers = [timer for timer in self.talk.timers if timer.name == "NEXT_ROUND"]
            self.wake()


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**32), members=st.integers(2, 12), fanout=st.integers(2, 4), growth=st.sampled_from([0, 0.3])
)
@settings(max_examples=60)
def test_the_core_and_the_oracle_say_the_same(kind: str, seed: int, members: int, fanout: int, growth: float) -> None:
    draw = random.Random(seed)
    received = [[draw.randint(1, 9) for _ in range(2)] for _ in range(members)]
    AggregationPair(kind, fanout, received, seed).run(rounds=3, growth=growth)


def covered(talk: Talk, alive: list[int]) -> dict[tuple[int, int], set[int]]:
    """Whose R is in the minimum of each member and level, from the tables of the core alone."""
    links = talk.state.links
    found: dict[tuple[int, int], set[int]] = {(rank, 0): {rank} for rank in alive}
    sends = {
        (rank, int(links.outputs[rank, k])): int(links.output_levels[rank, k])
        for rank in alive
        for k in range(links.output_count[rank])
    }

    def at(rank: int, level: int) -> set[int]:
        if (rank, level) not in found:
            whole = set(at(rank, level - 1))
            for k in range(links.input_count[rank]):
                if links.input_levels[rank, k] == level:
                    source = int(links.inputs[rank, k])
                    whole |= at(source, sends[source, rank])
            found[rank, level] = whole
        return found[rank, level]

    for rank in alive:
        at(rank, int(links.top[rank]))
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32), members=st.integers(1, 70), fanout=st.integers(2, 5))
@settings(max_examples=60)
def test_the_top_covers_whoever_is_left(kind: str, seed: int, members: int, fanout: int) -> None:
    """However many members there are, and whoever of them is gone."""
    draw = random.Random(seed)
    alive = sorted(draw.sample(range(members), draw.randint(1, members)))
    protocol, parameters = protocol_of(kind, fanout)
    talk = Talk(protocol, [[1]] * members, **parameters)
    for rank in alive:
        rank_sets.clear(talk.group.members[rank])
        for other in alive:
            rank_sets.add(talk.group.members[rank], other)
    talk.start(*alive)
    found = covered(talk, alive)
    for rank in alive:
        assert found[rank, int(talk.state.links.top[rank])] == set(alive)
        peers = talk.state.links.inputs[rank, : talk.state.links.input_count[rank]].tolist()
        assert len(peers) == len(set(peers))
        assert rank not in peers


@pytest.mark.parametrize("fanout", [2, 3, 4])
@pytest.mark.parametrize("members", [2, 3, 8, 9, 27, 33])
def test_a_round_of_dissemination_costs_what_it_should(members: int, fanout: int) -> None:
    """At most (b − 1)·n·⌈log_b n⌉ messages, and as many for any n that is a power of b."""
    talk = Talk("dissemination", [[1]] * members, radix=fanout)
    talk.start()
    count = 0
    while talk.under_way:
        count += 1
        talk.receive(talk.under_way.pop(0))
    steps = next(step for step in range(9) if fanout**step >= members)
    most = (fanout - 1) * members * steps
    assert count == most if fanout**steps == members else count <= most
    assert talk.done == [1] * members

"""Gossip-style failure detection, flat and in local groups, against its rules written out with lists, step by step."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocols.catalogue import detector_named
from cubecast.protocols.failure.structured_gossip import LOCAL
from tests.transcripts.exchange import Exchange

STEP_NS = 100

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("hear"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("deliver"), st.integers(0, 1_000_000), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 4), st.integers(0, 4)),
    ),
    max_size=80,
)


@settings(max_examples=100)
@given(moves=MOVES, threshold=st.integers(1, 6), subset=st.integers(1, 4))
def test_the_live_array_is_that_of_the_pseudo_code(
    moves: list[tuple[str, int, int]], threshold: int, subset: int
) -> None:
    talk = Exchange(detector_named("gossip"), members=5, step_ms=STEP_NS / 1e6, threshold=threshold, subset=subset)
    talk.start()
    live = [[0] * 5 for _ in range(5)]
    members = [set(range(5)) for _ in range(5)]
    suspected: list[tuple[int, int]] = []
    for move, one, other in moves:
        if move == "step":
            alarm = next(alarm for alarm in talk.alarms if alarm.rank == one)
            talk.alarms.remove(alarm)
            for rank in sorted(members[one] - {one}):
                live[one][rank] += 1
                if live[one][rank] >= threshold:
                    suspected.append((one, rank))
            talk.ring(alarm)
        elif move == "hear" and one != other:
            if other in members[one]:
                live[one][other] = 0
            talk.hear(one, other)
        elif move == "deliver" and talk.under_way:
            copy = talk.under_way.pop(one % len(talk.under_way))
            for rank in members[copy.to]:
                live[copy.to][rank] = min(live[copy.to][rank], copy.numbers[rank])
            talk.receive(copy)
        elif move == "leave" and one != other:
            members[one] -= {other}
            talk.leave(one, other)
        assert talk.state.silent.tolist() == live
        assert talk.suspected == suspected


class _Structured:
    """Two levels of live arrays with plain lists and sets; local groups of two, ranks in order."""

    def __init__(self, members: int, threshold: int, group_threshold: int) -> None:
        self.threshold, self.group_threshold = threshold, group_threshold
        self.groups = [set(range(first, min(first + 2, members))) for first in range(0, members, 2)]
        self.silent = [[0] * members for _ in range(members)]
        self.silent_groups = [[0] * len(self.groups) for _ in range(members)]
        self.failed: list[set[int]] = [set() for _ in range(members)]
        self.members = [set(range(members)) for _ in range(members)]
        self.suspected: list[tuple[int, int]] = []

    def step(self, one: int) -> None:
        for rank in sorted(self.groups[one // 2] & self.members[one] - {one}):
            self.silent[one][rank] += 1
            if self.silent[one][rank] >= self.threshold:
                self.failed[one].add(rank)
                self.suspected.append((one, rank))
        for group, ranks in enumerate(self.groups):
            if group != one // 2:
                self.silent_groups[one][group] = min(self.silent_groups[one][group] + 1, self.group_threshold)
                if self.silent_groups[one][group] == self.group_threshold:
                    self.suspected += [(one, rank) for rank in sorted(ranks & self.members[one])]

    def hear(self, one: int, other: int) -> None:
        if one // 2 == other // 2:
            self.silent[one][other] = 0
        else:
            self.silent_groups[one][other // 2] = 0

    def take(self, one: int, kind: int, numbers: tuple[int, ...], failed: set[int]) -> None:
        own = sorted(self.groups[one // 2])
        if kind == LOCAL:
            for place, rank in enumerate(own):
                if rank in self.members[one]:
                    self.silent[one][rank] = min(self.silent[one][rank], numbers[place])
            numbers = numbers[len(own) :]
        for group in set(range(len(self.groups))) - {one // 2}:
            self.silent_groups[one][group] = min(self.silent_groups[one][group], numbers[group])
        for rank in sorted(failed - self.failed[one] - {one}):
            self.failed[one].add(rank)
            if rank in self.members[one]:
                self.suspected.append((one, rank))


@settings(max_examples=100)
@given(moves=MOVES, threshold=st.integers(1, 6), group_threshold=st.integers(1, 8))
def test_the_arrays_of_local_groups_are_those_of_plain_lists(
    moves: list[tuple[str, int, int]], threshold: int, group_threshold: int
) -> None:
    talk = Exchange(
        detector_named("structured_gossip"),
        members=5,
        step_ms=STEP_NS / 1e6,
        threshold=threshold,
        group_size=2,
        group_threshold=group_threshold,
    )
    talk.start()
    oracle = _Structured(5, threshold, group_threshold)
    for move, one, other in moves:
        if move == "step":
            alarm = next(alarm for alarm in talk.alarms if alarm.rank == one)
            talk.alarms.remove(alarm)
            oracle.step(one)
            talk.ring(alarm)
        elif move == "hear" and one != other:
            oracle.hear(one, other)
            talk.hear(one, other)
        elif move == "deliver" and talk.under_way:
            copy = talk.under_way.pop(one % len(talk.under_way))
            failed = {rank for rank in range(5) if copy.mask >> rank & 1}
            oracle.take(copy.to, copy.kind, copy.numbers, failed)
            talk.receive(copy)
        elif move == "leave" and one != other:
            oracle.members[one] -= {other}
            talk.leave(one, other)
        assert talk.state.silent.tolist() == oracle.silent
        assert talk.state.silent_groups.tolist() == oracle.silent_groups
        assert talk.suspected == oracle.suspected

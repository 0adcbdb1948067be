"""Gossip-style failure detection against Fig 3.1 written out with lists, step by step."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocols.catalogue import detector_named
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

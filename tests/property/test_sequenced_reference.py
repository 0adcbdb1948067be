"""Shared sequences against a slow oracle, while an adversary loses, doubles and reorders what it likes (guo ch. 7).

At every step each sequencer has numbered what the oracle has, and nobody holds more than that. When the adversary
stops, every message of every sender has one number, the messages of a sender in its order, and every member holds all
of them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubecast.protocols.catalogue import transport_named
from cubecast.protocols.transport.window import SUBMIT
from tests.oracles.sequencer import Sequencers
from tests.transcripts.exchange import Copy, Exchange

REPEAT_NS = 1000
MEMBERS = 5
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, MEMBERS - 1)),
        st.tuples(st.sampled_from(["deliver", "lose", "double"]), st.integers(0, 1_000_000)),
        st.tuples(st.just("wait"), st.integers(1, 3 * REPEAT_NS)),
    ),
    max_size=60,
)


def check(talk: Exchange, oracle: Sequencers) -> None:
    received = talk.received()
    for sequence, log in enumerate(oracle.logs):
        assert received[sequence][sequence] == len(log)
        assert max(row[sequence] for row in received) == len(log)


def arrive(talk: Exchange, oracle: Sequencers, copy: Copy) -> None:
    if copy.kind == SUBMIT:
        assert copy.to == copy.sender == copy.source % len(oracle.logs)
        oracle.submit(copy.to, copy.source, copy.sequence)
    talk.receive(copy)
    check(talk, oracle)


def let_everything_arrive(talk: Exchange, oracle: Sequencers, published: list[int]) -> None:
    for _ in range(200):
        for _ in range(5_000):
            if not talk.under_way:
                break
            arrive(talk, oracle, talk.under_way.pop(0))
        if all(row == [len(log) for log in oracle.logs] for row in talk.received()) and sum(
            len(log) for log in oracle.logs
        ) == sum(published):
            return
        talk.pass_time(REPEAT_NS)
    raise AssertionError("the messages never arrive")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(moves=MOVES, sequences=st.integers(1, MEMBERS), wait_ns=st.sampled_from([0, 250]))
def test_every_message_gets_one_number_in_the_order_of_its_sender(
    moves: list[tuple[str, int]], sequences: int, wait_ns: int
) -> None:
    talk = Exchange(
        transport_named("sequenced"), members=MEMBERS, senders=sequences, repeat_ns=REPEAT_NS, wait_ns=wait_ns
    )
    oracle = Sequencers(sequences)
    published = [0] * MEMBERS
    for move, value in moves:
        if move == "publish":
            published[value] += 1
            oracle.publish(value, published[value])
            talk.publish(value)
        elif move == "wait":
            talk.pass_time(value)
        elif talk.under_way:
            place = value % len(talk.under_way)
            copy = talk.under_way[place] if move == "double" else talk.under_way.pop(place)
            if move != "lose":
                arrive(talk, oracle, copy)
        check(talk, oracle)
    let_everything_arrive(talk, oracle, published)
    for sender, count in enumerate(published):
        assert oracle.of_sender(sender) == list(range(1, count + 1))
    lines = [line for line in talk.lines if "delivers" in line]
    assert len(lines) == len(set(lines)) == MEMBERS * sum(published)

"""An adversary schedules the reliable multicast families: it loses, doubles, reorders and delays what it likes.

The oracle keeps, for every member, the set of messages that reached it, and nothing else. At every step R must be the
longest unbroken run of that set, deliveries must come once and in order, and nothing may be called stable that some
member lacks. When the adversary stops, everything must reach all members.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubecast.protocol.definition import Protocol
from cubecast.protocol.mail import PAYLOAD
from cubecast.protocols.catalogue import list_protocols
from tests.transcripts.exchange import Copy, Exchange

REPEAT_NS = 1000


class Oracle:
    """The messages that reached each member."""

    def __init__(self, members: int, senders: int) -> None:
        self.held = [[set() for _ in range(senders)] for _ in range(members)]  # type: list[list[set[int]]]
        self.duplicates = [0] * members

    def take_in(self, copy: Copy) -> None:
        if copy.kind == PAYLOAD:
            if copy.sequence in self.held[copy.to][copy.sender]:
                self.duplicates[copy.to] += 1
            self.held[copy.to][copy.sender].add(copy.sequence)

    def received(self) -> list[list[int]]:
        return [[_unbroken(numbers) for numbers in row] for row in self.held]


def _unbroken(numbers: set[int]) -> int:
    last = 0
    while last + 1 in numbers:
        last += 1
    return last


def check(talk: Exchange, oracle: Oracle) -> None:
    received = oracle.received()
    assert talk.received() == received
    assert talk.state.window.duplicates.tolist() == oracle.duplicates
    for row in talk.stable():
        for sender, number in enumerate(row):
            assert number <= min(held[sender] for held in received)


def arrive(talk: Exchange, oracle: Oracle, copy: Copy) -> None:
    oracle.take_in(copy)
    talk.receive(copy)


def deliveries(talk: Exchange) -> list[str]:
    return [line for line in talk.lines if "delivers" in line]


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 1)),
        st.tuples(st.sampled_from(["deliver", "lose", "double"]), st.integers(0, 1_000_000)),
        st.tuples(st.just("wait"), st.integers(1, 3 * REPEAT_NS)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("transport", list_protocols("transport"), ids=lambda one: one.name)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    moves=MOVES,
    members=st.integers(2, 5),
    repair=st.sampled_from(["multicast", "unicast"]),
    wait_ns=st.sampled_from([0, 250]),
)
def test_every_message_reaches_everybody_once_and_in_order(
    transport: Protocol, moves: list[tuple[str, int]], members: int, repair: str, wait_ns: int
) -> None:
    talk = Exchange(
        transport,
        members=members,
        senders=2,
        repeat_ns=REPEAT_NS,
        wait_ns=wait_ns,
        where_known={"repair": repair, "tree_degree": 2},
    )
    oracle = Oracle(members, 2)
    published = [0, 0]
    for move, value in moves:
        if move == "publish":
            published[value] += 1
            oracle.held[value][value].add(published[value])
            talk.publish(value)
        elif move == "wait":
            talk.pass_time(value)
        elif talk.under_way:
            place = value % len(talk.under_way)
            copy = talk.under_way[place] if move == "double" else talk.under_way.pop(place)
            if move != "lose":
                arrive(talk, oracle, copy)
        check(talk, oracle)
    _let_everything_arrive(talk, oracle, published)
    assert talk.received() == [published] * members
    lines = deliveries(talk)
    assert len(lines) == len(set(lines)) == members * sum(published)
    for rank in range(members):
        for sender in (0, 1):
            mine = [line for line in lines if line.startswith(f"{rank} delivers {sender}.")]
            assert mine == [f"{rank} delivers {sender}.{number}" for number in range(1, published[sender] + 1)]


def _let_everything_arrive(talk: Exchange, oracle: Oracle, published: list[int]) -> None:
    for _ in range(200):
        for _ in range(5_000):
            if not talk.under_way:
                break
            arrive(talk, oracle, talk.under_way.pop(0))
        check(talk, oracle)
        if all(row == published for row in talk.received()):
            return
        talk.pass_time(REPEAT_NS // 4)
    raise AssertionError(f"after 50 waits without loss: {talk.received()} of {published}")

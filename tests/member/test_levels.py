"""What follows from the minimum of all contributions, by hand and against an oracle that knows the whole history."""

from __future__ import annotations

import random

import numpy as np

from cubecast.member.levels import BLOCKS, DURABLE, PROCESSED, RECEIVED, SENT, Levels
from cubecast.protocol.group import NOTHING


def _fold(levels: list[Levels]) -> None:
    """One round: all contribute now, all learn the minimum."""
    minimum = np.minimum.reduce([one.group.received[0] for one in levels])
    for one in levels:
        np.maximum(one.group.stable[0], minimum, out=one.group.stable[0])


def test_one_round_by_hand() -> None:
    """Rank 1 has multicast two messages, of which rank 0 has processed one."""
    levels = [Levels(rank, 2, is_durable=rank == 0) for rank in range(2)]
    levels[0].block(RECEIVED)[:] = [3, 2]
    levels[0].block(PROCESSED)[:] = [1 + 3, 1 + 1]
    levels[0].block(DURABLE)[:] = [1 + 3, 1 + 0]
    levels[0].sent(3)
    levels[1].block(RECEIVED)[:] = [2, 2]
    levels[1].block(PROCESSED)[:] = [1 + 2, 1 + 2]
    levels[1].sent(2)
    _fold(levels)
    assert levels[0].of_all(RECEIVED).tolist() == [2, 2]
    assert levels[0].of_all(PROCESSED).tolist() == [3, 2]
    assert levels[0].of_all(DURABLE).tolist() == [4, 1], "who has no journal has nothing to say"
    assert levels[0].of_all(SENT).tolist() == [3, 2], "each rank counts its own"
    assert not levels[0].learn([3, 1]), "the second message of rank 1 may be concurrent with everything"
    assert levels[0].causal == [0, 0]
    assert levels[0].catch_up([3, 2])
    assert levels[0].causal == [3, 2]
    assert not levels[1].learn([2, 2]), "nor has rank 1 processed the third of rank 0"
    assert levels[1].catch_up([3, 2])


def test_an_earlier_result_is_not_forgotten_while_messages_flow() -> None:
    levels = [Levels(rank, 2, is_durable=False) for rank in range(2)]
    for count in range(1, 200):
        for one in levels:
            one.block(PROCESSED)[:] = 1 + count - 1
            one.sent(count)
        _fold(levels)
        levels[0].learn([count - 1, count - 1])  # always one behind the newest V
    assert levels[0].causal[0] >= 100
    assert len(levels[0]._pending) <= 32


def test_nothing_to_say_is_not_behind() -> None:
    levels = Levels(0, 2, is_durable=False)
    assert not bool(levels.is_behind)
    levels.block(PROCESSED)[:] = 1
    assert bool(levels.is_behind)
    levels.fold_alone()
    assert not bool(levels.is_behind)
    assert int(levels.of_all(DURABLE)[0]) == NOTHING


def test_a_counted_call_stays_counted() -> None:
    levels = Levels(1, 2, is_durable=False)
    levels.sent(5)
    levels.sent(3)
    assert int(levels.block(SENT)[1]) == 5
    assert levels.is_overcounted(3)
    assert not levels.is_overcounted(5)


class _History:
    """Members that multicast and deal with messages in any causal order; an oracle knows who followed what."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.count = draw.randint(2, 4)
        self.levels = [Levels(rank, self.count, is_durable=False) for rank in range(self.count)]
        self.dealt = [[0] * self.count for _ in range(self.count)]
        self.past: dict[tuple[int, int], list[int]] = {}
        self.made = [0] * self.count
        self.contributed = [one.group.received[0].copy() for one in self.levels]

    def multicast(self, rank: int) -> None:
        self.made[rank] += 1
        self.past[rank, self.made[rank]] = list(self.dealt[rank])

    def deal(self, rank: int) -> None:
        """The application of a rank takes a message whose causes it has."""
        dealt = self.dealt[rank]
        for sender in self.draw.sample(range(self.count), self.count):
            number = dealt[sender] + 1
            past = self.past.get((sender, number))
            if past is not None and all(a <= b for a, b in zip(past, dealt, strict=True)):
                self.judge(rank, sender, number)
                dealt[sender] = number
                self.levels[rank].catch_up(dealt)
                return

    def judge(self, rank: int, sender: int, number: int) -> None:
        past = self.past[sender, number]
        for other in range(self.count):
            causal = self.levels[rank].causal[other] - 1
            assert other == sender or past[other] >= causal, f"{sender}/{number} does not follow {other}/{causal}"

    def contribute(self, rank: int) -> None:
        levels = self.levels[rank]
        levels.block(PROCESSED)[:] = [1 + one for one in self.dealt[rank]]
        levels.sent(self.made[rank])
        self.contributed[rank] = levels.group.received[0].copy()

    def end_round(self) -> None:
        """Contributions are of different moments; one rank after the other learns the minimum."""
        minimum = np.minimum.reduce(self.contributed)
        rank = self.draw.randrange(self.count)
        stable = self.levels[rank].group.stable[0]
        np.maximum(stable, minimum, out=stable)
        self.levels[rank].learn(self.dealt[rank])


def test_after_a_message_is_causally_stable_only_messages_that_follow_it_come() -> None:
    reached = 0
    for seed in range(300):
        history = _History(random.Random(seed))
        for _ in range(150):
            what = history.draw.choice([history.multicast, history.deal, history.deal, history.contribute])
            what(history.draw.randrange(history.count))
            if history.draw.random() < 0.3:
                history.end_round()
        reached += sum(sum(one.causal) for one in history.levels)
    assert reached > 1000, "nothing became causally stable: the test tests nothing"


def test_the_oracle_catches_a_member_that_does_not_wait_for_what_was_sent() -> None:
    """The safeguard: without V, messages that are concurrent with a stable one still come."""
    caught = 0
    for seed in range(60):
        history = _History(random.Random(seed))
        for levels in history.levels:
            levels.sent = lambda count: None  # type: ignore[method-assign]
        try:
            for _ in range(150):
                what = history.draw.choice([history.multicast, history.deal, history.deal, history.contribute])
                what(history.draw.randrange(history.count))
                if history.draw.random() < 0.3:
                    history.end_round()
        except AssertionError:
            caught += 1
    assert caught > 20


def test_the_vector_has_one_number_per_block_and_rank() -> None:
    levels = Levels(2, 5, is_durable=True)
    assert levels.group.received.shape == (1, 5 * BLOCKS)
    assert levels.block(SENT).tolist() == [NOTHING, NOTHING, 0, NOTHING, NOTHING]
    assert levels.block(DURABLE).tolist() == [0] * 5

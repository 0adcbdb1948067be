"""Gossip handles every message as the pseudo-code does, under loss, duplication, delays and leaves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.gossip import GossipMember
from tests.transcripts.talk import Message, Talk

SENDERS = 2


class Pair:
    """The core and the oracle, fed alike."""

    def __init__(self, members: int, seed: int, *, piggyback: bool, lossy: bool) -> None:
        self.draw = random.Random(seed)
        received = [[self.draw.randint(0, 9) for _ in range(SENDERS)] for _ in range(members)]
        subset = self.draw.randint(1, min(3, members - 1))
        ending = "piggyback" if piggyback else "optimised"
        self.talk = Talk("gossip", received, lossy=lossy, ending=ending, subset=subset)
        self.talk.start()
        everyone = set(range(members))
        self.oracle = [
            GossipMember(rank=rank, received=row, members=set(everyone), piggyback=piggyback)
            for rank, row in enumerate(received)
        ]
        self.piggyback = piggyback
        self.gone: set[int] = set()

    def happen(self) -> None:
        what = self.draw.random()
        if what < 0.5 and self.talk.under_way:
            message = self.draw.choice(self.talk.under_way)
            if self.draw.random() < 0.8:
                self.talk.under_way.remove(message)
            if self.draw.random() < 0.9:
                self.receive(message)
        elif what < 0.9:
            self.wake(self.draw.choice([timer for timer in self.talk.timers if timer.rank not in self.gone]))
        elif what < 0.97:
            self.deliver_data()
        elif len(self.gone) < self.talk.members - 2:
            self.leave(self.draw.choice([rank for rank in range(self.talk.members) if rank not in self.gone]))

    def receive(self, message: Message) -> None:
        self.talk.receive(message)
        member = self.oracle[message.to]
        if message.kind == "INFO":
            member.hear_result(message.round, list(message.numbers[:SENDERS]))
        else:
            stable = list(message.numbers[SENDERS:]) if self.piggyback else None
            member.hear_gossip(message.round, list(message.numbers[:SENDERS]), set(message.heard), stable)

    def wake(self, timer: object) -> None:
        woken = self.talk.wake(timer.rank, timer.name)  # type: ignore[attr-defined]
        member = self.oracle[woken.rank]
        if woken.name == "NEXT_ROUND" and member.done == woken.tag == member.round:
            member.enter(woken.tag + 1)

    def deliver_data(self) -> None:
        rank, sender = self.draw.randrange(self.talk.members), self.draw.randrange(SENDERS)
        self.talk.group.received[rank, sender] += 1
        self.oracle[rank].received[sender] += 1

    def leave(self, who: int) -> None:
        self.gone.add(who)
        self.talk.crash(who)
        for rank in range(self.talk.members):
            if rank not in self.gone:
                self.talk.leave(rank, who)
                self.oracle[rank].leave(who)

    def agree(self) -> None:
        for member in self.oracle:
            rank = member.rank
            if rank in self.gone:
                continue
            heard = {other for other in range(self.talk.members) if int(self.talk.state.heard[rank, 0]) >> other & 1}
            assert (int(self.talk.state.round[rank]), self.talk.done[rank]) == (member.round, member.done)
            assert self.talk.stable(rank) == member.stable
            assert (self.talk.state.minimum[rank].tolist(), heard) == (member.minimum, member.heard)

    def is_safe(self) -> None:
        """Nobody calls stable what a member that is still there lacks."""
        up = [rank for rank in range(self.talk.members) if rank not in self.gone]
        for sender in range(SENDERS):
            least = min(int(self.talk.group.received[rank, sender]) for rank in up)
            assert all(self.talk.stable(rank)[sender] <= least for rank in up)


@pytest.mark.parametrize("piggyback", [False, True])
@given(members=st.integers(2, 6), seed=st.integers(0, 2**32), lossy=st.booleans())
@settings(max_examples=60)
def test_every_message_has_the_effect_that_the_paper_prints(
    piggyback: bool, members: int, seed: int, lossy: bool
) -> None:
    pair = Pair(members, seed, piggyback=piggyback, lossy=lossy)
    pair.agree()
    for _ in range(120):
        pair.happen()
        pair.agree()
        pair.is_safe()

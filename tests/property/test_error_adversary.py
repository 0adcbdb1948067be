"""Error detection under the adversary: the same protocols with max instead of min (guo ch. 7).

R is the highest number a member has seen. No member may report a message that no member has seen, and once a round
that began after the adversary rests is over, every member knows the highest number that anyone alive has seen.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocol.group import ERRORS
from tests.property.test_stability_adversary import PROTOCOLS, STEPS, Adversary


class ErrorAdversary(Adversary):
    """The same attacks; what is judged is the maximum."""

    goal = ERRORS

    def judge(self) -> None:
        group = self.talk.group
        seen = group.received.max(axis=0)
        assert (group.stable <= seen).all(), self.talk.said()
        assert (group.stable >= self.before).all()
        self.before = group.stable.copy()


@pytest.mark.parametrize("lossy", [False, True], ids=["reliable", "lossy"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(seed=st.integers(0, 2**40), members=st.integers(2, 9))
@settings(max_examples=100)
def test_everybody_learns_what_anybody_has_seen(protocol: str, lossy: bool, seed: int, members: int) -> None:
    adversary = ErrorAdversary(protocol, members, seed, lossy=lossy, rounds=STEPS)
    adversary.attack()
    # Two more rounds: one may be under way, begun before the last number was seen.
    adversary.rounds = max(adversary.talk.begun) + 2
    adversary.rest()
    alive = sorted(adversary.alive)
    wanted = adversary.talk.group.received[alive].max(axis=0)
    assert (adversary.talk.group.stable[alive] >= wanted).all(), adversary.talk.said()

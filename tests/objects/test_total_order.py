"""Total order: all members give the same sequence, whatever they are given when."""

from __future__ import annotations

import random

from cubecast.objects.total_order import Key, TotalOrder
from cubecast.protocols.membership.views import MemberId

A, B, C = (MemberId(name, 1) for name in "abc")


def test_a_message_waits_until_no_smaller_one_can_come() -> None:
    order: TotalOrder[str] = TotalOrder()
    order.add(Key(1, 5, B, 1), "five")
    assert order.stable(lambda _key: False) == []
    order.add(Key(1, 3, A, 1), "three")
    order.add(Key(1, 9, C, 1), "nine")
    assert order.stable(lambda key: key.clock == 5) == [], "not all members have number three"
    assert [item for _, item in order.stable(lambda key: key.clock <= 5)] == ["three", "five"]
    assert [item for _, item in order.waiting] == ["nine"]


def test_a_new_view_ends_the_wait_of_all_earlier_ones() -> None:
    order: TotalOrder[str] = TotalOrder()
    order.add(Key(2, 1, A, 1), "later view")
    order.add(Key(1, 7, B, 1), "seven")
    order.add(Key(1, 7, A, 2), "seven, of a smaller member")
    assert [item for _, item in order.begin_view(2)] == ["seven, of a smaller member", "seven"]
    assert [item for _, item in order.waiting] == ["later view"]


class _Member:
    """A member that delivers in causal order and learns of causal stability late."""

    def __init__(self) -> None:
        self.clock = 0
        self.delivered: set[int] = set()
        self.order: TotalOrder[int] = TotalOrder()
        self.given: list[int] = []

    def deliver(self, number: int, keys: list[Key]) -> None:
        self.delivered.add(number)
        self.clock = max(self.clock, keys[number].clock)
        self.order.add(keys[number], number)


def test_members_with_different_delays_give_the_same_sequence() -> None:
    """Random histories of one view: a message is causally stable at a member when all that it lacks follow it."""
    given = 0
    for seed in range(200):
        draw = random.Random(seed)
        members = [_Member() for _ in range(3)]
        past: list[set[int]] = []
        keys: list[Key] = []
        for _ in range(120):
            rank = draw.randrange(3)
            member = members[rank]
            if draw.random() < 0.3:
                past.append(set(member.delivered))
                keys.append(Key(1, member.clock + 1, (A, B, C)[rank], len(keys)))
                member.deliver(len(keys) - 1, keys)
            else:
                lacking = [n for n in range(len(keys)) if n not in member.delivered and past[n] <= member.delivered]
                if lacking:
                    member.deliver(draw.choice(lacking), keys)
            lacks = [past[n] for n in range(len(keys)) if n not in member.delivered]
            # Nobody will make a message that does not follow what all have delivered.
            everywhere = set.intersection(*(one.delivered for one in members))
            stable = {n for n in everywhere if all(n in one for one in lacks)}
            member.given += [item for _, item in member.order.stable(lambda key, s=stable: key.sequence in s)]  # type: ignore[misc]
        longest = max((one.given for one in members), key=len)
        given += len(longest)
        for one in members:
            assert one.given == longest[: len(one.given)]
            assert one.given == sorted(one.given, key=lambda number: keys[number])
    assert given > 1000

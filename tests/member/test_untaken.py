"""What the application has processed, from the bytes it reports."""

from __future__ import annotations

import random

from cubecast.member.effects import Delivery
from cubecast.member.untaken import Untaken
from cubecast.protocols.membership.views import MemberId, View

MEMBERS = tuple(MemberId(name, 1) for name in "abc")


def _view(number: int, sent: tuple[int, ...], members: tuple[MemberId, ...] = MEMBERS) -> View:
    return View(number, number, 1, members, (), (), sent)


def _delivery(view: View, rank: int, number: int, size: int = 10) -> Delivery:
    return Delivery(view.members[rank], view.number, view.sent[rank] + number, bytes(size))


def test_bytes_tell_which_deliveries_were_processed() -> None:
    view = _view(3, (5, 0, 7))
    untaken = Untaken()
    untaken.begin_view(view)
    untaken.add([_delivery(view, 0, 1), _delivery(view, 0, 2), _delivery(view, 2, 1)], 30)
    untaken.add([_delivery(view, 1, 1, 7)], 7)
    untaken.take(9)
    assert untaken.processed == [0, 0, 0]
    untaken.take(12)
    assert untaken.processed == [2, 0, 0]
    untaken.take(9)
    assert untaken.processed == [2, 0, 1]
    untaken.take(7)
    assert untaken.processed == [2, 1, 1]


def test_what_is_left_of_earlier_views_comes_first_and_is_not_counted() -> None:
    old, new = _view(3, (0, 0, 0)), _view(4, (2, 0, 0))
    untaken = Untaken()
    untaken.begin_view(old)
    untaken.add([_delivery(old, 0, 1), _delivery(old, 0, 2)], 20)
    untaken.take(10)
    assert bool(untaken.has_passed)
    untaken.begin_view(new)
    assert not bool(untaken.has_passed)
    untaken.add([_delivery(new, 1, 1)], 10)
    untaken.take(10)
    assert bool(untaken.has_passed)
    assert untaken.processed == [0, 0, 0]
    untaken.take(10)
    assert untaken.processed == [0, 1, 0]


def test_a_newcomer_is_given_deliveries_of_an_earlier_view_after_a_later_one_began() -> None:
    """They waited for the state, and one of their senders is gone."""
    old, new = _view(3, (0, 0, 0)), _view(4, (0, 0), MEMBERS[:2])
    untaken = Untaken()
    untaken.begin_view(old)
    untaken.begin_view(new)
    untaken.add([_delivery(old, 2, 1)], 10)
    untaken.add([_delivery(new, 1, 1)], 10)
    assert not bool(untaken.has_passed)
    untaken.take(20)
    assert bool(untaken.has_passed)
    assert untaken.processed == [0, 1]


def test_random_reports_agree_with_a_count_one_by_one() -> None:
    draw = random.Random(5)
    for _ in range(200):
        view = _view(1, (0, 0, 0))
        untaken = Untaken()
        untaken.begin_view(view)
        last = [0, 0, 0]
        given: list[Delivery] = []
        for _ in range(draw.randint(1, 8)):
            batch = []
            for _ in range(draw.randint(1, 6)):
                rank = draw.randrange(3)
                last[rank] += 1
                batch.append(_delivery(view, rank, last[rank], draw.randint(1, 9)))
            given += batch
            untaken.add(batch, sum(len(one.record) for one in batch))
        taken = 0
        while given:
            octets = draw.randint(1, 25)
            taken += octets
            untaken.take(octets)
            while given and len(given[0].record) <= taken:
                taken -= len(given.pop(0).record)
            rest = [sum(one.sender == who for one in given) for who in MEMBERS]
            assert untaken.processed == [all_ - left for all_, left in zip(last, rest, strict=True)]
            if taken > 9:
                break

"""Whole members whose ranks change with every view: histories without a violation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cubecast.fuzz.histories import run_history
from cubecast.member.member import Member
from cubecast.member.reranking import Measured
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import MemberId, Vector

HISTORIES = 60


class Reranked(Member):
    """A member that, as a coordinator, ranks the members at random."""

    changes = 0

    def __init__(self, group: str, name: str, settings: Settings, *, session: int, **options: Any) -> None:
        """As any other."""
        super().__init__(group, name, replace(settings, rerank_gain=0.1), session=session, **options)
        self._draw = random.Random(session)

    def round_trips(self) -> Vector:
        """Something, so that the coordinator ranks the members."""
        return (1,) * len(self._members.view.members)

    def ranked(self, members: Sequence[MemberId], _measured: Measured) -> Sequence[MemberId]:
        """Any order."""
        Reranked.changes += 1
        return self._draw.sample(members, len(members))


@pytest.mark.parametrize("first", range(0, HISTORIES, 20))
def test_ranks_that_change_with_every_view(first: int) -> None:
    Reranked.changes = 0
    for seed in range(first, first + 20):
        outcome = run_history(seed, make_member=Reranked)
        assert not outcome.violations, f"seed {seed} with changing ranks: {outcome.violations[:3]}"
    assert Reranked.changes > 20, "hardly any view was ranked: nothing was tested"

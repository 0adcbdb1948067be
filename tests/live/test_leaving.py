"""Members that leave: nobody waits for those who have gone, and those who are left hold together whoever left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubecast.live.group import LiveGroup
from cubecast.trace import CRASH, EVENT_DTYPE, EXCLUDE
from tests.live.harness import judge
from tests.live.test_group import groups_of

pytestmark = pytest.mark.live

NEVER: dict[str, Any] = {"suspect_after_s": 120.0}
"""Silence alone excludes nobody while a test runs."""


async def require_stable(*groups: LiveGroup) -> None:
    """A message of each of these members becomes stable."""
    messages = [await group.multicast(b"still here") for group in groups]
    for message in messages:
        await message.stable(20)


@pytest.mark.parametrize("causal", ["tree", "overlay", "timestamp", "plumtree", "rasm"])
def test_whoever_leaves_the_others_hold_together(causal: str) -> None:
    """No two of 0, 3, 5 and 6 are neighbours in the hypercube."""

    async def run() -> None:
        async with groups_of(8, causal=causal, **NEVER) as groups:
            await require_stable(*groups)
            for rank in (1, 2, 4, 7):
                await groups[rank].leave()
            left = [groups[rank] for rank in (0, 3, 5, 6)]
            await require_stable(*left)
            assert {group.view.members for group in left} == {(0, 3, 5, 6)}

    asyncio.run(run())


def test_goodbyes_said_at_once_are_all_heard() -> None:
    """Each of 0, 1 and 2 leaves before it hears of the others; 3 is no neighbour of 0."""

    async def run() -> None:
        async with groups_of(4, **NEVER) as groups:
            await asyncio.gather(*(group.leave() for group in groups[:3]))
            await require_stable(groups[3])
            assert groups[3].view.members == (3,)

    asyncio.run(run())


def test_a_group_whose_members_all_leave_in_mid_stream_ends_without_a_suspicion(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups_of(8, traces=tmp_path, **NEVER) as groups:

            async def talk_and_leave(group: LiveGroup) -> int:
                for _ in range(20):
                    last = await group.multicast(bytes(100))
                    await asyncio.sleep(0.001 * group.rank)
                await group.leave()
                return group.frontier[group.rank] - last.sequence

            async with asyncio.timeout(30):
                assert await asyncio.gather(*map(talk_and_leave, groups)) == [0] * 8

    asyncio.run(run())
    report = judge(tmp_path, 8, leaves=True)
    assert report.ok, report.violations[:5]


def test_a_member_has_left_before_anybody_counts_it_out(tmp_path: Path) -> None:
    """Else what it lacks while it waits to be heard would be called stable too early."""

    async def run() -> None:
        async with groups_of(4, traces=tmp_path, **NEVER) as groups:
            await groups[0].leave()
            while any(0 in group.view.members for group in groups[1:]):
                await asyncio.sleep(0.01)

    asyncio.run(run())
    rows = [np.fromfile(tmp_path / f"{rank}.rows", EVENT_DTYPE) for rank in range(4)]
    (left_ns,) = rows[0][rows[0]["event"] == CRASH]["time_ns"]
    for part in rows[1:]:
        (excluded_ns,) = part[(part["event"] == EXCLUDE) & (part["peer"] == 0)]["time_ns"]
        assert left_ns < excluded_ns

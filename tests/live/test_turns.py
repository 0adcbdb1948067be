"""When messages are sent: a lone one at once, many of one turn of the event loop together; and what wakes callers."""

from __future__ import annotations

import asyncio

import pytest

from cubecast.live.connections import Connections
from cubecast.live.group import Group
from tests.live.members import NEVER, WAIT_S, groups_of, take, until

pytestmark = pytest.mark.live


class Writes:
    """Counts what a member writes to its connections."""

    def __init__(self, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        self.count = 0
        self.bytes = 0
        connections = group._entered().connections
        write = Connections.write

        def counted(number: int, buffers: list[bytes]) -> None:
            self.count += 1
            self.bytes += sum(map(len, buffers))
            write(connections, number, buffers)

        monkeypatch.setattr(connections, "write", counted)


async def be_still(group: Group) -> None:
    """Everything is stable, and the last turn had nothing to send."""
    await until(lambda: group.stats["unstable_messages"] == 0)
    await asyncio.sleep(0.02)


def test_a_message_that_comes_alone_leaves_at_once_and_many_of_one_turn_leave_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        settings = {**NEVER, "heartbeat_s": 20.0, "round_every_s": 5.0}
        async with groups_of(3, **settings) as groups:
            await (await groups[0].multicast(b"first")).stable(WAIT_S, hurry=True)
            await be_still(groups[0])
            writes = Writes(groups[0], monkeypatch)
            await groups[0].multicast(b"alone")  # no turn of the loop since
            assert writes.count == 2
            assert (await take(groups[1], 2))[1].payload == b"alone"
            await be_still(groups[0])
            for _ in range(100):
                await groups[0].multicast(bytes(50))
            assert writes.bytes < 100 * 50
            await take(groups[2], 102)
            assert writes.bytes > 2 * 100 * 50

    asyncio.run(run())


def test_a_task_that_multicasts_without_a_pause_lets_others_run() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            turns = 0

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.create_task(count_turns())
            for _ in range(2000):
                await groups[0].multicast(b"x")
            assert turns >= 5
            counting.cancel()

    asyncio.run(run())


def test_callers_that_wait_for_room_continue_when_a_lone_member_makes_room_by_itself() -> None:
    async def run() -> None:
        async with groups_of(2, window_messages=2) as groups:
            await groups[1].leave()
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*(groups[0].multicast(str(number).encode()) for number in range(50)))
            assert [int(one.payload) for one in await take(groups[0], 50)] == list(range(50))

    asyncio.run(run())

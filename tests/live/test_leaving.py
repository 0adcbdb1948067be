"""How a member leaves: the others see a leave, in every way a program can end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cubecast.errors import ExcludedError, LocalProtocolError
from cubecast.live.group import join
from cubecast.live.local import free_addresses
from tests.live.members import WAIT_S, groups_of, one, quick, until, vanish

pytestmark = pytest.mark.live


def test_a_block_that_ends_with_an_exception_is_a_leave_not_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with groups_of(3) as groups:
            await groups[2].leave(drain=False)
            await until(lambda: len(groups[0].view.members) == 2)

    with caplog.at_level(logging.INFO):
        asyncio.run(asyncio.wait_for(work(), WAIT_S))
    assert "member left" in caplog.text
    assert "member excluded" not in caplog.text


def test_leaving_during_a_join_ends_the_join_at_once() -> None:
    async def work() -> None:
        first, second = free_addresses(2)
        group = join("g", listen=first, contact=second, plaintext=True, settings=quick())
        entering = asyncio.ensure_future(group.__aenter__())
        await asyncio.sleep(0.3)
        await group.leave(drain=False)
        with pytest.raises(LocalProtocolError, match="left group 'g' before"):
            await asyncio.wait_for(entering, 5)

    asyncio.run(asyncio.wait_for(work(), WAIT_S))


def test_a_cancelled_multicast_was_not_sent_whatever_the_moment() -> None:
    """Many tasks wait for a full window; each is cancelled at some moment, also just when there is room for it."""

    async def work() -> None:
        async with groups_of(2, window_messages=4) as groups:
            taken: list[bytes] = []

            async def consume() -> None:
                async for delivery in groups[1]:
                    taken.append(delivery.payload)

            async def drop() -> None:
                async for _ in groups[0]:
                    pass

            reading = [asyncio.ensure_future(consume()), asyncio.ensure_future(drop())]
            cancelled: set[bytes] = set()
            for turn in range(60):
                tasks = {
                    b"%d.%d" % (turn, k): asyncio.ensure_future(groups[0].multicast(b"%d.%d" % (turn, k)))
                    for k in range(40)
                }
                for _ in range(turn % 15):
                    await asyncio.sleep(0)
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)
                cancelled |= {name for name, task in tasks.items() if task.cancelled()}
            last = await groups[0].multicast(b"last")
            await last.stable(timeout=10)
            await until(lambda: b"last" in taken)
            for one in reading:
                one.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            assert len(cancelled) > 500
            assert not cancelled & set(taken)

    asyncio.run(asyncio.wait_for(work(), WAIT_S))


def test_two_processes_of_one_name_do_not_exclude_each_other_for_ever() -> None:
    async def work() -> None:
        async with groups_of(3) as groups:
            other = one(contact=groups[1].address, advertise=groups[2].address)
            await other.__aenter__()
            rivals = [groups[2], other]
            await until(lambda: any(rival._entered().failure is not None for rival in rivals))
            failed = next(rival for rival in rivals if rival._entered().failure is not None)
            with pytest.raises(ExcludedError, match="another process uses the name"):
                await failed.multicast(b"x")
            await until(lambda: len(groups[0].view.members) == 3)
            views = groups[0].view.number
            message = await groups[0].multicast(b"x")
            await message.stable(timeout=10)
            await asyncio.sleep(1)
            assert groups[0].view.number <= views + 1
            await vanish(other)

    asyncio.run(asyncio.wait_for(work(), 2 * WAIT_S))


def test_a_member_that_leaves_during_a_view_change_is_out_and_the_rest_continue() -> None:
    async def work() -> None:
        async with groups_of(4) as groups:
            first, second, *rest = groups
            message = await second.multicast(b"last words")
            await vanish(first)
            while not any(group._entered().member.is_changing for group in (second, *rest)):
                await asyncio.sleep(0)  # a change takes a few milliseconds
            await second.leave()
            assert message.is_stable
            for group in rest:
                assert [(await group.receive(WAIT_S)).payload] == [b"last words"]
                await until(lambda group=group: len(group.view.members) == 2)  # type: ignore[misc]
            await (await rest[0].multicast(b"on")).stable(WAIT_S)

    asyncio.run(asyncio.wait_for(work(), 2 * WAIT_S))

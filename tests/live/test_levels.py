"""Levels of stability and causal stability through the group's interface: who waits for what, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.group import join
from cubecast.live.local import free_addresses
from cubecast.live.message import Level
from tests.live.members import WAIT_S, drain, groups_of, one, quick, until, vanish

pytestmark = pytest.mark.live

SHORT_S = 0.6


def test_a_message_is_processed_when_every_application_asks_for_the_next_one() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            message = await groups[0].multicast(b"m")
            for group in groups:
                assert (await group.receive(WAIT_S)).payload == b"m"
            await message.stable(WAIT_S)
            with pytest.raises(
                TimeoutError, match="every member has message 1, but not every application has processed it"
            ):
                await message.stable(SHORT_S, level="processed")
            asking = [asyncio.create_task(group.receive()) for group in groups[1:]]
            with pytest.raises(TimeoutError, match="not causally stable"):
                await message.causally_stable(SHORT_S)  # the application of the sender itself has not processed it
            groups[0].ack()
            await message.stable(WAIT_S, level="processed")
            await message.causally_stable(WAIT_S)
            assert message.is_causally_stable
            for group in groups:
                await until(lambda group=group: group.causal_frontier[groups[0].me] == 1)  # type: ignore[misc]
            for task in asking:
                task.cancel()

    asyncio.run(run())


def test_a_message_is_not_causally_stable_while_one_that_does_not_follow_it_is_on_its_way() -> None:
    """The application of 1 makes a message before it takes that of 0, and the window lets it wait."""

    async def run() -> None:
        async with groups_of(2, window_messages=1) as groups:
            first, second = groups
            blocking = await second.multicast(b"blocks the window")
            waiting = asyncio.create_task(second.multicast(b"made before"))
            await asyncio.sleep(0)
            assert second._driver is not None
            assert second._driver.member.queued == 1
            m = await first.multicast(b"m")
            drained = [asyncio.create_task(drain(group)) for group in groups]
            await m.causally_stable(WAIT_S)
            assert waiting.done(), "m was called causally stable before a message made without it had come"
            await blocking.stable(WAIT_S)
            for task in drained:
                task.cancel()

    asyncio.run(run())


def test_a_cancelled_multicast_that_was_counted_does_not_hold_up_causal_stability() -> None:
    async def run() -> None:
        async with groups_of(2, window_messages=1) as (first, second):
            drained = [asyncio.create_task(drain(group)) for group in (first, second)]
            await second.multicast(b"fills the window")
            cancelled = [asyncio.create_task(second.multicast(b"never sent")) for _ in range(3)]
            await asyncio.sleep(0)
            assert second._driver is not None
            levels = second._driver.member.stack.levels  # type: ignore[union-attr]
            levels.sent(4)  # as a round in this moment would have contributed
            for one_call in cancelled:
                one_call.cancel()
            view = first.view.number
            message = await first.multicast(b"m")
            await message.causally_stable(WAIT_S)
            assert first.view.number > view, "only a new view takes back what was contributed"
            for task in drained:
                task.cancel()

    asyncio.run(run())


def test_messages_of_earlier_views_become_causally_stable_too() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            readers = [asyncio.create_task(drain(group)) for group in groups[1:]]
            message = await groups[0].multicast(b"m")
            await message.stable(WAIT_S)
            await vanish(groups[2])
            await until(lambda: len(groups[0].view.members) == 2)
            delivery = await groups[0].receive(WAIT_S)
            assert delivery.view < groups[0].view.number
            assert not groups[0].is_causally_stable(delivery)  # this application has not asked for more
            groups[0].ack()
            await until(lambda: groups[0].is_causally_stable(delivery))
            await message.causally_stable(WAIT_S)
            for reader in readers:
                reader.cancel()

    asyncio.run(run())


def test_alone_in_a_view_an_own_message_is_causally_stable_when_it_is_dealt_with() -> None:
    async def run() -> None:
        async with one(found=True) as group:
            frontiers: list[dict[object, int]] = []
            group.on_causally_stable(lambda frontier: frontiers.append(dict(frontier)))
            message = await group.multicast(b"m")
            await group.receive(WAIT_S)
            assert not message.is_causally_stable
            group.ack()
            await message.causally_stable(WAIT_S)
            await until(lambda: frontiers[-1] == {group.me: 1})

    asyncio.run(run())


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_a_durable_message_is_on_every_disk(tmp_path: Path, sync: str) -> None:
    async def run() -> None:
        addresses = free_addresses(2)
        settings = quick(sync=sync, sync_interval_s=0.05)
        groups = [
            join("durable", listen=at, peers=addresses, plaintext=True, settings=settings, journal=tmp_path / at)
            for at in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        try:
            message = await groups[0].multicast(b"to the disk")
            await message.stable(WAIT_S, level="durable")
            journal = groups[1]._driver.journal  # type: ignore[union-attr]
            assert journal is not None
            assert b"to the disk" in (tmp_path / addresses[1]).read_bytes()
            assert journal._synced > 0
        finally:
            await asyncio.gather(*(group.leave(drain=False) for group in groups))

    asyncio.run(run())


def test_levels_that_cannot_be_reached_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with one(found=True) as group:
            message = await group.multicast(b"m")
            with pytest.raises(LocalProtocolError, match="level='durable' needs a journal: join"):
                await message.stable(level="durable")
            with pytest.raises(LocalProtocolError, match="level='safe': one of received, processed, durable"):
                await message.stable(level="safe")  # type: ignore[arg-type]
        async with one(found=True, journal=tmp_path / "journal", settings=quick(sync="never")) as group:
            message = await group.multicast(b"m")
            with pytest.raises(
                LocalProtocolError, match="needs Settings\\(sync='always'\\) or 'interval', not 'never'"
            ):
                await message.stable(level="durable")

    asyncio.run(run())


@pytest.mark.parametrize("level", ["received", "processed"])
def test_a_quorum_does_not_wait_for_the_slowest_application_or_member(level: Level) -> None:
    async def run() -> None:
        async with groups_of(5, suspect_after_s=60.0) as groups:
            readers = [asyncio.create_task(drain(group)) for group in groups[:3]]
            warm = await groups[0].multicast(b"warm")
            await warm.stable(WAIT_S)
            groups[4]._driver.connections.abort()  # type: ignore[union-attr]
            message = await groups[0].multicast(b"m")
            await message.stable(WAIT_S, level=level, of="quorum")
            if level == "processed":
                with pytest.raises(TimeoutError):
                    await message.stable(SHORT_S, level=level)  # ranks 3 and 4 take nothing
            for reader in readers:
                reader.cancel()

    asyncio.run(run())


def test_a_quorum_that_is_not_there_is_waited_for() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            readers = [asyncio.create_task(drain(group)) for group in groups[:1]]
            message = await groups[0].multicast(b"m")
            await message.stable(WAIT_S, of="quorum")
            with pytest.raises(TimeoutError):
                await message.stable(SHORT_S, level="processed", of="quorum")
            readers.append(asyncio.create_task(drain(groups[1])))
            await message.stable(WAIT_S, level="processed", of="quorum")
            with pytest.raises(LocalProtocolError, match="of='most': one of all, quorum"):
                await message.stable(of="most")  # type: ignore[arg-type]
            for reader in readers:
                reader.cancel()

    asyncio.run(run())


def test_a_message_of_an_earlier_view_can_be_asked_for_in_a_later_one() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            message = await groups[0].multicast(b"m")
            await message.stable(WAIT_S)
            await vanish(groups[2])
            await until(lambda: len(groups[0].view.members) == 2)
            readers = [asyncio.create_task(drain(group)) for group in groups[:2]]
            await message.stable(WAIT_S, level="processed", of="quorum")
            await message.stable(WAIT_S, level="processed")
            for reader in readers:
                reader.cancel()

    asyncio.run(run())

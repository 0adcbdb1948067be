"""How an application takes deliveries: it may stop, be cancelled and continue anywhere, and nothing is lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live import inbox
from cubecast.member.effects import Delivery, ViewChange
from cubecast.protocols.membership.views import MemberId
from tests.live.members import WAIT_S, groups_of, one, quick, take, until

pytestmark = pytest.mark.live


def test_leaving_the_loop_after_every_delivery_loses_nothing_and_returns_the_bytes() -> None:
    """After `async for … : break` the delivery's bytes count as taken, else the group would stop at backlog_bytes."""

    async def run() -> None:
        async with groups_of(2, backlog_bytes=5_000, window_messages=50) as groups:

            async def send() -> None:
                for number in range(400):
                    await groups[0].multicast(str(number).encode().rjust(100))

            async def take_singly(count: int) -> list[int]:
                taken: list[int] = []
                while len(taken) < count:
                    async for delivery in groups[1]:
                        taken.append(int(delivery.payload))
                        break
                return taken

            reading = asyncio.create_task(take(groups[0], 400))
            sending = asyncio.create_task(send())
            async with asyncio.timeout(WAIT_S):
                assert await take_singly(400) == list(range(400))
            await sending
            await reading
            assert 0 < groups[1].stats["backlog_bytes"] < 200, "it may still be dealing with the last one"
            groups[1].ack()
            await until(lambda: groups[1].stats["backlog_bytes"] == 0)

    asyncio.run(run())


def test_an_iterator_that_timed_out_or_was_cancelled_continues() -> None:
    """A `wait_for(anext(it))` that times out must not end the iterator."""

    async def run() -> None:
        async with groups_of(2) as groups:
            deliveries = aiter(groups[1])
            for number in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(deliveries), 0.01)
                with pytest.raises(TimeoutError):
                    await groups[1].receive(0.01)
                waiting = asyncio.ensure_future(anext(deliveries))
                await asyncio.sleep(0)
                waiting.cancel()
                await groups[0].multicast(str(number).encode())
                assert int((await asyncio.wait_for(anext(deliveries), WAIT_S)).payload) == number

    asyncio.run(run())


def test_receiving_with_impatient_timeouts_takes_every_message_once() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            count = 500

            async def send() -> None:
                for number in range(count):
                    await groups[0].multicast(str(number).encode())
                    if number % 7 == 0:
                        await asyncio.sleep(0.001)

            sending = asyncio.create_task(send())
            taken: list[int] = []
            async with asyncio.timeout(WAIT_S):
                while len(taken) < count:
                    try:
                        taken.append(int((await groups[1].receive(0.0005)).payload))
                    except TimeoutError:
                        await asyncio.sleep(0)
            assert taken == list(range(count))
            await sending

    asyncio.run(run())


def test_several_consumers_share_the_deliveries() -> None:
    async def run() -> None:
        async with one(found=True) as group:
            consumers = [asyncio.create_task(group.receive(WAIT_S)) for _ in range(10)]
            for number in range(10):
                await group.multicast(str(number).encode())
            taken = await asyncio.gather(*consumers)
            assert sorted(int(got.payload) for got in taken) == list(range(10))

    asyncio.run(run())


def test_events_have_views_at_their_place_among_the_deliveries() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            events: list[Delivery | ViewChange] = []

            async def read() -> None:
                async for event in groups[0].events():
                    events.append(event)

            reading = asyncio.create_task(read())
            for _ in range(10):
                await groups[2].multicast(b"x")
            await groups[2].leave()
            await until(lambda: any(isinstance(got, ViewChange) and len(got.view.members) == 2 for got in events))
            await groups[0].multicast(b"y")
            await until(lambda: isinstance(events[-1], Delivery) and events[-1].payload == b"y")
            at = next(k for k, got in enumerate(events) if isinstance(got, ViewChange) and len(got.view.members) == 2)
            number = events[at].view.number  # type: ignore[union-attr]
            for event in events:
                if isinstance(event, Delivery):
                    assert (event.view < number) == (events.index(event) < at)
            views = [got.view.number for got in events if isinstance(got, ViewChange)]
            assert all(before < after for before, after in pairwise(views))
            reading.cancel()

    asyncio.run(run())


def test_deliveries_can_be_taken_after_leaving_and_then_end() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            for number in range(20):
                await groups[0].multicast(str(number).encode())
            await groups[0].leave()
            assert [int(got.payload) async for got in groups[0]] == list(range(20))
            assert [got async for got in groups[0]] == []
            with pytest.raises(LocalProtocolError, match="everything is received"):
                await groups[0].receive()
            assert [int(got.payload) for got in await take(groups[1], 20)] == list(range(20))

    asyncio.run(run())


def test_a_task_that_waits_for_deliveries_is_woken_by_the_end() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            waiting = asyncio.create_task(anext(aiter(groups[0]), None))
            receiving = asyncio.create_task(groups[0].receive())
            await asyncio.sleep(0.05)
            await groups[0].leave()
            assert await asyncio.wait_for(waiting, 5) is None
            with pytest.raises(LocalProtocolError):
                await asyncio.wait_for(receiving, 5)

    asyncio.run(run())


def test_a_consumer_that_is_slow_gets_everything_within_its_backlog() -> None:
    async def run() -> None:
        settings = quick(backlog_bytes=2_000)
        async with one(found=True, settings=settings) as group:
            for number in range(100):
                await group.multicast(str(number).encode())
            assert [int(got.payload) for got in await take(group, 100)] == list(range(100))

    asyncio.run(run())


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_task_that_takes_much_without_a_pause_lets_others_run(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "RUN_S", 0)

    async def run() -> None:
        async with one(found=True, settings=quick(keep=keep, window_messages=20_000)) as group:
            for _ in range(10_000):
                await group.multicast(bytes(100))
            await until(lambda: group.stats["inbox_entries"] == 10_001)
            turns = taken = 0

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.create_task(count_turns())
            async for _ in group:
                taken += 1
                if taken == 10_000:
                    break
            counting.cancel()
            assert turns >= 10

    asyncio.run(run())


def test_a_consumer_keeps_up_with_many_deliveries_per_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns of a busy loop are long: a consumer that takes a fixed number in each falls behind for ever."""
    monkeypatch.setattr(inbox, "monotonic", lambda: 0.0)
    taken = 0

    async def nothing(_: object) -> None:
        """No state is requested."""

    async def run() -> None:
        entries = inbox.Inbox(
            report_taken=lambda _: None,
            serve=nothing,
            on_empty=lambda: None,
            on_history_taken=lambda: None,
            backlog_bytes=16 << 20,
            is_tracked=False,
        )

        async def consume() -> None:
            nonlocal taken
            async for _ in inbox.Entries(entries, (Delivery,)):
                taken += 1

        consuming = asyncio.create_task(consume())
        sender = MemberId("127.0.0.1:7000", 1)
        for turn in range(100):
            entries.extend([Delivery(sender, 1, 1000 * turn + number, bytes(180)) for number in range(1000)])
            await asyncio.sleep(0)
        assert len(entries.queue) <= 1000
        assert taken >= 99_000
        entries.end()
        await consuming

    asyncio.run(run())

"""`Broadcast` has the interface of the package broadcaster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cubecast.contrib.starlette import Broadcast, BroadcastEvent
from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group, join
from cubecast.live.local import free_addresses
from tests.live.members import quick, until

pytestmark = pytest.mark.live


def joining(address: str, addresses: list[str]) -> Callable[[], Awaitable[Group]]:
    settings = quick(quorum="any")
    return lambda: join("s", listen=address, peers=addresses, plaintext=True, settings=settings).__aenter__()


def test_subscribers_of_both_workers_get_what_one_publishes() -> None:
    async def run() -> None:
        addresses = free_addresses(2)
        one, two = (Broadcast(join=joining(address, addresses)) for address in addresses)
        await asyncio.gather(one.connect(), two.connect())
        async with one.subscribe(channel="room") as here, two.subscribe(channel="room") as there:
            for message in ("hello", {"n": 1}, b"\x00"):
                await one.publish(channel="room", message=message)
            for subscriber in (here, there):
                got = [await asyncio.wait_for(subscriber.get(), 10) for _ in range(3)]
                assert got == [BroadcastEvent("room", one) for one in ("hello", {"n": 1}, b"\x00")]
        assert one.bus._subscribers == {}
        async with two.subscribe("room") as there:
            await one.disconnect()
            await until(lambda: len(two.bus.group.view.members) == 1)
            await two.disconnect()
            assert [event async for event in there] == []
        with pytest.raises(LocalProtocolError, match="not connected"):
            await one.publish("room", "x")

    asyncio.run(run())


@pytest.mark.parametrize("message", [object(), {1: object()}, 1 << 70])
def test_a_message_that_cannot_be_encoded_is_refused(message: Any) -> None:
    async def run() -> None:
        (address,) = free_addresses(1)
        found = join("s", listen=address, found=True, plaintext=True, settings=quick())
        async with Broadcast(join=found.__aenter__) as broadcast:
            with pytest.raises(LocalProtocolError, match="cannot be encoded"):
                await broadcast.publish("room", message)

    asyncio.run(run())


def alone(pause_s: float = 0.0) -> Callable[[], Awaitable[Group]]:
    """Found a group of one after a pause."""
    (address,) = free_addresses(1)

    async def join_later() -> Group:
        await asyncio.sleep(pause_s)
        return await join("s", listen=address, found=True, plaintext=True, settings=quick()).__aenter__()

    return join_later


def test_a_worker_connects_once_at_a_time() -> None:
    async def run() -> None:
        broadcast = Broadcast(join=alone(0.05))
        for _ in range(2):  # again after it has disconnected
            first, second = await asyncio.gather(broadcast.connect(), broadcast.connect(), return_exceptions=True)
            assert first is None
            assert "already connected" in str(second)
            await broadcast.publish("room", "x")
            await broadcast.disconnect()

    asyncio.run(run())


def test_a_worker_that_disconnects_while_it_connects_is_not_in_the_group() -> None:
    async def run() -> None:
        broadcast = Broadcast(join=alone(30.0))
        connecting = asyncio.create_task(broadcast.connect())
        await asyncio.sleep(0.01)
        await broadcast.disconnect()
        with pytest.raises(LocalProtocolError, match="disconnected before"):
            await connecting
        with pytest.raises(LocalProtocolError, match="not connected"):
            await broadcast.publish("room", "x")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize("steps", range(0, 60, 4))
def test_connecting_can_be_cancelled_at_any_moment_and_tried_again(steps: int) -> None:
    async def run() -> None:
        broadcast = Broadcast(join=alone())
        connecting = asyncio.create_task(broadcast.connect())
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait({connecting})
        if connecting.cancelled():
            await broadcast.connect()
        await broadcast.publish("room", "x")
        await broadcast.disconnect()

    asyncio.run(run())


def test_a_worker_that_cannot_join_says_why_and_tries_again() -> None:
    attempts: list[int] = []

    async def fails_once() -> Group:
        attempts.append(1)
        if len(attempts) == 1:
            raise LocalProtocolError("not yet")
        return await works()

    works = alone()

    async def run() -> None:
        broadcast = Broadcast(join=fails_once)
        with pytest.raises(LocalProtocolError, match="not yet"):
            await broadcast.connect()
        async with broadcast:
            await broadcast.publish("room", "x")

    asyncio.run(run())


def test_options_that_a_join_function_would_not_get_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="join= together with plaintext="):
        Broadcast(join=alone(), plaintext=True)

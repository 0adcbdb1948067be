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

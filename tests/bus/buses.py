"""Buses in this process, over real sockets of 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from cubecast.bus import Bus
from cubecast.live.group import join
from cubecast.live.local import free_addresses
from tests.live.members import quick


@asynccontextmanager
async def buses_of(members: int, settings: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[list[Bus]]:
    """The buses of the founding members of a group."""
    addresses = free_addresses(members)
    chosen = quick(**(settings or {}))
    how: dict[str, Any] = {"peers": addresses} if members > 1 else {"found": True}
    buses = [Bus(join("b", listen=one, plaintext=True, settings=chosen, **how), **options) for one in addresses]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(bus) for bus in buses))
        yield buses
        await asyncio.gather(*(bus.group.leave() for bus in buses))


async def newcomer(through: Bus, **options: Any) -> Bus:
    """One more member, not entered yet."""
    (address,) = free_addresses(1)
    group = join("b", listen=address, contact=through.group.address, plaintext=True, settings=through.group.settings)
    return Bus(group, **options)

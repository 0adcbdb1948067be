"""Members of a group in this process, over real sockets of 127.0.0.1, with short times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from cubecast.errors import JournalError
from cubecast.live.group import Group, join
from cubecast.live.local import free_addresses
from cubecast.live.replica import Replica
from cubecast.member.effects import Delivery
from cubecast.member.settings import Settings

QUICK: dict[str, Any] = {
    "heartbeat_s": 0.05,
    "suspect_after_s": 0.5,
    "round_every_s": 0.02,
    "patience_s": 0.3,
    "takeover_s": 0.5,
    "join_timeout_s": 20.0,
}
NEVER: dict[str, Any] = {**QUICK, "suspect_after_s": 120.0}
"""Silence alone excludes nobody while a test runs."""
WAIT_S = 20.0


def quick(**settings: Any) -> Settings:
    """Settings with short times."""
    return Settings(**{**QUICK, **settings})


@asynccontextmanager
async def groups_of(
    members: int, name: str = "g", *, each: Callable[[int], dict[str, Any]] | None = None, **settings: Any
) -> AsyncIterator[list[Group]]:
    """The founding members of a group, in the order of their ranks; `each` gives options of one of them."""
    addresses = free_addresses(members)
    groups = [
        join(
            name,
            listen=address,
            peers=addresses,
            plaintext=True,
            settings=quick(**settings),
            **(each(place) if each is not None else {}),
        )
        for place, address in enumerate(addresses)
    ]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    try:
        yield groups
    finally:
        await asyncio.gather(*(vanish(group) for group in groups))


@asynccontextmanager
async def founded(replicas: Sequence[Replica], group: str, **settings: Any) -> AsyncIterator[None]:
    """Replicated applications whose members found a group together."""
    addresses = free_addresses(len(replicas))
    async with AsyncExitStack() as stack:
        joining = [
            stack.enter_async_context(
                one.join(group, listen=at, peers=addresses, plaintext=True, settings=quick(**settings))
            )
            for one, at in zip(replicas, addresses, strict=True)
        ]
        await asyncio.gather(*joining)
        yield
        await asyncio.gather(*(vanish(one.group) for one in replicas))


def one(name: str = "g", **options: Any) -> Group:
    """One member that is not entered yet."""
    options = {"plaintext": "credentials" not in options, "settings": quick(), **options}
    return join(name, listen=options.pop("listen", None) or free_addresses(1)[0], **options)


async def enter(name: str = "g", **options: Any) -> Group:
    """One member, in the group."""
    return await one(name, **options).__aenter__()


async def take(group: Group, count: int) -> list[Delivery]:
    """The next deliveries."""
    return [await group.receive(WAIT_S) for _ in range(count)]


async def until(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def vanish(group: Group) -> None:
    """End the member abruptly, as if its process were killed."""
    driver = group._entered()
    driver._is_stopped = True
    driver.connections.abort()
    driver._end(None)
    for timer in (driver._timer, driver._sync_timer):
        if timer is not None:
            timer.cancel()
    await driver.connections.stop()
    if driver.journal is not None:
        assert driver._sync_thread is not None
        driver._sync_thread.close()
        with suppress(JournalError):
            driver.journal.close()
    await group._stack.aclose()


async def drain(group: Group) -> None:
    """Take everything, for ever."""
    async for _ in group:
        pass

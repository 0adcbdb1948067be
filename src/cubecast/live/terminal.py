"""A member in a terminal, of either kind of group: lines in are multicast; or it makes up messages at an even rate."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from cubecast.live.credentials import Credentials


@dataclass(frozen=True, kw_only=True)
class TerminalNode:
    """What `cubecast node` was asked for, whatever the group."""

    group: str
    listen: str
    credentials: Credentials | None
    status: str | None = None
    rate_per_s: float = 0.0
    """Messages that it makes up and sends by itself."""
    payload_bytes: int = 100
    quiet: bool = False
    """Print no deliveries."""


class Talker(Protocol):
    """A group of either kind."""

    settings: Any

    async def multicast(self, payload: bytes) -> Any:
        """Send to every member."""


async def be_member(
    node: TerminalNode,
    group: Any,
    *,
    ready: Callable[[], str],
    listening: Callable[[], Coroutine[Any, Any, None]],
    settle: Callable[[Any], Awaitable[None]],
) -> None:
    """Be in the group until the input ends or a signal comes, then leave it."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(group)
        if node.status is not None:
            from cubecast.live.status import StatusServer

            await stack.enter_async_context(StatusServer(group, node.status))
        say(ready())
        if node.rate_per_s > 0:
            speaking = talk(group, node.rate_per_s, node.payload_bytes)
        else:
            speaking = send_lines(group, settle)
        await until_one_ends(listening(), speaking)


def say(words: str) -> None:
    """Tell the person at the terminal, beside what is delivered."""
    print(words, file=sys.stderr, flush=True)


async def send_lines(group: Talker, settle: Callable[[Any], Awaitable[None]]) -> None:
    """Multicast every line of the input; at its end `settle` waits for the last message."""
    reader = asyncio.StreamReader(limit=group.settings.payload_bytes_max + 2)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    last = None
    while line := await reader.readline():
        last = await group.multicast(line.rstrip(b"\r\n"))
    if last is not None:
        await settle(last)


async def talk(group: Talker, rate_per_s: float, payload_bytes: int) -> None:
    """Send at an even rate, in small bursts when the rate is high."""
    payload = bytes(payload_bytes)
    burst = max(1, round(rate_per_s / 100))
    while True:
        for _ in range(burst):
            await group.multicast(payload)
        await asyncio.sleep(burst / rate_per_s)


async def until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends or a signal comes; an error of any is raised."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    tasks = {asyncio.create_task(one) for one in (*work, _wait(ended))}
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()


async def _wait(ended: asyncio.Event) -> None:
    await ended.wait()

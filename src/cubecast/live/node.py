"""A member in a terminal: every line that comes in is multicast, every delivery goes out as a line."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from cubecast.live.credentials import Credentials
from cubecast.live.group import LiveGroup, join
from cubecast.live.loop import run
from cubecast.live.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Node:
    """What `cubecast node` was asked for."""

    group: str
    listen: str
    peers: list[str]
    credentials: Credentials | None
    settings: Settings
    trace: Path | None = None
    status: str | None = None
    rate_per_s: float = 0.0
    """Messages that it makes up and sends by itself."""
    payload_bytes: int = 100
    quiet: bool = False
    """Print no deliveries."""


def run_node(node: Node) -> None:
    """Be a member until the input ends (or a signal comes), then leave."""
    with suppress(KeyboardInterrupt):
        run(_live(node))


async def _live(node: Node) -> None:
    group = join(
        node.group,
        listen=node.listen,
        peers=node.peers,
        credentials=node.credentials,
        plaintext=node.credentials is None,
        settings=node.settings,
        trace=node.trace,
    )
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(group)
        if node.status is not None:
            from cubecast.live.status import StatusServer

            await stack.enter_async_context(StatusServer(group, node.status))
        print(f"rank {group.rank} of {len(group.addresses)} is ready", file=sys.stderr, flush=True)
        work = {asyncio.create_task(_print_deliveries(group, quiet=node.quiet)), asyncio.create_task(ended.wait())}
        if node.rate_per_s > 0:
            work.add(asyncio.create_task(_talk(group, node)))
        else:
            work.add(asyncio.create_task(_send_lines(group)))
        done, others = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        for task in done:
            task.result()


async def _send_lines(group: LiveGroup) -> None:
    reader = asyncio.StreamReader(limit=group.settings.payload_bytes_max + 2)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    last = None
    while line := await reader.readline():
        last = await group.multicast(line.rstrip(b"\r\n"))
    if last is not None:
        await last.stable(hurry=True)


async def _talk(group: LiveGroup, node: Node) -> None:
    """Send at an even rate, in small bursts when the rate is high."""
    payload = bytes(node.payload_bytes)
    burst = max(1, round(node.rate_per_s / 100))
    while True:
        for _ in range(burst):
            await group.multicast(payload)
        await asyncio.sleep(burst / node.rate_per_s)


async def _print_deliveries(group: LiveGroup, *, quiet: bool) -> None:
    async for delivery in group:
        if not quiet:
            text = delivery.payload.decode("utf-8", "backslashreplace")
            print(f"{delivery.sender}:{delivery.sequence} {text}", flush=not group.has_more)

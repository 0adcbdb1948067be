"""A member in a terminal: every line that comes in is multicast, every delivery goes out as a line."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from cubecast.live.credentials import Credentials
from cubecast.live.group import LiveGroup, join
from cubecast.live.loop import run
from cubecast.live.settings import Settings
from cubecast.live.terminal import send_lines, talk, until_one_ends


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
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(group)
        if node.status is not None:
            from cubecast.live.status import StatusServer

            await stack.enter_async_context(StatusServer(group, node.status))
        print(f"rank {group.rank} of {len(group.addresses)} is ready", file=sys.stderr, flush=True)
        if node.rate_per_s > 0:
            speaking = talk(group, node.rate_per_s, node.payload_bytes)
        else:
            speaking = send_lines(group, lambda message: message.stable(hurry=True))
        await until_one_ends(_print_deliveries(group, quiet=node.quiet), speaking)


async def _print_deliveries(group: LiveGroup, *, quiet: bool) -> None:
    async for delivery in group:
        if not quiet:
            text = delivery.payload.decode("utf-8", "backslashreplace")
            print(f"{delivery.sender}:{delivery.sequence} {text}", flush=not group.has_more)

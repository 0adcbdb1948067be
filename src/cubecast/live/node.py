"""A member in a terminal: every line that comes in is multicast, every delivery goes out as a line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cubecast.live.group import LiveGroup, join
from cubecast.live.loop import run
from cubecast.live.settings import Settings
from cubecast.live.terminal import TerminalNode, be_member


@dataclass(frozen=True, kw_only=True)
class Node(TerminalNode):
    """A member of a group of fixed members."""

    peers: list[str]
    settings: Settings
    trace: Path | None = None


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
    await be_member(
        node,
        group,
        ready=lambda: f"rank {group.rank} of {len(group.addresses)} is ready",
        listening=lambda: _print_deliveries(group, quiet=node.quiet),
        settle=lambda message: message.stable(hurry=True),
    )


async def _print_deliveries(group: LiveGroup, *, quiet: bool) -> None:
    async for delivery in group:
        if not quiet:
            text = delivery.payload.decode("utf-8", "backslashreplace")
            print(f"{delivery.sender}:{delivery.sequence} {text}", flush=not group.has_more)

"""A member of a changing group in a terminal: lines in are multicast, deliveries and views come out as lines."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from cubecast.live.changing.events import ChangingDelivery
from cubecast.live.changing.group import ChangingGroup, join_changing
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.credentials import Credentials
from cubecast.live.loop import run
from cubecast.live.terminal import send_lines, talk, until_one_ends


@dataclass(frozen=True, kw_only=True)
class ChangingNode:
    """What `cubecast node` was asked for."""

    group: str
    listen: str
    contacts: list[str]
    """None founds the group."""
    credentials: Credentials | None
    settings: ChangingSettings
    log: Path | None = None
    history: Path | None = None
    status: str | None = None
    rate_per_s: float = 0.0
    """Messages that it makes up and sends by itself."""
    payload_bytes: int = 100
    quiet: bool = False
    """Print no deliveries."""


def run_changing_node(node: ChangingNode) -> None:
    """Be a member until the input ends (or a signal comes), then leave."""
    with suppress(KeyboardInterrupt):
        run(_live(node))


async def _live(node: ChangingNode) -> None:
    group = join_changing(
        node.group,
        listen=node.listen,
        contact=node.contacts,
        credentials=node.credentials,
        plaintext=node.credentials is None,
        settings=node.settings,
        log=node.log,
        history=node.history,
    )
    group.on_blocked(lambda is_blocked: _say("blocked: too few members within reach" if is_blocked else "not blocked"))
    group.on_excluded(lambda end: _say(f"excluded: {end.reason}; {len(end.returned)} messages came back"))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(group)
        if node.status is not None:
            from cubecast.live.status import StatusServer

            await stack.enter_async_context(StatusServer(group, node.status))
        _say(f"{group.me.name} is ready")
        if node.rate_per_s > 0:
            speaking = talk(group, node.rate_per_s, node.payload_bytes)
        else:
            speaking = send_lines(group, lambda message: message.stable())
        await until_one_ends(_print_events(group, quiet=node.quiet), speaking)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


async def _print_events(group: ChangingGroup, *, quiet: bool) -> None:
    async for event in group.events():
        if not isinstance(event, ChangingDelivery):
            _say(f"view {event.view.number}: {', '.join(who.name for who in event.view.members)}")
        elif not quiet:
            text = event.payload.decode("utf-8", "backslashreplace")
            print(f"{event.sender.name} {event.view}:{event.sequence} {text}", flush=not group.has_more)

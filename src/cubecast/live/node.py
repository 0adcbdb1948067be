"""A member in a terminal: every input line is multicast, every delivery is printed as a line.

Standard output has "sender sequence payload" lines and nothing else; events of the group go to standard error. At the
end of the input the member leaves. With a closed input or `/dev/null`, as under a supervisor, it stays.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubecast.live.credentials import Credentials
from cubecast.live.group import Group, join
from cubecast.live.group_of_two import depends_on_first_rank
from cubecast.live.loop import run
from cubecast.live.terminal import InputLines, OutputLines, has_input
from cubecast.member.effects import Excluded
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import View

DRAIN_S = 1.0
"""How long the end of a node waits for its output."""
LEAVING_S = 1.0
"""After this time a node says that it still leaves."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """The options of `cubecast node`."""

    group: str
    listen: str
    settings: Settings
    credentials: Credentials | None
    advertise: str | None = None
    peers: list[str] | None = None
    contacts: list[str] | None = None
    found: bool = False
    journal: Path | None = None
    trace: Path | None = None
    status: str | None = None
    rate_per_s: float = 0.0
    """Messages per second that it generates and sends."""
    payload_bytes: int = 100
    quiet: bool = False
    """Print no deliveries."""


def run_node(node: Node) -> None:
    """Be a member until the input ends or a signal comes, then leave."""
    with suppress(KeyboardInterrupt):
        run(_live(node))


async def _live(node: Node) -> None:
    group = join(
        node.group,
        listen=node.listen,
        advertise=node.advertise,
        peers=node.peers,
        contact=node.contacts,
        found=node.found,
        credentials=node.credentials,
        plaintext=node.credentials is None,
        settings=node.settings,
        journal=node.journal,
        trace=node.trace,
        status=node.status,
    )
    group.on_view(lambda view: _say_view(view, node.settings))
    group.on_blocked(lambda is_blocked: say("blocked: too few members reachable" if is_blocked else "unblocked"))
    group.on_excluded(_say_excluded)
    group.on_waiting(say)
    ended = _signals(group)
    entering = asyncio.ensure_future(group.__aenter__())
    stopping = asyncio.ensure_future(ended.wait())
    await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not entering.done():
        entering.cancel()
        with suppress(asyncio.CancelledError):
            await entering
        return
    await entering
    output = OutputLines()
    try:
        say(f"ready: {group.me.name} is rank {group.rank} of {len(group.view.members)} in view {group.view.number}")
        if node.rate_per_s <= 0 and os.isatty(0):
            say("type a line to multicast it; Ctrl-D leaves the group")
        if node.status is not None:
            say(f"status: http://{node.status}/")
        speaking = talk(group, node.rate_per_s, node.payload_bytes) if node.rate_per_s > 0 else send_lines(group)
        await _until_one_ends(_print_deliveries(group, output, quiet=node.quiet), speaking, _wait(stopping))
    finally:
        stopping.cancel()
        await _leave(group, ended)
        await output.drain(DRAIN_S)


async def _leave(group: Group, signalled: asyncio.Event) -> None:
    """Leave; say so when it takes long, and leave at once on another signal."""
    signalled.clear()
    leaving = asyncio.ensure_future(group.leave())
    stopping = asyncio.ensure_future(signalled.wait())
    ends = {leaving, stopping}
    if not (await asyncio.wait(ends, timeout=LEAVING_S, return_when=asyncio.FIRST_COMPLETED))[0]:
        say("leaving: waiting until the others agree; another signal (Ctrl-C) leaves at once")
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not leaving.done():
        leaving.cancel()
    with suppress(asyncio.CancelledError):
        await leaving


def say(words: str) -> None:
    """Print a line for the user at the terminal, apart from the deliveries."""
    print(words, file=sys.stderr, flush=True)


def _say_view(view: View, settings: Settings) -> None:
    count = "1 member" if len(view.members) == 1 else f"{len(view.members)} members"
    say(f"view {view.number}: {count}: {' '.join(who.name for who in view.members)}")
    if depends_on_first_rank(view, settings.quorum):
        say(f"note: a group of two is blocked while its first rank, {view.members[0].name}, is down")


def _say_excluded(excluded: Excluded) -> None:
    say(f"excluded: {excluded.reason}; {len(excluded.returned)} messages returned")


def _signals(group: Group) -> asyncio.Event:
    """SIGINT and SIGTERM end the member; SIGHUP reads the credentials again."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, group.refresh_credentials)
    return ended


async def _print_deliveries(group: Group, output: OutputLines, *, quiet: bool) -> None:
    async for delivery in group:
        if not quiet:
            text = delivery.payload.decode("utf-8", "backslashreplace")
            await output.write(f"{delivery.sender.name} {delivery.sequence} {text}\n")


async def send_lines(group: Group) -> None:
    """Multicast every line of the input; at its end wait until the last one is stable. Without input, wait."""
    if not has_input():
        await asyncio.Event().wait()
    last = None
    async for line in InputLines(group.settings.payload_bytes_max):
        last = await group.multicast(line)
    if last is not None:
        await last.stable(hurry=True)


async def talk(group: Group, rate_per_s: float, payload_bytes: int) -> None:
    """Send at an even rate, in small bursts when the rate is high; after SIGUSR1 no more."""
    quiet = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, quiet.set)
    payload = bytes(payload_bytes)
    burst = max(1, round(rate_per_s / 100))
    while not quiet.is_set():
        for _ in range(burst):
            await group.multicast(payload)
        await asyncio.sleep(burst / rate_per_s)
    await asyncio.Event().wait()


async def _wait(event: asyncio.Future[Any]) -> None:
    await event


async def _until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends; an error of any is raised."""
    tasks = {asyncio.create_task(one) for one in work}
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()

"""A member of a changing group in a terminal: lines in are multicast, deliveries and views come out as lines."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cubecast.live.changing.events import ChangingDelivery
from cubecast.live.changing.group import ChangingGroup, join_changing
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.loop import run
from cubecast.live.terminal import TerminalNode, be_member, say


@dataclass(frozen=True, kw_only=True)
class ChangingNode(TerminalNode):
    """A member of a group that changes."""

    contacts: list[str]
    """None founds the group."""
    settings: ChangingSettings
    log: Path | None = None
    history: Path | None = None


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
    group.on_blocked(lambda is_blocked: say("blocked: too few members within reach" if is_blocked else "not blocked"))
    group.on_excluded(lambda end: say(f"excluded: {end.reason}; {len(end.returned)} messages came back"))
    await be_member(
        node,
        group,
        ready=lambda: f"{group.me.name} is ready",
        listening=lambda: _print_events(group, quiet=node.quiet),
        settle=lambda message: message.stable(),
    )


async def _print_events(group: ChangingGroup, *, quiet: bool) -> None:
    async for event in group.events():
        if not isinstance(event, ChangingDelivery):
            say(f"view {event.view.number}: {', '.join(who.name for who in event.view.members)}")
        elif not quiet:
            text = event.payload.decode("utf-8", "backslashreplace")
            print(f"{event.sender.name} {event.view}:{event.sequence} {text}", flush=not group.has_more)

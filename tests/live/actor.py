"""A member of a live test in a process of its own.

It multicasts now and then, and answers some of what is delivered to it, so that messages depend on messages of others.
When told to finish, and who crashed, it waits until those are excluded and everything is stable, reports one JSON line
and leaves when told to.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from cubecast.errors import ExcludedError
from cubecast.live.credentials import Credentials
from cubecast.live.group import LiveGroup, join
from cubecast.live.settings import Settings

LOOK_S = 0.15


async def converse(group: LiveGroup, task: dict[str, Any], finish: asyncio.Event) -> None:
    """Send at random moments until told to finish."""
    chance = random.Random(task["seed"] * 1000 + group.rank)
    while not finish.is_set():
        for _ in range(chance.randrange(1, task.get("burst", 20))):
            await group.multicast(bytes(chance.randrange(200)))
        await asyncio.sleep(chance.random() * task["pause_s"])


async def answer(group: LiveGroup, task: dict[str, Any], finish: asyncio.Event) -> None:
    """Take deliveries; every hundredth or so is answered."""
    chance = random.Random(task["seed"] * 1000 + 500 + group.rank)
    async for _ in group:
        if not finish.is_set() and chance.random() < 0.01:
            await group.multicast(b"answer")


async def settle(group: LiveGroup, crashed: set[int], quiet_s: float) -> None:
    """Wait until the crashed are excluded, nothing has moved for so long and everything is stable.

    Before, messages of others may wait behind a dead member, and this one would think that all is said.
    """
    while crashed & {*group.view.members}:
        await asyncio.sleep(LOOK_S)
    quiet = 0.0
    last = None
    while quiet < quiet_s:
        await asyncio.sleep(LOOK_S)
        now = (group.stats["delivered"], tuple(group.frontier))
        quiet = quiet + LOOK_S if now == last and group.stats["unstable_messages"] == 0 else 0.0
        last = now


def resident_mib() -> int:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") >> 20


async def main() -> None:
    """Run the task of the first argument."""
    task = json.loads(sys.argv[1])
    credentials = Credentials.load(task["certificate"], ca=task["ca"]) if task.get("ca") else None
    group = join(
        "test",
        listen=task["listen"],
        peers=task["peers"],
        credentials=credentials,
        plaintext=credentials is None,
        settings=Settings(**task.get("settings", {})),
        trace=task["trace"],
    )
    finish = asyncio.Event()
    report: dict[str, Any] = {"excluded": False}
    async with group:
        print("ready", flush=True)
        work = [asyncio.create_task(converse(group, task, finish)), asyncio.create_task(answer(group, task, finish))]
        try:
            told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
            await asyncio.wait([told, *work], return_when=asyncio.FIRST_COMPLETED)
            finish.set()
            await work[0]
            crashed = {int(rank) for rank in told.result().split()[1:]} if told.done() else set()
            await asyncio.wait_for(settle(group, crashed, task["quiet_s"]), 60)
            report |= {
                "delivered": group.stats["delivered"],
                "published": group.stats["published"],
                "frontier": group.frontier,
                "members": group.view.members,
                "unstable": group.stats["unstable_bytes"],
                "refused": group.stats["refused_connections"],
                "mib": resident_mib(),
                "reconnections": sum(link["reconnections"] for link in group.stats["links"].values()),
            }
        except ExcludedError:
            report["excluded"] = True
        for one in work:
            one.cancel()
        print(json.dumps(report), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await group.leave(drain=False)


if __name__ == "__main__":
    asyncio.run(main())

"""One member of a benchmark of changes: it counts its deliveries in small time bins and notes every pause.

Reports one JSON line on standard output: the time of the first bin, the counts, and the pauses of view changes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from cubecast.live.group import Group, join
from cubecast.live.loop import run
from cubecast.live.warm import load
from cubecast.member.effects import ViewChange
from cubecast.member.settings import Settings
from cubecast.protocols.catalogue import chosen

BIN_S = 0.05


class Timeline:
    """Deliveries by time."""

    def __init__(self) -> None:
        """Nothing counted."""
        self.bins: dict[int, int] = {}
        self.pauses: list[tuple[float, float]] = []

    async def read(self, group: Group) -> None:
        """Count until the member leaves."""
        count, bin_now = 0, 0
        async for event in group.events():
            if isinstance(event, ViewChange):
                self.pauses.append((time.time(), event.pause_s))
                continue
            count += 1
            if count & 15 == 0:
                now = int(time.time() / BIN_S)
                if now != bin_now:
                    self.bins[bin_now] = self.bins.get(bin_now, 0) + count
                    count, bin_now = 0, now
        self.bins[bin_now] = self.bins.get(bin_now, 0) + count

    def report(self) -> dict[str, Any]:
        """Bins and pauses as JSON data."""
        return {"bins": sorted(self.bins.items()), "pauses": self.pauses}


async def send(group: Group, payload: bytes, end: float) -> None:
    """Multicast as fast as the window allows."""
    while time.time() < end:
        for _ in range(64):
            await group.multicast(payload)


async def reset(group: Group, at: float) -> None:
    """Break all connections of this member, as a TCP reset does."""
    await asyncio.sleep(max(0.0, at - time.time()))
    assert group._driver is not None
    for connection in list(group._driver.connections._open.values()):
        connection.drop("reset by the benchmark")


async def main() -> None:
    """Run the task given as the first argument."""
    task = json.loads(sys.argv[1])
    if "contact" in task:
        load(chosen("causal", 2).name, Settings.stability)  # starting a process is not part of joining
        print("loaded", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    way: dict[str, Any] = {"contact": task["contact"]} if "contact" in task else {"peers": task["peers"]}
    settings = Settings(suspect_after_s=30, **task.get("settings", {}))
    timeline = Timeline()
    async with join("bench", listen=task["listen"], plaintext=True, settings=settings, **way) as group:
        reading = asyncio.create_task(timeline.read(group))
        print("ready", flush=True)
        start = float(await asyncio.to_thread(sys.stdin.readline))
        end = start + task["seconds"]
        work = []
        if task["sends"]:
            await asyncio.sleep(max(0.0, start - time.time()))
            work.append(send(group, bytes(100), end))
        if task.get("reset_after_s"):
            work.append(reset(group, start + task["reset_after_s"]))
        await asyncio.gather(*work)
        await asyncio.sleep(max(0.0, end + 0.5 - time.time()))
        print(json.dumps(timeline.report()), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await group.leave()
        await reading


if __name__ == "__main__":
    run(main())

"""One member of the benchmark of large states: it executes commands and reports how long it blocked its event loop.

| line          | answer                                                                                          |
|---------------|-------------------------------------------------------------------------------------------------|
| `fill COUNT`  | `filled`, when this many messages were multicast and are stable                                 |
| `load RATE`   | none; it multicasts this many messages per second until the next `load`, 0 for none             |
| `mark`        | one JSON line: what happened since the last `mark`                                              |
| `leave`       | none; the process ends                                                                          |
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from cubecast.live.group import Group, join
from cubecast.member.settings import Settings


class Stalls:
    """The longest single callback of the event loop, by wall time and by processor time, and its name."""

    def __init__(self) -> None:
        """Watch asyncio's own loop; uvloop offers no hook."""
        self.wall_s = self.cpu_s = 0.0
        self.what = ""
        self.over = 0
        self._run = asyncio.Handle._run
        stalls, run = self, self._run

        def timed(handle: asyncio.Handle) -> None:
            what = handle._callback  # type: ignore[attr-defined]
            wall, cpu = time.perf_counter(), time.thread_time()
            run(handle)
            stalls.note(time.perf_counter() - wall, time.thread_time() - cpu, what)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

    def note(self, wall_s: float, cpu_s: float, what: Any) -> None:
        """Note a callback that has ended."""
        self.wall_s = max(self.wall_s, wall_s)
        self.over += cpu_s > 0.02
        if cpu_s > self.cpu_s:
            self.cpu_s, self.what = cpu_s, repr(what)[:200]

    def take(self) -> dict[str, Any]:
        """Return and reset what was noted since the last call."""
        found = {
            "stall_ms": round(1e3 * self.wall_s, 1),
            "stall_cpu_ms": round(1e3 * self.cpu_s, 1),
            "over_20_ms": self.over,
            "in": self.what,
        }
        self.wall_s = self.cpu_s = 0.0
        self.over = 0
        self.what = ""
        return found


class Process:
    """One member and its counters."""

    def __init__(self, task: dict[str, Any]) -> None:
        """Not in the group yet."""
        self.stalls = Stalls()
        self.delivered = self.history = 0
        self.state = os.urandom(1 << 20) * (task.get("state_bytes", 0) >> 20)
        self.restored_bytes = 0
        self.exclusions = 0
        self.longest_view_pause_s = 0.0
        self._rate = 0.0
        self._marked = (time.time(), 0)
        options: dict[str, Any] = {}
        if task.get("state_bytes"):
            options = {"snapshot": lambda: self.state, "restore": self._restore}
        if task.get("journal"):
            options["journal"] = task["journal"]
        way = {"contact": task["contact"]} if "contact" in task else {"peers": task["peers"]}
        settings = Settings(join_timeout_s=600, **task["settings"])
        self.group: Group = join("bench", listen=task["listen"], plaintext=True, settings=settings, **way, **options)
        self.group.on_excluded(lambda _: self._exclude())

    def _exclude(self) -> None:
        self.exclusions += 1

    def _restore(self, state: bytes) -> None:
        self.state = state
        self.restored_bytes = len(state)

    async def live(self) -> None:
        """Run a member until a leave command."""
        began = time.time()
        async with self.group:
            self._say({"joined_s": round(time.time() - began, 2)})
            tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._load())]
            await self._obey()
            for task in tasks:
                task.cancel()
            await self.group.leave(drain=False)

    async def _read(self) -> None:
        async for delivery in self.group:
            if delivery.is_history:
                self.history += 1
            else:
                self.delivered += 1

    async def _load(self) -> None:
        payload, due = bytes(100), time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            if not self._rate:
                due = now
            while self._rate and due < now:
                await self.group.multicast(payload)
                due += 1 / self._rate
            due = max(due, now - 0.1)

    async def _fill(self, count: int) -> None:
        message = None
        for _ in range(count):
            message = await self.group.multicast(bytes(100))
        if message is not None:
            await message.stable(60)
        print("filled", flush=True)

    async def _obey(self) -> None:
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            match line:
                case ["fill", count]:
                    await self._fill(int(count))
                case ["load", rate]:
                    self._rate = float(rate)
                case ["mark"]:
                    self._say(self._mark())
                case ["leave"]:
                    return

    def _mark(self) -> dict[str, Any]:
        now, (then, before) = time.time(), self._marked
        self._marked = (now, self.delivered)
        stats = self.group.stats
        return {
            "rate": round((self.delivered - before) / (now - then)),
            **self.stalls.take(),
            "history": self.history,
            "restored_bytes": self.restored_bytes,
            "members": len(self.group.view.members),
            "exclusions": self.exclusions,
            "unstable": stats["unstable_messages"],
            "inbox": stats["inbox_entries"],
            "journal_mib": stats["journal_bytes"] >> 20,
            "mib": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }

    def _say(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(Process(json.loads(sys.argv[1])).live())

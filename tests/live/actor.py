"""A replica of the key–value store in a process of its own, for tests with real processes.

It writes at intervals, in bursts if configured, and executes commands: `quiet` (stop writing), `set KEY VALUE` (answers
when it is stable), `report N` (one JSON line), `force`, `leave`. Its trace goes to a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

import cubecast
from examples.kv_store import KeyValueStore

KEYS = 200


class Actor:
    """One process."""

    def __init__(self, task: dict[str, Any]) -> None:
        """Nothing is opened yet."""
        self.task = task
        self.store = KeyValueStore()
        self.chance = random.Random(f"{task['seed']} {task['listen']} {os.getpid()}")
        self.is_quiet = False
        self.notices = {"blocked": 0, "excluded": 0, "returned": 0, "views": 0}
        credentials = cubecast.Credentials.load(task["certificate"], ca=task["ca"]) if task.get("ca") else None
        self.group = cubecast.join(
            "test",
            listen=task["listen"],
            peers=task.get("peers"),
            contact=task.get("contact"),
            found=task.get("found", False),
            credentials=credentials,
            plaintext=credentials is None,
            settings=cubecast.Settings(**task.get("settings", {})),
            snapshot=self.store.snapshot,
            restore=self.store.restore,
            journal=task.get("journal"),
            trace=task.get("trace"),
        )

    async def live(self) -> None:
        """Run a member until a leave command."""
        group = self.group
        self.store.attach(group)
        group.on_view(lambda _: self._count(views=1))
        group.on_blocked(lambda is_blocked: self._count(blocked=int(is_blocked)))
        group.on_excluded(lambda end: self._count(excluded=1, returned=len(end.returned)))
        async with group:
            print("ready", flush=True)
            running, writing = asyncio.create_task(self.store.run()), asyncio.create_task(self._write())
            await self._obey()
            writing.cancel()
            await group.leave()
            await running

    def _count(self, **more: int) -> None:
        for what, count in more.items():
            self.notices[what] += count

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * 2 * self.task["pause_s"])
            for _ in range(0 if self.is_quiet else self.task.get("burst", 1)):
                key = f"key{self.chance.randrange(KEYS)}"
                is_deletion = self.chance.random() < 0.3
                await (self.store.delete(key) if is_deletion else self.store.set(key, self.chance.randrange(1 << 30)))

    async def _obey(self) -> None:
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            match line.split():
                case ["quiet"]:
                    self.is_quiet = True
                case ["report", number]:
                    print(json.dumps({"answer": int(number), **self._report()}), flush=True)
                case ["set", key, value]:
                    await (await self.store.set(key, value)).stable(30, hurry=True)
                    print("stable", flush=True)
                case ["force"]:
                    self.group.force()
                case ["leave"]:
                    return

    def _report(self) -> dict[str, Any]:
        stats = self.group.stats
        items = self.store.items()
        return {
            "me": self.group.me,
            "view": self.group.view.number,
            "members": self.group.view.members,
            "phase": stats["phase"],
            "blocked": stats["blocked"],
            "unstable": stats["unstable_messages"] + stats["own_unstable_messages"] + self.group.has_more,
            "delivered": stats["delivered"],
            "frontier": sum(self.group.frontier.values()),
            "digest": hashlib.blake2b(json.dumps(items).encode(), digest_size=8).hexdigest(),
            "keys": len(items),
            "mine": {key: value for key, value in items.items() if not key.startswith("key")},
            "tombstones": self.store.tombstones,
            "reconnections": sum(link["reconnections"] for link in stats["links"].values()),
            "mib": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20,
            "cpu_s": round(sum(os.times()[:2]), 2),
            "notices": self.notices,
        }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    asyncio.run(Actor(json.loads(sys.argv[1])).live())

"""A replica of the key–value store in a process of its own, for tests of groups that change.

It writes now and then, records what happens to it, and obeys lines: `quiet` (write no more), `report N` (one JSON
line), `leave`. Its state also holds which messages were delivered, so that the promises can be judged.
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
from cubecast.live.changing.recording import DeliveredLog, HistoryRecorder
from examples.changing_store import ChangingStore

KEYS = 200


class RecordedStore(ChangingStore):
    """A replica that remembers which messages made it what it is."""

    def __init__(self, *, tell_every_s: float) -> None:
        """Empty."""
        super().__init__(tell_every_s=tell_every_s)
        self.delivered = DeliveredLog()

    def snapshot(self) -> bytes:
        """The replica and its messages."""
        return json.dumps([super().snapshot().decode(), self.delivered.dump()]).encode()

    def restore(self, octets: bytes) -> None:
        """Both."""
        state, delivered = json.loads(octets)
        super().restore(state.encode())
        self.delivered = DeliveredLog.load(delivered)

    def apply(self, event: Any) -> None:
        """One more."""
        if isinstance(event, cubecast.ChangingDelivery):
            self.delivered.add(event.view, event.sender, event.sequence)
        super().apply(event)

    def digest(self) -> str:
        """The same for the same keys and values."""
        return hashlib.blake2b(json.dumps(self.items()).encode(), digest_size=8).hexdigest()


class Actor:
    """One process."""

    def __init__(self, task: dict[str, Any]) -> None:
        """Nothing is opened yet."""
        self.task = task
        self.store = RecordedStore(tell_every_s=task.get("tell_every_s", 0.2))
        self.chance = random.Random(f"{task['seed']} {task['listen']} {os.getpid()}")
        self.is_quiet = False
        self.told = {"blocked": 0, "excluded": 0, "returned": 0}
        self.group = self._group()

    def _group(self) -> cubecast.ChangingGroup:
        task = self.task
        credentials = cubecast.Credentials.load(task["certificate"], ca=task["ca"]) if task.get("ca") else None
        options: dict[str, Any] = {
            "listen": task["listen"],
            "credentials": credentials,
            "plaintext": credentials is None,
            "settings": cubecast.ChangingSettings(**task.get("settings", {})),
            "snapshot": self.store.snapshot,
            "restore": self.store.restore,
            "log": task.get("log"),
            "history": HistoryRecorder(task["history"], contents=lambda octets: json.loads(octets)[1]),
        }
        if task.get("contact"):
            return cubecast.join("test", contact=task["contact"], **options)
        return cubecast.found("test", **options)

    async def live(self) -> None:
        """Be a member until told to leave."""
        group = self.group
        self.store.attach(group)
        group.on_blocked(lambda is_blocked: self._count(blocked=int(is_blocked)))
        group.on_excluded(lambda end: self._count(excluded=1, returned=len(end.returned)))
        async with group:
            print("ready", flush=True)
            work = [asyncio.create_task(self.store.run()), asyncio.create_task(self._write())]
            await self._obey()
            await group.leave()
            for one in work:
                one.cancel()

    def _count(self, **more: int) -> None:
        for what, count in more.items():
            self.told[what] += count

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * 2 * self.task["pause_s"])
            if not self.is_quiet:
                key = f"key{self.chance.randrange(KEYS)}"
                is_deletion = self.chance.random() < 0.3
                await (self.store.delete(key) if is_deletion else self.store.set(key, self.chance.randrange(1 << 30)))

    async def _obey(self) -> None:
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if line == "quiet":
                self.is_quiet = True
            elif line.startswith("report"):
                print(json.dumps({"answer": int(line.split()[1]), **self._report()}), flush=True)
            elif line == "leave":
                return

    def _report(self) -> dict[str, Any]:
        stats = self.group.stats
        return {
            "me": self.group.me,
            "view": self.group.view.number,
            "members": self.group.view.members,
            "phase": stats["phase"],
            "blocked": stats["blocked"],
            "unstable": stats["unstable_messages"] + stats["own_unstable_messages"] + self.group.has_more,
            "delivered": len(self.store.delivered.packed),
            "digest": self.store.digest(),
            "keys": len(self.store.items()),
            "tombstones": self.store.tombstones,
            "lives": stats["lives"],
            "mib": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20,
            "cpu_s": round(sum(os.times()[:2]), 2),
            "told": self.told,
        }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    asyncio.run(Actor(json.loads(sys.argv[1])).live())

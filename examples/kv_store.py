"""A replicated key–value store: every member holds all of it, writes go to all, deletions leave no trace in the end.

Each write carries a Lamport clock; of two writes to one key the larger (clock, rank) stays, so that concurrent writes
end the same everywhere. A deletion is a write too: it must be remembered (a *tombstone*) as long as an older write by
somebody who did not know of it may still arrive. When the deletion is stable, everybody has it; each member then tells
the others what it knows to be stable, and messages of one member arrive in order. So once every member has told of a
frontier that covers the deletion, whatever arrives later was sent by somebody who knew of it: the tombstone can go.

    python examples/kv_store.py --listen 127.0.0.1:7001 --peer 127.0.0.1:7002 --plaintext
    set colour green | get colour | del colour | show
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import cubecast

TELL_EVERY_S = 0.2
CALM_S = 10.0
"""After a member was excluded, tombstones wait: messages of its last moments may still come from others."""


class KeyValueStore:
    """One replica; `run` must be running."""

    def __init__(self, group: cubecast.LiveGroup) -> None:
        """An empty replica of a group that was joined."""
        self._group = group
        self._clock = 0
        self._entries: dict[str, tuple[int, int, Any]] = {}
        self._tombstones: dict[str, tuple[int, int]] = {}
        self._told = {rank: [0] * len(group.addresses) for rank in range(len(group.addresses))}
        self._last_told: list[int] = []
        self._view = group.view.number
        self._calm_at = 0.0

    def get(self, key: str) -> Any:
        """The value of a key, None when it has none."""
        entry = self._entries.get(key)
        return entry[2] if entry else None

    def items(self) -> dict[str, Any]:
        """Everything."""
        return {key: value for key, (_, _, value) in sorted(self._entries.items()) if value is not None}

    @property
    def tombstones(self) -> int:
        """Deletions that are still remembered."""
        return len(self._tombstones)

    async def set(self, key: str, value: Any) -> None:
        """Write; the own replica changes when the message is delivered."""
        self._clock += 1
        await self._send({"key": key, "value": value, "clock": self._clock})

    async def delete(self, key: str) -> None:
        """Delete: write nothing."""
        await self.set(key, None)

    async def run(self) -> None:
        """Apply what is delivered, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apply_all())
            tasks.create_task(self._tell_often())

    async def _send(self, operation: dict[str, Any]) -> None:
        await self._group.multicast(json.dumps(operation).encode())

    async def _apply_all(self) -> None:
        async for delivery in self._group:
            operation = json.loads(delivery.payload)
            if "frontier" in operation:
                self._told[delivery.sender] = operation["frontier"]
            else:
                self._apply(operation, delivery.sender, delivery.sequence)

    def _apply(self, operation: dict[str, Any], sender: int, sequence: int) -> None:
        key, clock = operation["key"], operation["clock"]
        self._clock = max(self._clock, clock)
        old = self._entries.get(key)
        if old is not None and (old[0], old[1]) > (clock, sender):
            return
        self._entries[key] = (clock, sender, operation["value"])
        self._tombstones.pop(key, None)
        if operation["value"] is None:
            self._tombstones[key] = (sender, sequence)

    async def _tell_often(self) -> None:
        """Tell what is stable while there are tombstones anywhere, and collect those that everybody told of."""
        while True:
            frontier = list(self._group.frontier)
            if self._tombstones and frontier != self._last_told:
                self._last_told = frontier
                await self._send({"frontier": frontier})
            self._collect()
            await asyncio.sleep(TELL_EVERY_S)

    def _collect(self) -> None:
        view = self._group.view
        if view.number != self._view:
            self._view = view.number
            self._calm_at = time.monotonic() + CALM_S
        if time.monotonic() < self._calm_at:
            return
        for key, (sender, sequence) in list(self._tombstones.items()):
            if all(self._told[rank][sender] >= sequence for rank in view.members):
                del self._tombstones[key], self._entries[key]


async def _obey(store: KeyValueStore) -> None:
    """Commands from the terminal."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.strip().split(maxsplit=2):
            case ["set", key, value]:
                await store.set(key, value)
            case ["get", key]:
                print(store.get(key), flush=True)
            case ["del", key]:
                await store.delete(key)
            case ["show"]:
                print(json.dumps(store.items()), f"({store.tombstones} tombstones)", flush=True)
            case _:
                print("set KEY VALUE | get KEY | del KEY | show", flush=True)


async def main() -> None:
    """Be one replica in a terminal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--peer", action="append", required=True)
    parser.add_argument("--plaintext", action="store_true")
    parser.add_argument("--credentials")
    parser.add_argument("--ca")
    chosen = parser.parse_args()
    credentials = None if chosen.plaintext else cubecast.Credentials.load(chosen.credentials, ca=chosen.ca)
    group = cubecast.join(
        "kv", listen=chosen.listen, peers=chosen.peer, credentials=credentials, plaintext=chosen.plaintext
    )
    async with group:
        store = KeyValueStore(group)
        running = asyncio.create_task(store.run())
        await _obey(store)
        running.cancel()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except cubecast.CubecastError as error:
        sys.exit(str(error))

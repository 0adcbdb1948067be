"""A replicated key–value store: a newcomer gets the whole state, and deletions are freed when no write can contradict.

Each write carries a Lamport clock; of two writes to one key the larger (view, clock, writer) wins, so that concurrent
writes have the same outcome at all replicas. (The view comes first because a replica that is cut off may write with an
old clock; its write is sent in the view in which it is back.) A deletion is a write too: it must be kept (as a
*tombstone*) as long as an older write by a member that did not know of it may still arrive. When it is *causally
stable* here, no such write can: every message that this replica will still be given comes from a replica that had
applied the deletion, or is of a later view. Then it is freed.

Three replicas that found the store together, and a fourth that joins later:

    python examples/kv_store.py --listen 127.0.0.1:7001 --peer 127.0.0.1:7002 --peer 127.0.0.1:7003 --plaintext
    python examples/kv_store.py --listen 127.0.0.1:7002 --peer 127.0.0.1:7001 --peer 127.0.0.1:7003 --plaintext
    python examples/kv_store.py --listen 127.0.0.1:7003 --peer 127.0.0.1:7001 --peer 127.0.0.1:7002 --plaintext
    python examples/kv_store.py --listen 127.0.0.1:7004 --contact 127.0.0.1:7001 --plaintext --journal four.journal
    set colour green | get colour | del colour | show
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import cubecast

COMMANDS = "set KEY VALUE | get KEY | del KEY | show"


class KeyValueStore:
    """One replica. `snapshot` and `restore` go to `cubecast.join`; then `attach` the group, and `run`."""

    def __init__(self) -> None:
        """An empty replica."""
        self._group: cubecast.Group | None = None
        self._clock = 0
        self._entries: dict[str, tuple[int, int, str, Any]] = {}
        """By key: view, clock and writer of the last write, and the value."""
        self._tombstones: dict[str, cubecast.Delivery] = {}
        """By key: the message that deleted it."""

    def attach(self, group: cubecast.Group) -> None:
        """Set the group of this replica."""
        self._group = group
        group.on_causally_stable(lambda _frontier: self._free_tombstones())

    # State for newcomers.

    def snapshot(self) -> bytes:
        """The whole replica."""
        tombstones = {key: [*one.sender, one.view, one.sequence] for key, one in self._tombstones.items()}
        return json.dumps([self._clock, self._entries, tombstones]).encode()

    def restore(self, state: bytes) -> None:
        """Replace the content by that of another replica."""
        clock, entries, tombstones = json.loads(state)
        self._clock = max(self._clock, clock)
        self._entries = {key: tuple(entry) for key, entry in entries.items()}
        self._tombstones = {
            key: cubecast.Delivery(cubecast.MemberId(name, incarnation), view, sequence, b"")
            for key, (name, incarnation, view, sequence) in tombstones.items()
        }

    # Reads and writes.

    def get(self, key: str) -> Any:
        """The value of a key, or None."""
        entry = self._entries.get(key)
        return entry[3] if entry else None

    def items(self) -> dict[str, Any]:
        """All keys and values."""
        return {key: value for key, (_, _, _, value) in sorted(self._entries.items()) if value is not None}

    @property
    def tombstones(self) -> int:
        """How many tombstones there are."""
        return len(self._tombstones)

    async def set(self, key: str, value: Any) -> cubecast.Message:
        """Write a value; this replica changes too when the message is delivered."""
        self._clock += 1
        assert self._group is not None
        operation = {"key": key, "value": value, "clock": self._clock}
        return await self._group.multicast(json.dumps(operation).encode())

    async def delete(self, key: str) -> cubecast.Message:
        """Delete a key: write None."""
        return await self.set(key, None)

    # Events of the group.

    async def run(self) -> None:
        """Apply all messages until this member leaves."""
        assert self._group is not None
        async for delivery in self._group:
            self.apply(delivery)

    def apply(self, delivery: cubecast.Delivery) -> None:
        """Apply a write, unless a larger one was applied before."""
        operation = json.loads(delivery.payload)
        key, clock = operation["key"], operation["clock"]
        writer = f"{delivery.sender.name}/{delivery.sender.incarnation}"
        self._clock = max(self._clock, clock)
        old = self._entries.get(key)
        if old is not None and old[:3] > (delivery.view, clock, writer):
            return
        self._entries[key] = (delivery.view, clock, writer, operation["value"])
        self._tombstones.pop(key, None)
        if operation["value"] is None:
            self._tombstones[key] = delivery

    def _free_tombstones(self) -> None:
        """Forget the deletions that every later write knows of."""
        assert self._group is not None
        for key, delivery in list(self._tombstones.items()):
            if self._group.is_causally_stable(delivery):
                del self._tombstones[key], self._entries[key]


async def _obey(store: KeyValueStore) -> None:
    """Run commands from the terminal."""
    reader = asyncio.StreamReader()  # not a thread that reads: it would keep the process alive after Ctrl-C
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await _prompted(reader):
        match line.decode().strip().split(maxsplit=2):
            case ["set", key, value]:
                await store.set(key, value)
            case ["get", key]:
                print(store.get(key), flush=True)
            case ["del", key]:
                await store.delete(key)
            case ["show"]:
                print(json.dumps(store.items(), ensure_ascii=False), f"({store.tombstones} tombstones)", flush=True)
            case _:
                print(COMMANDS, flush=True)


async def _prompted(reader: asyncio.StreamReader) -> bytes:
    if sys.stdin.isatty():
        print("> ", end="", flush=True)
    return await reader.readline()


async def main() -> None:
    """Run one replica in a terminal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--peer", action="append", help="a replica with which this one founds the store")
    parser.add_argument("--contact", action="append", help="a replica of a running store")
    parser.add_argument("--found", action="store_true", help="found a store of one replica")
    parser.add_argument("--journal", help="continue from this file after a stop")
    parser.add_argument("--plaintext", action="store_true", help="go without TLS")
    parser.add_argument("--credentials", help="this replica's certificate and key (`cubecast keys issue`)")
    parser.add_argument("--ca", help="the group's certificate")
    chosen = parser.parse_args()
    if not chosen.plaintext and not (chosen.credentials and chosen.ca):
        parser.error("give --credentials MEMBER.pem and --ca group.pem, or --plaintext")
    if not (chosen.peer or chosen.contact or chosen.found or chosen.journal):
        parser.error("give --peer, --contact or --found")
    store = KeyValueStore()
    group = cubecast.join(
        "kv",
        listen=chosen.listen,
        peers=chosen.peer,
        contact=chosen.contact,
        found=chosen.found,
        credentials=None if chosen.plaintext else cubecast.Credentials.load(chosen.credentials, ca=chosen.ca),
        plaintext=chosen.plaintext,
        snapshot=store.snapshot,
        restore=store.restore,
        journal=chosen.journal,
    )
    group.on_waiting(lambda reason: print(reason, file=sys.stderr, flush=True))
    async with group:
        store.attach(group)
        running = asyncio.create_task(store.run())
        print("ready", flush=True)
        if sys.stdin.isatty():
            print(COMMANDS, flush=True)
        await _obey(store)
        await group.leave()
        await running


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except cubecast.CubecastError as error:
        sys.exit(str(error))

"""A replicated key–value store: a newcomer gets the whole state, and stable deletions are freed.

Each write carries a Lamport clock; of two writes to one key the larger (clock, writer) wins, so that concurrent writes
have the same outcome at all replicas. A deletion is a write too: it must be kept (as a *tombstone*) as long as an older
write by a member that did not know of it may still arrive. The tombstone is freed

- when the view changes: a message is delivered in the view in which it was sent, and a member that sends in the new
  view has delivered everything of the old one;
- within a view, when every member has announced a frontier that covers it: messages of one member arrive in order, so
  every later message of that member was sent with knowledge of the deletion.

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


class KeyValueStore:
    """One replica. `snapshot` and `restore` go to `cubecast.join`; then `attach` the group, and `run`."""

    def __init__(self, *, announce_every_s: float = 0.2) -> None:
        """An empty replica; while it has tombstones it announces its frontier every `announce_every_s`."""
        self._announce_every_s = announce_every_s
        self._group: cubecast.Group | None = None
        self._clock = 0
        self._entries: dict[str, tuple[int, str, Any]] = {}
        self._tombstones: dict[str, tuple[int, str, int]] = {}
        self._members: list[str] = []
        self._frontiers: dict[str, dict[str, int]] = {}
        self._last_announced: dict[str, int] = {}

    def attach(self, group: cubecast.Group) -> None:
        """Set the group of this replica."""
        self._group = group

    # State for newcomers.

    def snapshot(self) -> bytes:
        """The whole replica."""
        return json.dumps([self._clock, self._entries, self._tombstones, self._members, self._frontiers]).encode()

    def restore(self, state: bytes) -> None:
        """Replace the content by that of another replica."""
        self._clock, entries, tombstones, self._members, self._frontiers = json.loads(state)
        self._entries = {key: tuple(entry) for key, entry in entries.items()}
        self._tombstones = {key: tuple(place) for key, place in tombstones.items()}

    # Reads and writes.

    def get(self, key: str) -> Any:
        """The value of a key, or None."""
        entry = self._entries.get(key)
        return entry[2] if entry else None

    def items(self) -> dict[str, Any]:
        """All keys and values."""
        return {key: value for key, (_, _, value) in sorted(self._entries.items()) if value is not None}

    @property
    def tombstones(self) -> int:
        """How many tombstones there are."""
        return len(self._tombstones)

    async def set(self, key: str, value: Any) -> cubecast.Message:
        """Write a value; this replica changes too when the message is delivered."""
        self._clock += 1
        return await self._send({"key": key, "value": value, "clock": self._clock})

    async def delete(self, key: str) -> cubecast.Message:
        """Delete a key: write None."""
        return await self.set(key, None)

    # Events of the group.

    async def run(self) -> None:
        """Apply all events until this member leaves."""
        assert self._group is not None
        announcing = asyncio.create_task(self._announce_frontier())
        try:
            async for event in self._group.events():
                self.apply(event)
        finally:
            announcing.cancel()

    async def _send(self, operation: dict[str, Any]) -> cubecast.Message:
        assert self._group is not None
        return await self._group.multicast(json.dumps(operation).encode())

    def apply(self, event: cubecast.Delivery | cubecast.ViewChange) -> None:
        """Apply a delivery or a new view."""
        if isinstance(event, cubecast.ViewChange):
            self._begin_view(event.view)
            return
        operation = json.loads(event.payload)
        sender = _key(event.sender)
        if "frontier" in operation:
            if operation["view"] == event.view:  # a message that waited for a new view has the old frontier
                self._frontiers[sender] = operation["frontier"]
                self._collect()
        else:
            self._write(operation, sender, event)

    def _write(self, operation: dict[str, Any], sender: str, event: cubecast.Delivery) -> None:
        key, clock = operation["key"], operation["clock"]
        self._clock = max(self._clock, clock)
        old = self._entries.get(key)
        if old is not None and old[:2] > (clock, sender):
            return
        self._entries[key] = (clock, sender, operation["value"])
        self._tombstones.pop(key, None)
        if operation["value"] is None:
            self._tombstones[key] = (event.view, sender, event.sequence)

    def _begin_view(self, view: cubecast.View) -> None:
        """All members know of the deletions of earlier views."""
        for key, (earlier, _, _) in list(self._tombstones.items()):
            if earlier < view.number:
                del self._tombstones[key], self._entries[key]
        self._members = [_key(who) for who in view.members]
        self._frontiers.clear()

    def _collect(self) -> None:
        """Free the tombstones that the announced frontier of every member of the view covers.

        The view is that of the events so far: `group.view` may be newer than what was applied.
        """
        frontiers = [self._frontiers.get(who, {}) for who in self._members]
        for key, (_, sender, sequence) in list(self._tombstones.items()):
            if all(frontier.get(sender, 0) >= sequence for frontier in frontiers):
                del self._tombstones[key], self._entries[key]

    async def _announce_frontier(self) -> None:
        """Announce the frontier while there are tombstones."""
        assert self._group is not None
        while True:
            await asyncio.sleep(self._announce_every_s)
            if self._tombstones:
                frontier = {_key(who): count for who, count in self._group.frontier.items() if count}
                if frontier and frontier != self._last_announced:
                    self._last_announced = frontier
                    await self._send({"frontier": frontier, "view": self._group.view.number})


def _key(who: cubecast.MemberId) -> str:
    """A member in one incarnation, as a key of JSON."""
    return f"{who.name}/{who.incarnation}"


async def _obey(store: KeyValueStore) -> None:
    """Run commands from the terminal."""
    reader = asyncio.StreamReader()  # not a thread that reads: it would keep the process alive after Ctrl-C
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        match line.decode().strip().split(maxsplit=2):
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
    async with group:
        store.attach(group)
        running = asyncio.create_task(store.run())
        print("ready", flush=True)
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

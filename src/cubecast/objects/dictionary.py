"""A dictionary with a replica at every member; all replicas agree once all members have the same messages.

*The last writer wins*: of two writes to a key the one with the larger (view, clock, writer) stays. A deletion is also a
write. It must be stored (as a tombstone) until it is causally stable: every operation that arrives later follows it.

*Adding wins*: a deletion names the writes that its member had, and deletes those and all earlier writes of its own
member, which may not be delivered there yet; a concurrent write stays. It needs no tombstone: messages arrive in causal
order, so a write arrives before the deletion that names it. Of several writes that stay, the one with the largest
(view, clock, writer) is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from cubecast.errors import LocalProtocolError
from cubecast.live.message import Message
from cubecast.objects.shared import Operation, SharedObject
from cubecast.protocols.membership.views import MemberId

if TYPE_CHECKING:
    from cubecast.objects.space import Space

Wins = Literal["last", "add"]
Stamp = tuple[int, int, str, int, int]
"""View and clock, and the writer's name, incarnation and sequence number: unique, and ordered the same way everywhere.

The view comes first: what a program wrote while its member was out of the group has an old clock, and is sent in a view
whose earlier deletions may be forgotten."""


class ReplicatedDict(SharedObject):
    """A dictionary of strings to values that msgpack can encode. Read it like a mapping. The last writer wins.

    Do not change a value that you have read: that changes this replica only. Change a copy, and `set` it.
    """

    kind = "dict"

    def __init__(self, space: Space, name: str) -> None:
        """Empty."""
        super().__init__(space, name)
        self._writes: dict[str, dict[Stamp, Any]] = {}
        """By key: the writes that stay; only one where the last writer wins."""
        self._tombstones: dict[str, Stamp] = {}
        """By deleted key: the deletion."""

    # Reading.

    def __getitem__(self, key: str) -> Any:
        """The value of a key."""
        writes = self._writes[key]
        return writes[max(writes)]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self[key] if key in self._writes else default

    def __contains__(self, key: str) -> bool:
        """Is there a value?"""
        return key in self._writes

    def __iter__(self) -> Iterator[str]:
        """The keys."""
        return iter(sorted(self._writes))

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._writes)

    def items(self) -> list[tuple[str, Any]]:
        """Keys and values."""
        return [(key, self[key]) for key in self]

    @property
    def tombstones(self) -> int:
        """The number of deletions that are still stored."""
        return len(self._tombstones)

    # Writing.

    async def set(self, key: str, value: Any) -> Message:
        """Write a value; it takes effect here, too, when its message is delivered."""
        return await self._send(["set", self._key(key), value])

    async def delete(self, key: str) -> Message:
        """Delete a key, whether it is there or not."""
        return await self._send(["delete", self._key(key), self._deleted_writes(key)])

    def _deleted_writes(self, _key: str) -> list[Stamp]:
        """The writes that a deletion must name."""
        return []

    def _key(self, key: str) -> str:
        if not isinstance(key, str):
            raise LocalProtocolError(f"{key!r} as a key of the dictionary {self.name!r}: keys are strings")
        return key

    def apply(self, operation: Operation) -> None:
        """Write or delete."""
        what, key, value = operation.value
        sender = operation.sender
        stamp = (operation.view, operation.clock, str(sender.name), sender.incarnation, operation.sequence)
        if what == "set":
            self._set(key, value, stamp)
        else:
            self._delete(key, stamp, value)

    def _set(self, key: str, value: Any, stamp: Stamp) -> None:
        if self._is_latest(key, stamp):
            self._tombstones.pop(key, None)
            self._writes[key] = {stamp: value}

    def _delete(self, key: str, stamp: Stamp, _named: list[Any]) -> None:
        if self._is_latest(key, stamp):
            self._writes.pop(key, None)
            self._tombstones[key] = stamp

    def _is_latest(self, key: str, stamp: Stamp) -> bool:
        if key in self._writes:
            return stamp > max(self._writes[key])
        return key not in self._tombstones or stamp > self._tombstones[key]

    def forget(self) -> None:
        """Free the deletions that every later write follows."""
        for key, (view, _, name, incarnation, sequence) in list(self._tombstones.items()):
            if self._space.is_causally_stable(MemberId(name, incarnation), view, sequence):
                del self._tombstones[key]

    # For newcomers.

    def state(self) -> Any:
        """Writes and tombstones."""
        return [{key: list(stamped.items()) for key, stamped in self._writes.items()}, self._tombstones]

    def load(self, state: Any) -> None:
        """Continue with another copy."""
        writes, tombstones = state
        self._writes = {key: {tuple(stamp): value for stamp, value in stamped} for key, stamped in writes.items()}
        self._tombstones = {key: tuple(stamp) for key, stamp in tombstones.items()}


class AddWinsDict(ReplicatedDict):
    """A dictionary in which a write survives a concurrent deletion."""

    kind = "add-wins dict"

    def _deleted_writes(self, key: str) -> list[Stamp]:
        return sorted(self._writes.get(key, ()))

    def _set(self, key: str, value: Any, stamp: Stamp) -> None:
        self._writes.setdefault(key, {})[stamp] = value

    def _delete(self, key: str, stamp: Stamp, named: list[Any]) -> None:
        gone = {tuple(write) for write in named}
        present = self._writes.pop(key, {})
        stay = {write: value for write, value in present.items() if write not in gone and write[2:4] != stamp[2:4]}
        if stay:
            self._writes[key] = stay

"""All shared objects of one member: it joins the group, applies deliveries, and transfers the state to newcomers.

A message names the object and carries a Lamport clock (`objects.total_order`). Objects exist at all members as soon as
one member has used them: an operation is also applied if the program of this member has not requested the object.

| event            | what happens                                                                                  |
|------------------|-----------------------------------------------------------------------------------------------|
| a delivery       | applied immediately, or, for an ordered object, when its turn comes                           |
| a view           | waiting operations of earlier views are applied; then every object learns of the view         |
| causal stability | ordered operations whose turn it is are applied; objects free their tombstones                |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.message import Message
from cubecast.live.replica import Replica
from cubecast.live.values import encode_value
from cubecast.member.effects import Delivery, ViewChange
from cubecast.objects.counter import Counter
from cubecast.objects.dictionary import AddWinsDict, ReplicatedDict, Wins
from cubecast.objects.leader import Leader
from cubecast.objects.lock import Lock
from cubecast.objects.shared import Operation, SharedObject
from cubecast.objects.total_order import Key, TotalOrder
from cubecast.protocols.membership.views import MemberId, View

log = logging.getLogger("cubecast.objects")

DICTIONARIES: dict[Wins, type[ReplicatedDict]] = {"last": ReplicatedDict, "add": AddWinsDict}
_CLASSES: tuple[type[SharedObject], ...] = (Counter, *DICTIONARIES.values(), Leader, Lock)
KINDS = {one.kind: one for one in _CLASSES}

_Object = TypeVar("_Object", bound=SharedObject)
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, Any]).decode
"""Kind and name of the object, the clock, and what the operation carries."""

DEPTH_MAX = 100
"""Lists and dictionaries in each other in a value; all members, and snapshots, must be able to encode and decode it."""


class Space(Replica):
    """The shared objects of one group at one member. Enter it once, with `join`."""

    log = log
    not_joined = "this space has not joined a group yet: `async with space.join(...)`"
    joined_before = "this space has already joined a group: create another one"
    is_the_state = "the space holds the state: store it in its objects"

    def __init__(self) -> None:
        """No objects."""
        super().__init__()
        self._objects: dict[tuple[str, str], SharedObject] = {}
        self._view: View | None = None
        """The view that the application has reached; the member may be ahead."""
        self._clock = 0
        self._order: TotalOrder[tuple[str, str, Any]] = TotalOrder()

    # Objects.

    def dict(self, name: str, wins: Wins = "last") -> ReplicatedDict:
        """The dictionary with this name. All members must use the same `wins`."""
        if wins not in DICTIONARIES:
            raise LocalProtocolError(f"wins={wins!r} for the dictionary {name!r}: one of {', '.join(DICTIONARIES)}")
        for other, kind in DICTIONARIES.items():
            if other != wins and (kind.kind, name) in self._objects:
                raise LocalProtocolError(f"the dictionary {name!r} already has wins={other!r}")
        return self._object(DICTIONARIES[wins], name)

    def counter(self, name: str) -> Counter:
        """The counter with this name."""
        return self._object(Counter, name)

    def lock(self, name: str) -> Lock:
        """The lock with this name."""
        return self._object(Lock, name)

    def leader(self, name: str = "") -> Leader:
        """The leader of the group."""
        return self._object(Leader, name)

    def _object(self, kind: type[_Object], name: str) -> _Object:
        found = self._objects.get((kind.kind, name))
        if found is None:
            if not isinstance(name, str):
                raise LocalProtocolError(f"{kind.kind} {name!r}: the name must be a string")
            found = self._objects[kind.kind, name] = kind(self, name)
            if self._view is not None:
                found.begin_view(self._view)
        assert isinstance(found, kind)
        return found

    # What objects call.

    async def multicast(self, of: SharedObject, value: Any) -> Message:
        """Send an operation of an object to all members."""
        self.require_own_loop()
        self._clock += 1
        try:
            octets = encode_value([of.kind, of.name, self._clock, value])
            if _is_nested_deeper(list(_decode(octets)), DEPTH_MAX + 1):
                raise ValueError(f"lists or dictionaries are nested more than {DEPTH_MAX} deep")
        except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
            raise LocalProtocolError(f"{of.kind} {of.name!r}: this value cannot be sent: {error}") from None
        return await self.group.multicast(octets)

    def hurry(self, message: Message) -> None:
        """Start stability rounds until a message is causally stable."""
        self.later(message.causally_stable(hurry=True))

    def is_causally_stable(self, sender: MemberId, view: int, sequence: int) -> bool:
        """Does every later delivery follow this message?"""
        return self.group.is_causally_stable(Delivery(sender, view, sequence, b""))

    # What the group gives.

    def _take(self, event: Delivery | ViewChange) -> None:
        if isinstance(event, ViewChange):
            self._apply_ordered(self._order.begin_view(event.view.number))
            self._view = event.view
            for one in self._objects.values():
                one.begin_view(event.view)
            return
        try:
            kind, name, clock, value = _decode(event.payload)
            known = KINDS[kind]
        except (msgspec.DecodeError, RecursionError, KeyError):
            raise _no_operation(event.sender) from None
        self._clock = max(self._clock, clock)
        if known.is_ordered:
            key = Key(event.view, clock, event.sender, event.sequence)
            self._order.add(key, (kind, name, value))
        else:
            self._apply(kind, name, Operation(event.sender, event.view, event.sequence, clock, value))

    def _apply(self, kind: str, name: str, operation: Operation) -> None:
        """Apply an operation; an invalid value is an error of its sender."""
        try:
            self._object(KINDS[kind], name).apply(operation)
        except (TypeError, ValueError):
            raise _no_operation(operation.sender) from None

    def _stable(self) -> None:
        ready = self._order.stable(lambda key: self.is_causally_stable(key.sender, key.view, key.sequence))
        self._apply_ordered(ready)
        for one in self._objects.values():
            one.forget()

    def _apply_ordered(self, ready: list[tuple[Key, tuple[str, str, Any]]]) -> None:
        for key, (kind, name, value) in ready:
            try:
                self._apply(kind, name, Operation(key.sender, key.view, key.sequence, key.clock, value))
            except RemoteProtocolError as error:
                self.log.error("message skipped reason=%s", error)

    def _lost(self) -> None:
        for lock in self._locks():
            lock.lost()

    def _ended(self) -> None:
        for lock in self._locks():
            lock.ended()

    def _locks(self) -> list[Lock]:
        return [one for one in self._objects.values() if isinstance(one, Lock)]

    # For newcomers.

    def snapshot(self) -> bytes:
        """All objects, and the operations that wait for their turn."""
        objects = [[kind, name, one.state()] for (kind, name), one in self._objects.items()]
        waiting = [[key.view, key.clock, *key.sender, key.sequence, item] for key, item in self._order.waiting]
        return msgspec.msgpack.encode([self._clock, objects, waiting])

    def restore(self, state: bytes) -> None:
        """Continue with the objects of another member; objects that it does not have are empty."""
        clock, objects, waiting = msgspec.msgpack.decode(state)
        self._clock = max(self._clock, clock)
        known = {(kind, name): state for kind, name, state in objects}
        for place in {*known, *self._objects}:
            one = self._object(KINDS[place[0]], place[1])
            fresh = type(one)(self, place[1])
            one.load(known.get(place, fresh.state()))
        self._order.put_back(
            (Key(view, clock, MemberId(name, incarnation), sequence), tuple(item))
            for view, clock, name, incarnation, sequence, item in waiting
        )


def _is_nested_deeper(value: Any, depth_max: int) -> bool:
    """Is there a container in more than that many others? `value` was decoded: it has no cycles."""
    level = [value]
    for _ in range(depth_max + 1):
        level = [inner for outer in level for part in _parts(outer) for inner in _containers(part)]
        if not level:
            return False
    return True


_CONTAINERS = frozenset({list, tuple, dict})


def _parts(container: Any) -> tuple[Iterable[Any], ...]:
    return (container, container.values()) if type(container) is dict else (container,)


def _containers(items: Iterable[Any]) -> list[Any]:
    if _CONTAINERS.isdisjoint(map(type, items)):  # the usual case
        return []
    return [item for item in items if type(item) in _CONTAINERS]


def _no_operation(sender: MemberId) -> RemoteProtocolError:
    return RemoteProtocolError(f"{sender.name} sent an invalid operation of a shared object")

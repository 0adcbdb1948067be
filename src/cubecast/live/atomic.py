"""Atomic delivery: the application gets a message when every member of the view has it (guo §2.3).

    atomic = AtomicDelivery(snapshot=take, restore=put_back)
    async with atomic.join("bank", listen=..., peers=[...], credentials=...) as group:
        async for event in atomic:
            ...

"A message is not delivered to any group member until all the members have received it": no application acts on a
message that the others can still lose in a crash. Deliveries of the group wait here, in order, until

- they are stable in their view: the longest stable prefix is delivered;
- the next view is installed: all members that stay then have the same messages of the old view;
- this member is excluded: they are dropped, including later ones from before the exclusion. The group may have
  continued without them, and this member gets the group's state when it rejoins.

| field    | meaning                                                                                       |
|----------|-----------------------------------------------------------------------------------------------|
| `held`   | deliveries that are not known to be at every member, in their order                           |
| `ready`  | events that the application may have                                                          |
| `taking` | the task that waits for the next entry of the group                                           |

A newcomer receives the state of the application together with the waiting deliveries, which it delivers first. The
state is taken while the application asks for the next event. A member that leaves delivers no waiting message.

For the group, the application has taken a message that waits here: `stable(level="processed")` does not wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from cubecast.errors import LocalProtocolError
from cubecast.live.application_state import Restore, Snapshot, octets_of
from cubecast.live.group import Group, join
from cubecast.live.inbox import Event
from cubecast.live.join_options import require_state_functions
from cubecast.member.effects import Delivery
from cubecast.protocols.membership.views import MemberId


class _State(msgspec.Struct, array_like=True):
    """The state that a newcomer receives."""

    waiting: list[Delivery]
    octets: bytes


class HeldDeliveries:
    """Deliveries that wait until they are stable, in their order."""

    def __init__(self) -> None:
        """No delivery waits."""
        self.waiting: deque[Delivery] = deque()

    def add(self, delivery: Delivery) -> None:
        """Add a delivery of the group."""
        self.waiting.append(delivery)

    def release(self, is_stable: Callable[[Delivery], bool]) -> list[Delivery]:
        """Remove and return the longest stable prefix; a message of a state transfer is stable."""
        released = []
        while self.waiting and (self.waiting[0].is_history or is_stable(self.waiting[0])):
            released.append(self.waiting.popleft())
        return released

    def release_all(self) -> list[Delivery]:
        """Remove and return all: a view begins, and all members that stay have them."""
        released = list(self.waiting)
        self.waiting.clear()
        return released


class AtomicDelivery:
    """The events of one group; a message is delivered when all members have it. Enter it once, with `join`."""

    def __init__(self, *, snapshot: Snapshot | None = None, restore: Restore | None = None) -> None:
        """`snapshot` and `restore` are those of `cubecast.join`."""
        require_state_functions(snapshot, restore)
        self._snapshot = snapshot
        self._restore = restore
        self._group: Group | None = None
        self._held = HeldDeliveries()
        self._ready: deque[Event] = deque()
        self._taking: asyncio.Task[Event] | None = None
        self._moved = asyncio.Event()
        self._asking = asyncio.Event()
        self._is_state_busy = False
        self._is_out = False
        """Was this member excluded, and has no later view with it come among the events?"""

    @asynccontextmanager
    async def join(self, name: str, **options: Any) -> AsyncIterator[Group]:
        """Join a group as `cubecast.join` does; iterate over this object in place of the group."""
        if self._group is not None:
            raise LocalProtocolError("this atomic delivery has joined a group before: make another one")
        for given in {"snapshot", "restore"} & options.keys():
            raise LocalProtocolError(
                f"{given}= of join: give it to AtomicDelivery(...), whose state includes the deliveries that wait"
            )
        if self._snapshot is not None:
            options |= {"snapshot": self._take_state, "restore": self._put_state}
        elif options.get("journal") is not None:
            raise LocalProtocolError("journal= with atomic delivery needs snapshot= and restore=: they keep what waits")
        self._group = group = join(name, **options)
        group.on_stable(lambda _frontier: self._moved.set())
        group.on_view(lambda _view: self._moved.set())
        group.on_excluded(lambda _excluded: self._drop())
        self._asking.set()  # a state that arrives before the first event
        async with group:
            try:
                yield group
            except BaseException:
                await group.leave(drain=False)  # as `async with group` does
                raise
            finally:
                await group.leave()
                if self._taking is not None:
                    self._taking.cancel()
                    with suppress(asyncio.CancelledError, StopAsyncIteration):
                        await self._taking

    def __aiter__(self) -> AtomicDelivery:
        """Deliveries that every member of their view has, and the views at their positions among them."""
        return self

    async def __anext__(self) -> Event:
        """The next event. It is safe to cancel: an event that was not returned is the next one."""
        if self._group is None:
            raise LocalProtocolError("this atomic delivery has not joined a group yet: `async with atomic.join(...)`")
        self._asking.set()
        try:
            while not self._ready or self._is_state_busy:
                await self._wait(self._group)
            return self._ready.popleft()
        finally:
            self._asking.clear()

    async def _wait(self, group: Group) -> None:
        """Wait until the group has another entry or more is stable, and release what is stable."""
        if self._taking is None:
            self._taking = asyncio.ensure_future(anext(group.events()))
        taking = self._taking
        self._moved.clear()
        self._release(group)
        if self._ready and not self._is_state_busy:
            return
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({taking, moved}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        if taking.done():
            self._taking = None
            self._accept(taking.result(), group.me)  # raises StopAsyncIteration at the end
        self._release(group)

    def _drop(self) -> None:
        self._held.waiting.clear()
        self._is_out = True

    def _accept(self, event: Event, me: MemberId) -> None:
        if isinstance(event, Delivery):
            if not self._is_out or event.is_history:
                self._held.add(event)
            return
        self._ready += [*self._held.release_all(), event]
        self._is_out = self._is_out and me not in event.view.members

    def _release(self, group: Group) -> None:
        self._ready += self._held.release(group.is_stable)

    # The state of newcomers.

    async def _take_state(self) -> bytes:
        """The application's state, and the deliveries that it has not taken."""
        assert self._snapshot is not None
        await self._asking.wait()
        self._is_state_busy = True
        try:
            octets = self._snapshot()
            if inspect.isawaitable(octets):
                octets = await octets
            ready = [event for event in self._ready if isinstance(event, Delivery)]
            state = octets_of(octets, what="what snapshot() returned")
            return msgspec.msgpack.encode(_State([*ready, *self._held.waiting], state))
        finally:
            self._is_state_busy = False
            self._moved.set()

    async def _put_state(self, octets: bytes) -> None:
        """Install the state at a newcomer, or at a member that rejoins; it replaces everything."""
        assert self._restore is not None
        await self._asking.wait()
        self._is_state_busy = True
        try:
            state = msgspec.msgpack.decode(octets, type=_State)
            restoring = self._restore(state.octets)
            if inspect.isawaitable(restoring):
                await restoring
            self._held.waiting.clear()
            self._ready = deque(state.waiting)
        finally:
            self._is_state_busy = False
            self._moved.set()

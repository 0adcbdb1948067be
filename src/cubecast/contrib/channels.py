"""A channel layer for Django Channels without a separate server.

    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "cubecast.contrib.channels.CubecastChannelLayer",
            "CONFIG": {"workers": "127.0.0.1:7300", "count": 4, "plaintext": True},
        }
    }

The group runs in a thread with an event loop of its own, because Django calls a layer from many loops (`async_to_sync`
makes one per call). It is joined with the first use and left when the process ends.

| name                     | where its messages wait                                                        |
|--------------------------|--------------------------------------------------------------------------------|
| specific (`a.PROCESS!b`) | at the process that created it; other processes send over the bus              |
| normal (`thumbnails`)    | at one of the processes that receive from it, in turn; without a receiver, at  |
|                          | the sender                                                                     |

Groups: a message for a group goes to all processes, and each puts it into the queues of its own channels. A normal
channel is in a group through the process that added it.

Delivery is at most once, as the specification allows. `send` raises ChannelFull if a queue of this process is full. If
the queue of another process is full, that process drops the message and counts it (`dropped`), as with group messages.
Group messages of one process arrive in the order in which it sent them.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from itertools import count as counter
from typing import Any, TypeVar
from weakref import WeakSet

from cubecast.bus import MSGPACK, Bus, BusEvent
from cubecast.contrib.channel_queue import ChannelQueue
from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.extras import named
from cubecast.live.group import Group
from cubecast.live.loop import LoopThread
from cubecast.live.workers import join_function
from cubecast.protocols.membership.views import MemberId

with named("cubecast.contrib.channels"):
    from channels.exceptions import ChannelFull
    from channels.layers import BaseChannelLayer

log = logging.getLogger("cubecast.contrib.channels")

GROUPS, FLUSH, PROCESS, NORMAL = "groups", "flush", "process:", "channel:"
"""Topics: messages for groups, a flush, calls for one process, and (with presence) receivers of a normal channel."""
BACKLOG = 10_000
LEAVE_S = 2.0
RETRY_S = 1.0
"""The pause before a process whose member failed permanently joins again."""
_Result = TypeVar("_Result")


class CubecastChannelLayer(BaseChannelLayer):  # type: ignore[misc]
    """The channels of this process, and the bus to those of the others."""

    extensions = ("groups", "flush")

    def __init__(
        self,
        *,
        group: str = "channels",
        workers: str = "127.0.0.1:7300",
        count: int = 1,
        join: Callable[[], Awaitable[Group]] | None = None,
        expiry: float = 60,
        group_expiry: float = 86400,
        capacity: int = 100,
        channel_capacity: dict[Any, int] | None = None,
        **options: Any,
    ) -> None:
        """The group of `count` workers at the ports from `workers` on, or the one that `await join()` returns.

        `expiry`, `group_expiry`, `capacity` and `channel_capacity` are those of all channel layers; the other options
        are those of `cubecast.join`.
        """
        super().__init__(expiry=expiry, capacity=capacity)
        self.channel_capacity = self.compile_capacities(channel_capacity or {})
        self.group_expiry = group_expiry
        self.dropped = 0
        """Messages dropped because the queue of a channel of this process was full."""
        self._join = join_function(join, group, workers, count=count, options=options)
        self._begin()
        _LAYERS.add(self)

    def _begin(self) -> None:
        """The state of a layer that this process has not used yet."""
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._queues: dict[str, ChannelQueue] = {}
        self._groups: dict[str, dict[str, float]] = {}
        self._received: set[str] = set()
        """Normal channels that this process receives from."""
        self._turn = counter()
        self._thread: LoopThread | None = None
        self._entering: Future[Bus] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # The specification.

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send to one channel; ChannelFull if its queue is in this process and full."""
        assert isinstance(message, dict), "message is not a dict"
        self.require_valid_channel_name(channel)
        assert "__asgi_channel__" not in message
        body = MSGPACK.to_bytes(message)
        bus = await self._bus()
        if "!" in channel:
            process = channel[: channel.index("!")].rpartition(".")[2]
            if process != self._process:
                await self._in_thread(lambda: bus.publish(PROCESS + process, ("send", channel, body)))
                return
        else:
            member = self._receiver(bus, channel)
            if member is not None:
                await self._in_thread(lambda: bus.send(member, NORMAL + channel, ("send", channel, body)))
                return
        if not self._put(channel, body):
            raise ChannelFull(channel)

    async def receive(self, channel: str) -> dict[str, Any]:
        """The next message of a channel; of several readers one gets it."""
        self.require_valid_channel_name(channel)
        bus = await self._bus()
        if "!" not in channel and channel not in self._received:
            await self._in_thread(lambda: self._announce(bus, channel))
        with self._lock:
            queue = self._queues.setdefault(channel, ChannelQueue())
            queue.users += 1  # so that no other thread removes it
        try:
            message: dict[str, Any] = MSGPACK.from_bytes(await queue.get())
        finally:
            with self._lock:
                queue.users -= 1
                self._forget_idle(channel)
        return message

    async def new_channel(self, prefix: str = "specific.") -> str:
        """A name that only this process receives from."""
        return f"{prefix}.{self._process}!{secrets.token_hex(8)}"

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group."""
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        await self._at_process(channel, "add", group)

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group."""
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        await self._at_process(channel, "discard", group)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send to all channels of a group; those that are full are skipped."""
        assert isinstance(message, dict), "message is not a dict"
        self.require_valid_group_name(group)
        body = MSGPACK.to_bytes(message)
        bus = await self._bus()
        await self._in_thread(lambda: bus.publish(GROUPS, ("group", group, body)))

    async def flush(self) -> None:
        """Forget all messages and groups, in all processes."""
        bus = await self._bus()
        await self._in_thread(lambda: bus.publish(FLUSH, ("flush", "", b"")))
        self._clear()

    async def close(self) -> None:
        """Leave the group, and end the thread."""
        thread, entering = self._thread, self._entering
        if thread is None or entering is None:
            return
        self._thread = self._entering = None
        atexit.unregister(self._leave_at_exit)
        try:
            if not _has_failed(entering):
                bus = await asyncio.wrap_future(entering)
                await asyncio.wrap_future(thread.begin(bus.__aexit__(None, None, None)))
        finally:
            thread.end()

    # This process's channels and groups.

    def _put(self, channel: str, body: bytes) -> bool:
        expires_at = time.monotonic() + self.expiry
        with self._lock:
            queue = self._queues.setdefault(channel, ChannelQueue())
            is_put = queue.put(body, capacity=self.get_capacity(channel), expires_at=expires_at)
            if queue.expired:  # it has no reader: as in the in-memory layer, no group may fill it again
                queue.expired = 0
                self._leave_groups(channel)
        self.dropped += not is_put
        return is_put

    def _leave_groups(self, channel: str) -> None:
        for group, channels in list(self._groups.items()):
            channels.pop(channel, None)
            if not channels:
                del self._groups[group]

    def _forget_idle(self, channel: str) -> None:
        """Forget the queue of a channel that has neither messages nor readers. The lock is held."""
        queue = self._queues.get(channel)
        if queue is not None and queue.is_idle:
            del self._queues[channel]

    async def _at_process(self, channel: str, call: str, group: str) -> None:
        """Add to a group, or discard, at the process that the channel belongs to; normal ones belong to this one."""
        process = channel[: channel.index("!")].rpartition(".")[2] if "!" in channel else self._process
        bus = await self._bus()
        if process == self._process:
            self._change_group(call, group, channel)
        else:
            await self._in_thread(lambda: bus.publish(PROCESS + process, (call, channel, group.encode())))

    def _change_group(self, call: str, group: str, channel: str) -> None:
        with self._lock:
            channels = self._groups.setdefault(group, {})
            if call == "add":
                channels[channel] = time.monotonic()
            else:
                channels.pop(channel, None)
            if not channels:
                del self._groups[group]

    def _channels_of(self, group: str) -> list[str]:
        oldest = time.monotonic() - self.group_expiry
        with self._lock:
            channels = self._groups.get(group, {})
            for channel in [name for name, added in channels.items() if added < oldest]:
                del channels[channel]
            if not channels:
                self._groups.pop(group, None)
            return list(channels)

    def _clear(self) -> None:
        with self._lock:
            self._groups.clear()
            for queue in self._queues.values():
                queue.clear()

    # Normal channels.

    def _receiver(self, bus: Bus, channel: str) -> MemberId | None:
        """The member whose turn it is to get a message; None: this one, also without a receiver."""
        present = sorted(bus.presence(NORMAL + channel))
        if not present:
            return None
        member = present[next(self._turn) % len(present)]
        return None if member == bus.group.me else member

    async def _announce(self, bus: Bus, channel: str) -> None:
        if channel not in self._received:
            self._received.add(channel)
            self._spawn(_ignoring_errors(self._read(bus, NORMAL + channel)))

    def _hand_on(self, bus: Bus) -> None:
        """Send messages that waited here for a receiver to a member that now receives."""
        with self._lock:
            waiting = [(name, queue) for name, queue in self._queues.items() if "!" not in name]
        for channel, queue in waiting:
            if channel in self._received:
                continue
            while (member := self._receiver(bus, channel)) is not None:
                taken = queue.take()
                if taken is None:
                    break
                call = bus.send(member, NORMAL + channel, ("send", channel, taken[1]))
                self._spawn(_ignoring_errors(call))
            with self._lock:
                self._forget_idle(channel)

    # The bus, in its thread.

    async def _bus(self) -> Bus:
        entering = self._entering
        if entering is None or _has_failed(entering):
            entering = self._enter_once()
        if entering.done():
            return entering.result()
        return await asyncio.shield(asyncio.wrap_future(entering))

    def _enter_once(self, instead_of: Bus | None = None) -> Future[Bus]:
        """Join, unless another call has begun to. `instead_of`: a bus that has ended."""
        with self._lock:
            if instead_of is not None and _is_bus(self._entering, instead_of):
                self._entering = None
            if self._thread is None:
                self._thread = LoopThread()
                self._thread.start()
                atexit.register(self._leave_at_exit)
            if self._entering is None or _has_failed(self._entering):
                self._entering = self._thread.begin(self._enter())
            return self._entering

    async def _enter(self) -> Bus:
        bus = Bus(await self._join(), codec=MSGPACK, presence=True)
        await bus.__aenter__()
        bus.on_presence(lambda: self._hand_on(bus))
        self._spawn(self._read_until_it_fails(bus))
        for channel in self._received:  # through an earlier bus
            self._spawn(_ignoring_errors(self._read(bus, NORMAL + channel)))
        await asyncio.sleep(0)
        return bus

    async def _read_until_it_fails(self, bus: Bus) -> None:
        """Join again when this member failed permanently: waiting readers would not notice."""
        try:
            await self._read(bus, GROUPS, FLUSH, PROCESS + self._process)
            return
        except CubecastError as error:
            log.error("channel layer ended, and joins again error=%s", error)
            with suppress(CubecastError):
                await bus.__aexit__(type(error), error, None)  # it may hold the port and the lock of its address
        while self._thread is not None:
            await asyncio.sleep(RETRY_S)
            try:
                await asyncio.wrap_future(self._enter_once(instead_of=bus))
                return
            except Exception as error:
                log.error("channel layer cannot join error=%s", error)

    async def _read(self, bus: Bus, *topics: str) -> None:
        async for event in bus.subscribe(*topics, capacity=BACKLOG, when_full="wait"):
            try:
                self._handle(event, bus)
            except Exception:
                log.exception("message skipped topic=%s sender=%s", event.topic, event.sender.name)

    def _handle(self, event: BusEvent, bus: Bus) -> None:
        call, name, body = event.value
        if call == "group":
            for channel in self._channels_of(name):
                member = None if "!" in channel else self._receiver(bus, channel)
                if member is None:
                    self._put(channel, body)
                else:
                    send = bus.send(member, NORMAL + channel, ("send", channel, body))
                    self._spawn(_ignoring_errors(send))
        elif call == "send":
            self._put(name, body)
        elif call == "flush":
            if event.sender != bus.group.me:
                self._clear()
        else:
            self._change_group(call, body.decode(), name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_thread(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        async def run() -> _Result:
            return await call()

        thread = self._thread
        if thread is None:
            raise LocalProtocolError("this channel layer was closed meanwhile")
        return await asyncio.wrap_future(thread.begin(run()))

    def _leave_at_exit(self) -> None:
        """Let the others see a leave, not a crash."""
        thread, entering = self._thread, self._entering
        if thread is not None and entering is not None and entering.done() and entering.exception() is None:
            with suppress(Exception):
                thread.begin(entering.result().group.leave(drain=False)).result(LEAVE_S)


def _has_failed(entering: Future[Bus]) -> bool:
    """Did joining fail? The next call tries again."""
    return entering.done() and (entering.cancelled() or entering.exception() is not None)


def _is_bus(entering: Future[Bus] | None, bus: Bus) -> bool:
    """Is this the bus that was joined?"""
    return entering is not None and entering.done() and not _has_failed(entering) and entering.result() is bus


def _begin_again() -> None:
    """A forked process has no thread of the bus, and needs a name of its own."""
    for layer in _LAYERS:
        layer._begin()


_LAYERS: WeakSet[CubecastChannelLayer] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)


async def _ignoring_errors(work: Awaitable[object]) -> None:
    """Delivery is at most once: a message to a member that leaves meanwhile is lost."""
    with suppress(CubecastError):
        await work

"""Publish and subscribe between the workers of a Starlette or FastAPI application.

The interface is that of the package `broadcaster`, so a program changes one line:

    broadcast = Broadcast(group="chat", workers="127.0.0.1:7100", count=4, plaintext=True)
    app = Starlette(routes=..., lifespan=broadcast.lifespan)

    await broadcast.publish(channel="room", message="hello")
    async with broadcast.subscribe(channel="room") as subscriber:
        async for event in subscriber:
            await websocket.send_text(event.message)

A subscriber that does not read loses its oldest messages (`when_full`), and no other subscriber does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from cubecast.bus import MSGPACK, Bus, Codec, Subscription
from cubecast.bus.subscription import WhenFull
from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group
from cubecast.live.workers import join_function


class BroadcastEvent(NamedTuple):
    """A message, as `broadcaster` names its parts."""

    channel: str
    message: Any


class Broadcast:
    """Publish and subscribe between the workers of an application."""

    def __init__(
        self,
        *,
        group: str = "broadcast",
        workers: str = "127.0.0.1:7100",
        count: int = 1,
        join: Callable[[], Awaitable[Group]] | None = None,
        codec: Codec = MSGPACK,
        **options: Any,
    ) -> None:
        """The group of `count` workers at the ports from `workers` on, or the one that `await join()` returns.

        The other options are those of `cubecast.join`. The codec determines the types of messages: MessagePack takes
        text, bytes, numbers, lists and dictionaries.
        """
        self._join = join_function(join, group, workers, count=count, options=options)
        self._codec = codec
        self._bus: Bus | None = None
        self._connecting: asyncio.Task[None] | None = None
        """Done when this worker is connected."""

    async def connect(self) -> None:
        """Join the group; returns when this worker is in it."""
        if self._connecting is not None:
            raise LocalProtocolError("this broadcast is already connected")
        connecting = self._connecting = asyncio.create_task(self._enter())
        try:
            await asyncio.wait({connecting})
        except asyncio.CancelledError:
            await self.disconnect()
            raise
        if connecting.cancelled():
            raise LocalProtocolError("disconnected before this worker was in the group")
        if connecting.exception() is not None:
            self._connecting = None
        connecting.result()

    async def _enter(self) -> None:
        bus = Bus(await self._join(), codec=self._codec)
        await bus.__aenter__()
        self._bus = bus

    async def disconnect(self) -> None:
        """Leave the group, or stop joining it; subscribers end."""
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait({connecting})
        bus, self._bus = self._bus, None
        if bus is not None:
            await bus.__aexit__(None, None, None)

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """For `Starlette(lifespan=...)`: connected while the application runs."""
        await self.connect()
        try:
            yield
        finally:
            await self.disconnect()

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Disconnect."""
        await self.disconnect()

    @property
    def bus(self) -> Bus:
        """The bus below, for presence, requests and the group."""
        if self._bus is None:
            raise LocalProtocolError("this broadcast is not connected: call connect(), or use its lifespan")
        return self._bus

    async def publish(self, channel: str, message: Any) -> None:
        """Publish to the subscribers of all workers."""
        await self.bus.publish(channel, message)

    @asynccontextmanager
    async def subscribe(
        self, channel: str, *, capacity: int = 1000, when_full: WhenFull = "drop_oldest"
    ) -> AsyncIterator[Subscriber]:
        """The messages of a channel from now on."""
        async with self.bus.subscribe(channel, capacity=capacity, when_full=when_full) as subscription:
            yield Subscriber(subscription)


class Subscriber:
    """An iterator over the messages of one channel."""

    def __init__(self, subscription: Subscription) -> None:
        """Made by `Broadcast.subscribe`."""
        self._subscription = subscription

    async def get(self) -> BroadcastEvent:
        """The next message."""
        event = await self._subscription.get()
        return BroadcastEvent(event.topic, event.value)

    async def __aiter__(self) -> AsyncIterator[BroadcastEvent]:
        """The messages, as they arrive."""
        async for event in self._subscription:
            yield BroadcastEvent(event.topic, event.value)

"""A client manager for python-socketio: `emit`, rooms and callbacks reach the clients of all workers.

    manager = CubecastManager(workers="127.0.0.1:7100", count=4, plaintext=True)
    server = socketio.AsyncServer(async_mode="asgi", client_manager=manager)

It joins the group with the first client or `emit`, and `await manager.close()` leaves it. The group excludes a worker
that dies. Emits of one worker reach the clients of every other worker in the order of the calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from cubecast.bus import BYTES, Bus, Subscription
from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.extras import named
from cubecast.live.group import Group
from cubecast.live.workers import join_function

with named("cubecast.contrib.socketio"):
    from socketio.async_pubsub_manager import AsyncPubSubManager

log = logging.getLogger("cubecast.contrib.socketio")

QUEUE = 10_000
"""Messages of other workers that wait to be handled here; then their publishers wait."""
RETRY_S = 1.0
"""The pause before a worker whose member failed permanently joins again."""


class CubecastManager(AsyncPubSubManager):  # type: ignore[misc]
    """The clients of one worker, and the bus to the others."""

    name = "cubecast"

    def __init__(
        self,
        *,
        group: str = "socketio",
        workers: str = "127.0.0.1:7200",
        count: int = 1,
        join: Callable[[], Awaitable[Group]] | None = None,
        channel: str = "socketio",
        write_only: bool = False,
        logger: logging.Logger | None = None,
        json: Any = None,
        **options: Any,
    ) -> None:
        """The group of `count` workers at the ports from `workers` on, or the one that `await join()` returns.

        The other options are those of `cubecast.join`. `write_only`: a process without clients that only emits.
        """
        super().__init__(channel=channel, write_only=write_only, logger=logger, json=json)
        self._join = join_function(join, group, workers, count=count, options=options)
        self._connecting: asyncio.Task[Bus] | None = None
        self._subscription: Subscription | None = None

    async def open(self) -> Bus:
        """Join the group now, rather than with the first client."""
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._enter())
        return await asyncio.shield(self._connecting)

    async def _enter(self) -> Bus:
        try:
            bus = Bus(await self._join(), codec=BYTES)
            if not self.write_only:
                # Own messages were handled before they were published.
                self._subscription = bus.subscribe(self.channel, capacity=QUEUE, when_full="wait", own=False)
            return await bus.__aenter__()
        except BaseException as error:
            self._connecting = self._subscription = None
            if isinstance(error, Exception):  # the server says only that start-up failed
                log.error("client manager cannot join error=%s", error)
            raise

    async def close(self) -> None:
        """Leave the group."""
        if self._connecting is not None:
            bus = await asyncio.shield(self._connecting)
            await bus.__aexit__(None, None, None)

    async def _publish(self, data: dict[str, Any]) -> None:
        bus = await self.open()
        try:
            text = self.json.dumps(data)  # some packages return bytes
            octets = text.encode() if isinstance(text, str) else bytes(text)
        except (TypeError, ValueError) as error:
            raise LocalProtocolError(f"the data of {data.get('event')!r} cannot be encoded: {error}") from error
        await bus.publish(self.channel, octets)

    async def _listen(self) -> AsyncIterator[bytes]:
        try:
            await self.open()
            assert self._subscription is not None
            async for event in self._subscription:
                yield event.value
        except (CubecastError, OSError):
            self._connecting = None
            await asyncio.sleep(RETRY_S)
            raise  # python-socketio logs it, and calls again at once
        await asyncio.Event().wait()  # closed: python-socketio expects no end

"""Callers that wait until a message has reached a stability level: at all members, at a quorum, or causally."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from cubecast.errors import ExcludedError
from cubecast.member.effects import Outgoing
from cubecast.member.known_levels import NOTHING_KNOWN

if TYPE_CHECKING:
    from cubecast.live.driver import Driver


class LevelWaits:
    """The known levels of all members, and the callers that wait for higher ones."""

    def __init__(self, driver: Driver) -> None:
        """Nothing is known yet."""
        self.known = NOTHING_KNOWN
        """As far as the journal has what it depends on."""
        self._driver = driver
        self._waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Let the waiting callers check again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, outgoing: Outgoing, is_reached: Callable[[], bool], *, what: str, hurry: bool) -> None:
        """Until a message that is stable has reached a further level; raises when it never will."""
        driver = self._driver
        await driver.wait_settled(outgoing, hurry=hurry)
        me = driver.member.me
        if hurry and not is_reached():
            driver.call(driver.member.ask_levels)
        while not is_reached():
            await self._look_later(me != driver.member.me, what)

    async def wait_quorum(self, outgoing: Outgoing, level: int, *, what: str) -> None:
        """Until a quorum has reached a level with a message; raises when it never will."""
        driver = self._driver
        me = driver.member.me
        while not (outgoing.was_sent and self.known.has_quorum(driver.member.me, level, outgoing.sequence)):
            if outgoing.failure is not None:
                raise type(outgoing.failure)(*outgoing.failure.args)
            if not driver.is_ended:
                driver.call(lambda now_ns: driver.member.ask_quorum(outgoing, level, now_ns))
            await self._look_later(outgoing.was_sent and driver.member.me != me, what)

    async def _look_later(self, is_excluded: bool, what: str) -> None:
        driver = self._driver
        if driver.is_ended:
            raise driver.end_error(f"the message was {what}")
        if is_excluded:
            raise ExcludedError(f"excluded before the message was {what}")
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(news)
        await news

"""The result of `Group.multicast`: a message whose stability can be awaited."""

from __future__ import annotations

import asyncio
from typing import Literal, get_args

import msgspec

from cubecast.errors import LocalProtocolError
from cubecast.live.driver import Driver
from cubecast.member.effects import Outgoing
from cubecast.member.levels import DURABLE, PROCESSED, RECEIVED

Level = Literal["received", "processed", "durable"]
"""What members must have done with a message."""
Of = Literal["all", "quorum"]
"""Which members."""


class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message that this member multicast; returned by `Group.multicast`."""

    _driver: Driver
    _outgoing: Outgoing

    def __repr__(self) -> str:
        """Its number, and whether it is stable."""
        state = "stable" if self.is_stable else "not stable"
        return f"<Message sequence={self.sequence} view={self.view} {state}>"

    @property
    def payload(self) -> bytes:
        """The payload of the message."""
        return self._outgoing.payload

    @property
    def sequence(self) -> int:
        """Its sequence number among all messages of this member; 0 while it waits for the next view."""
        return self._outgoing.sequence

    @property
    def view(self) -> int:
        """The number of the view in which it was sent; 0 while it waits for the next view."""
        return self._outgoing.view

    @property
    def is_stable(self) -> bool:
        """Does every member of the view have it?"""
        return self._outgoing.is_stable

    async def stable(
        self, timeout: float | None = None, *, level: Level = "received", of: Of = "all", hurry: bool = False
    ) -> None:
        """Wait until every member of the view has the message; `hurry` starts a stability round immediately.

        `level`: *received*; *processed*: all applications have processed it (`Group.ack`, or they asked for the next
        event); *durable*: it is on the disk of every member that has a journal. With `of="quorum"` a majority of the
        view is enough, and the other members are queried immediately.

        Raises TimeoutError, naming the members behind; LocalProtocolError if this member left before; ExcludedError if
        this member was excluded and the message is not multicast again.
        """
        driver = self._driver
        try:
            async with asyncio.timeout(timeout):
                which = _block_of(driver, level)
                if of == "quorum":
                    await driver.levels.wait_quorum(self._outgoing, which, what=f"{level} by a quorum")
                elif of != "all":
                    raise LocalProtocolError(f"of={of!r}: one of {', '.join(get_args(Of))}")
                elif which == RECEIVED:
                    await driver.wait_settled(self._outgoing, hurry=hurry)
                else:
                    await driver.levels.wait(
                        self._outgoing, lambda: self._has_reached(which), what=f"{level} everywhere", hurry=hurry
                    )
        except TimeoutError:
            raise TimeoutError(f"not stable after {timeout} s: {self._why_not_stable(level)}") from None

    async def causally_stable(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Wait until every message that is still to be delivered here causally follows this one.

        See `Group.causal_frontier`; the exceptions are those of `stable`.
        """
        driver = self._driver
        try:
            async with asyncio.timeout(timeout):
                await driver.levels.wait(
                    self._outgoing, lambda: self.is_causally_stable, what="causally stable", hurry=hurry
                )
        except TimeoutError:
            raise TimeoutError(f"not causally stable after {timeout} s: {self._why_not_stable('processed')}") from None

    @property
    def is_causally_stable(self) -> bool:
        """Does every message that is still to be delivered here causally follow it?"""
        driver, outgoing = self._driver, self._outgoing
        return outgoing.was_sent and driver.levels.known.is_causally_stable(
            driver.member.me, outgoing.view, outgoing.sequence
        )

    def _has_reached(self, which: int) -> bool:
        driver = self._driver
        return self._outgoing.sequence <= driver.levels.known.frontier(which).get(driver.member.me, 0)

    def _why_not_stable(self, level: Level) -> str:
        member = self._driver.member
        if not self._outgoing.was_sent:
            if member.awaits_restore:
                return "it is not sent before the application takes the group's state; iterate over the group"
            return "it is not sent yet; " + self._why_not_sent()
        if self.is_stable:
            lack = {"processed": "not every application has processed it", "durable": "it is not on every disk"}
            return f"every member has message {self.sequence}, but {lack.get(level, 'the answer came too late')}"
        late = ", ".join(f"{who.name} ({count})" for who, count in member.laggards()) or "none known"
        return f"message {self.sequence} has not reached every member; members behind (messages): {late}"

    def _why_not_sent(self) -> str:
        driver = self._driver
        member = driver.member
        if member.is_blocked:
            return "too few members are reachable"
        if member.phase != "member" or member.stack is None or member.is_changing:
            return "the view changes"
        if member.stack.is_parked or member.stats()["backlog_bytes"] > driver.settings.backlog_bytes:
            return "the application has not taken its deliveries; iterate over the group"
        return "earlier messages of this member are not stable"


def _block_of(driver: Driver, level: Level) -> int:
    if level == "received":
        return RECEIVED
    if level == "processed":
        return PROCESSED
    if level != "durable":
        raise LocalProtocolError(f"level={level!r}: one of {', '.join(get_args(Level))}")
    if driver.journal is None:
        raise LocalProtocolError("level='durable' needs a journal: join(..., journal=PATH)")
    if driver.settings.sync == "never":
        raise LocalProtocolError("level='durable' needs Settings(sync='always') or 'interval', not 'never'")
    return DURABLE
